"""Samples left out by hand: a verdict has to hold with them too.

Whoever may choose samples after looking can leave out those that the arm lost. A claim that is made
only if it holds on all samples as well is wrong no more often than one about all of them.
"""

from __future__ import annotations

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
