"""From lines to samples: repeated lines are found, and positions are given.

A script that appends to its file leaves two traces: the first lines of a run that was cut short,
before those of the run that was finished, or single lines twice. Equal lines alone prove nothing:
LongBench itself asks some questions twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from evalkit.core.errors import EvalkitError
from evalkit.importers.common.records import Hole, Reading, Record

Slots = Sequence[Record | Hole]


@dataclass(frozen=True, slots=True)
class Settled:
    """The samples of one task.

    Attributes:
        records: by sample id, in order.
        repeated: lines that were dropped.
        lines: lines there were, blank ones left out.
    """

    records: dict[str, Record]
    repeated: tuple[str, ...]
    lines: int


def settle(
    task: str,
    slots: Slots,
    reading: Reading,
    known: Mapping[str, Sequence[str]],
    aliases: Mapping[str, str],
) -> Settled:
    """Give every record of a task its id.

    Args:
        task: the cell.
        slots: its lines.
        reading: takes note of answers that contradict each other.
        known: references of the samples that the run already has, by sample id.
        aliases: their sample ids by the benchmark's own id, where they have one.

    Raises:
        EvalkitError: there are more lines than samples, and it cannot be told which are repeated.
    """
    records = [slot for slot in slots if isinstance(slot, Record)]
    if any(record.key is not None for record in records) or (
        aliases and all(record.alias in aliases for record in records)
    ):
        ids = [aliases.get(r.alias or "", f"{task}/{r.key}") for r in records]
        return _by_id(dict(zip(map(id, records), ids, strict=True)), slots, reading)
    kept = list(slots)
    expected = reading.expected.get(task)
    if len(kept) != expected and not _agrees(task, kept, known):
        kept = _without_repeats(kept, expected)
    if expected is not None and len(kept) > expected:
        raise EvalkitError(
            f"{task}: {len(kept)} lines, but the task has {expected} samples, and it cannot be"
            f" told which are repeated (first line: {kept[0].where})"
        )
    left = {id(slot) for slot in kept}
    dropped = tuple(str(slot.where) for slot in slots if id(slot) not in left)
    placed = {f"{task}/{i}": slot for i, slot in enumerate(kept) if isinstance(slot, Record)}
    return Settled(placed, dropped, len(slots))


def _by_id(ids: Mapping[int, str], slots: Slots, reading: Reading) -> Settled:
    """Records by id, the first of each; `ids` has those of the record objects."""
    records: dict[str, Record] = {}
    repeated = []
    for slot in slots:
        if not isinstance(slot, Record):
            continue
        first = records.setdefault(ids[id(slot)], slot)
        if first is slot:
            continue
        repeated.append(str(slot.where))
        if (first.prediction, first.references) != (slot.prediction, slot.references):
            name = slot.key or slot.alias
            text = f"{name} was answered otherwise in {first.where}, which is kept"
            reading.problem(slot.where, "", text)
    return Settled(records, tuple(repeated), len(slots))


def _agrees(task: str, slots: Slots, known: Mapping[str, Sequence[str]]) -> bool:
    """Whether the run has exactly these samples, line by line."""
    return len(known) == len(slots) and all(
        isinstance(slot, Hole) or list(known.get(f"{task}/{i}", ())) == list(slot.references)
        for i, slot in enumerate(slots)
    )


def _without_repeats(slots: list[Record | Hole], expected: int | None) -> list[Record | Hole]:
    """Drop runs that were cut short, then, if the number is still wrong, lines that occur twice."""
    if expected is not None and len(slots) > expected:
        whole = _whole_run(slots, expected)
        if whole is not None:
            return whole
    while (start := _restart(slots)) is not None:
        before, after = slots[:start], slots[start:]
        slots = after if len(after) >= len(before) else before
    if len(slots) == expected:
        return slots
    seen: set[str] = set()
    kept = []
    for slot in slots:
        if isinstance(slot, Record):
            if slot.digest in seen:
                continue
            seen.add(slot.digest)
        kept.append(slot)
    # too many before and too few after: some equal lines are different questions
    unclear = expected is not None and len(kept) < expected < len(slots)
    return slots if unclear else kept


def _whole_run(slots: list[Record | Hole], expected: int) -> list[Record | Hole] | None:
    """The last or first so many lines, if all others are beginnings of the same run."""
    for whole, rest in (
        (slots[-expected:], slots[:-expected]),
        (slots[:expected], slots[expected:]),
    ):
        questions, at = [_question(slot) for slot in whole], 0
        for question in map(_question, rest):
            if question is None:
                break
            if at == expected or question != questions[at]:
                at = 0
            if question != questions[at]:
                break
            at += 1
        else:
            return whole
    return None


def _restart(slots: Slots) -> int | None:
    """Where the questions begin again: the shorter part has those of the longer one's start."""
    questions = [_question(slot) for slot in slots]
    if not questions or questions[0] is None:
        return None
    for start in range(2, len(questions) - 1):
        if questions[start] != questions[0]:
            continue
        length = min(start, len(questions) - start)
        again = questions[start : start + length]
        longer = questions[start:] if length == start else questions[:start]
        if again == questions[:length] and _telling(again, longer):
            return start
    return None


def _telling(part: Sequence[Hashable | None], whole: Sequence[Hashable | None]) -> bool:
    """Whether most questions of a part occur once in the whole, so that they tell the place."""
    counts = Counter(whole)
    return None not in part and sum(counts[q] == 1 for q in part) >= 0.9 * len(part)


def _question(slot: Record | Hole) -> Hashable | None:
    """What can be told of a question: its gold and its meta data."""
    if isinstance(slot, Hole):
        return None
    return slot.references, tuple(sorted((k, str(v)) for k, v in slot.meta.items()))
