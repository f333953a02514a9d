"""Samples left out by hand, or taken out of the run once answered: a verdict holds with them too.

Whoever may choose samples after looking can leave out those that the arm lost. A claim that is made
only if it holds on all samples as well is wrong no more often than one about all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from evalkit.stats import Comparison, Row, Verdict
from evalkit.stats.verdict import LeftOutByHand


def borne_out(without: Comparison, whole: Comparison) -> Comparison:
    """A comparison whose verdicts hold with the samples left out too.

    Where all samples say something else the verdict is withheld; "better" that is only "no worse"
    with them is that.

    Args:
        without: rows without the samples left out by hand.
        whole: the same with all samples.
    """
    with_all = {(row.arm, row.task): row for row in whole.rows}
    rows = tuple(_borne_out(row, with_all.get((row.arm, row.task))) for row in without.rows)
    return replace(without, rows=rows)


def _borne_out(row: Row, whole: Row | None) -> Row:
    if row.decision is None or not row.decision.verdict.decided:
        return row
    said = Verdict.WITHHELD
    if whole is not None and whole.decision is not None:
        said = whole.decision.verdict
    word = _weaker(row.decision.verdict, said)
    if word is row.decision.verdict:
        return row
    reason = LeftOutByHand(said)
    decision = replace(row.decision.withheld(reason), verdict=word)
    notes = (*row.notes, str(reason))
    equivalent = row.equivalent and word.acceptable
    return replace(row, verdict=word, equivalent=equivalent, notes=notes, decision=decision)


def _weaker(one: Verdict, other: Verdict) -> Verdict:
    """What two verdicts on one arm both say."""
    if one is other or (one is Verdict.NO_WORSE and other is Verdict.BETTER):
        return one
    return Verdict.NO_WORSE if one.acceptable and other.acceptable else Verdict.WITHHELD


def left_out(excluded: Sequence[str], taken: Mapping[str, tuple[int, int]]) -> str:
    """For the title of a table: how many samples were left out, and which.

    Args:
        excluded: samples left out by hand.
        taken: (compared, answered) samples of the tasks that some were taken out of.
    """
    parts = []
    if excluded:
        parts.append(f", without {len(excluded)} left out by hand ({_first(excluded)})")
    parts += [
        f", {compared} of {answered} answered samples of {_first(tasks)}"
        for (compared, answered), tasks in _alike(taken).items()
    ]
    return "".join(parts)


def taken_notes(taken: Mapping[str, tuple[int, int]]) -> list[str]:
    """Lines below a table: the tasks that samples were taken out of once they were answered."""
    return [
        f"{', '.join(tasks)}: {compared} of {answered} answered samples are compared: samples were"
        " taken out after they were answered, and a verdict has to hold with them too"
        for (compared, answered), tasks in _alike(taken).items()
    ]


def _alike(taken: Mapping[str, tuple[int, int]]) -> dict[tuple[int, int], list[str]]:
    """Tasks by their counts."""
    by_counts: dict[tuple[int, int], list[str]] = {}
    for task, counts in taken.items():
        by_counts.setdefault(counts, []).append(task)
    return by_counts


def _first(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"
