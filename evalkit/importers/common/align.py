"""Align the lines of a task with its samples: by id, else by what they tell of their question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalkit.core.errors import EvalkitError
from evalkit.importers.common.join import join
from evalkit.importers.common.known_samples import KnownSamples
from evalkit.importers.common.predictions import Line, Prediction, PredictionSet
from evalkit.importers.common.repeats import without_cut_short_runs, without_repeats


@dataclass(frozen=True, slots=True)
class Aligned:
    """The samples of one task.

    Attributes:
        predictions: by sample id, in order.
        repeated: lines that were dropped.
        lines: lines there were, blank ones left out.
    """

    predictions: dict[str, Prediction]
    repeated: tuple[str, ...]
    lines: int


def align(
    task: str,
    predictions: PredictionSet,
    known: KnownSamples,
) -> Aligned:
    """Give every prediction of a task its sample id.

    Args:
        task: the cell.
        predictions: with its lines; takes note of answers that contradict each other.
        known: what the run or the pinned data know of the cell.

    Raises:
        EvalkitError: there are more lines than samples, and it cannot be told which are repeated;
            or see `join`.
    """
    lines, samples, aliases = predictions.lines[task], known.questions, known.aliases
    usable = [line for line in lines if isinstance(line, Prediction)]
    if any(line.key is not None for line in usable) or (
        aliases and all(line.alias in aliases for line in usable)
    ):
        return _by_id(
            [(aliases.get(p.alias or "", f"{task}/{p.key}"), p) for p in usable],
            len(lines),
            predictions,
        )
    expected = predictions.expected.get(task)
    distinct = list(lines)
    if not samples:
        distinct = without_repeats(distinct, expected)
    elif len(lines) != len(samples):
        distinct = without_cut_short_runs(distinct, expected)
    by_id = join(task, distinct, samples, predictions)
    unusable = [line for line in distinct if not isinstance(line, Prediction)]
    many = len(by_id) if samples else len(distinct)
    if expected is not None and many > max(expected, len(samples)):
        raise EvalkitError(
            f"{task}: {many} lines, but the task has {expected} samples, and it cannot be"
            f" told which are repeated (first line: {distinct[0].where})"
        )
    return Aligned(by_id, _dropped(lines, by_id, unusable), len(lines))


def _dropped(
    lines: Sequence[Line], by_id: Mapping[str, Prediction], unusable: Sequence[Line]
) -> tuple[str, ...]:
    left = {id(line) for line in (*by_id.values(), *unusable)}
    return tuple(str(line.where) for line in lines if id(line) not in left)


def _by_id(
    identified: Sequence[tuple[str, Prediction]], lines: int, predictions: PredictionSet
) -> Aligned:
    """The first prediction of every sample id."""
    by_id: dict[str, Prediction] = {}
    repeated = []
    for sample_id, line in identified:
        first = by_id.setdefault(sample_id, line)
        if first is line:
            continue
        repeated.append(str(line.where))
        if (first.text, first.references) != (line.text, line.references):
            name = line.key or line.alias
            text = f"{name} was answered otherwise in {first.where}, which is kept"
            predictions.problem(line.where, "", text)
    return Aligned(by_id, tuple(repeated), lines)
