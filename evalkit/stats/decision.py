"""From one-sided tests to a verdict: the bounds that hold, the word, and the reasons beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evalkit.stats.gaffke import BoundedUnits
from evalkit.stats.multiplicity import holm
from evalkit.stats.one_sided import OneSidedTest, ScoreTest
from evalkit.stats.sequential_test import SequentialTest
from evalkit.stats.trinomial import PairedCounts
from evalkit.stats.verdict import (
    MoreData,
    OneOfMany,
    Reason,
    RepeatDiffers,
    SmallerLoss,
    Unusable,
    Verdict,
)

METHOD_NAMES = {
    PairedCounts: "exact",
    BoundedUnits: "gaffke",
    ScoreTest: "score",
    SequentialTest: "sequence",
}


@dataclass(frozen=True, slots=True)
class Views:
    """One difference as it was scored, and at the two ends that unusable answers leave open.

    Attributes:
        worst: every unusable answer counted against the arm.
        best: every one counted for it. The same test as `worst` where all answers are usable.
    """

    worst: OneSidedTest
    best: OneSidedTest


@dataclass(frozen=True, slots=True)
class Repeat:
    """The arm against the baseline's second run.

    Attributes:
        views: of the arm against it.
        delta: second run minus first.
        gap: the mean over tasks run again of the size of it; that of `delta` on one task.
        shown: whether the two runs are shown to differ (corrected over tasks).
        tasks: of a macro average that does not show it, tasks that do.
    """

    views: Views
    delta: float
    gap: float
    shown: bool
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the samples say about one difference and one margin.

    Attributes:
        against: what the arm has to hold against, each with unusable answers at both ends: the
            baseline, and its repeat where there is one.
        alpha: level of each one-sided claim.
        p_no_worse: one-sided p-value of "the loss is the margin or more": small means no worse.
        p_worse: of "the loss is the margin or less": small means worse.
        p_better: of "the arm scores no higher": small means better.
        p_lower: of "the arm scores no lower": small means that a loss is certain.
    """

    against: tuple[Views, ...]
    alpha: float
    p_no_worse: float
    p_worse: float
    p_better: float
    p_lower: float

    @property
    def low(self) -> float:
        """Lower bound of the difference, wrong with probability alpha at most."""
        return max(-1.0, min(views.worst.lower(self.alpha) for views in self.against))

    @property
    def high(self) -> float:
        """Upper bound of the difference, wrong with probability alpha at most."""
        return min(1.0, max(-views.best.mirrored().lower(self.alpha) for views in self.against))

    @property
    def method(self) -> str:
        """``"exact"``, ``"gaffke"``, ``"score"`` or ``"sequence"``."""
        return METHOD_NAMES[type(self.against[0].worst)]

    @property
    def word(self) -> Verdict:
        """What it amounts to."""
        if self.p_no_worse <= self.alpha:
            return Verdict.BETTER if self.p_better <= self.alpha else Verdict.NO_WORSE
        return Verdict.WORSE if self.p_worse <= self.alpha else Verdict.UNDECIDED

    def excludes_gain(self, size: float) -> bool:
        """Whether a gain of `size` or more is excluded too."""
        return all(v.best.mirrored().p(-size) <= self.alpha for v in self.against)


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with everything it rests on.

    Attributes:
        verdict: one of the five words.
        reasons: why, the most important first.
        margin: largest tolerable loss.
        evidence: bounds and p-values; those of the arm alone.
        p_no_worse_adjusted: adjusted over the arms of the family, or None where each stands alone.
        p_worse_adjusted: likewise.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    margin: float
    evidence: Evidence
    p_no_worse_adjusted: float | None = None
    p_worse_adjusted: float | None = None

    @property
    def p_no_worse(self) -> float:
        """One-sided p-value of "the loss is the margin or more"; adjusted in a family of arms."""
        alone = self.evidence.p_no_worse
        return alone if self.p_no_worse_adjusted is None else self.p_no_worse_adjusted

    @property
    def p_worse(self) -> float:
        """The same of "the loss is the margin or less"."""
        return self.evidence.p_worse if self.p_worse_adjusted is None else self.p_worse_adjusted

    def withheld(self, reason: Reason) -> Decision:
        """The same evidence without a verdict; more samples would not give one."""
        others = tuple(r for r in self.reasons if not isinstance(r, MoreData))
        return replace(self, verdict=Verdict.WITHHELD, reasons=(reason, *others))


def weigh(against: Sequence[Views], margin: float, alpha: float) -> Evidence:
    """Evidence that holds against all of several references, wherever unusable answers lie.

    A claim is made only if it holds against each (intersection-union test): p-values are the
    largest, and the level is that of each.
    """
    favors = [views.best.mirrored() for views in against]
    return Evidence(
        tuple(against),
        alpha,
        p_no_worse=max(views.worst.p(-margin) for views in against),
        p_worse=max(test.p(margin) for test in favors),
        p_better=max(views.worst.p(0.0) for views in against),
        p_lower=max(test.p(0.0) for test in favors),
    )


def decide(
    views: Views,
    margin: float,
    *,
    alpha: float = 0.025,
    unusable: Unusable | None = None,
    repeat: Repeat | None = None,
) -> Decision:
    """Verdict on one arm.

    Where answers are unusable the verdict stands only if it is the same with all of them counted
    against the arm and with all counted for it, else it is withheld. Where the baseline was run
    twice it has to hold against both runs: if the arm's own run drifted no further than somewhere
    between the two, one of the two differences is no larger than the true one, and each claim is
    wrong with probability alpha at most (intersection-union test, Berger 1982, Technometrics 24).
    Where only one of them bears it out, the verdict is withheld if the two runs are shown to
    differ, and undecided if that may be chance.

    Args:
        views: of the arm against the baseline.
        margin: largest tolerable loss.
        alpha: level of each one-sided test.
        unusable: how many answers are, or None where all are usable.
        repeat: the arm against the second run of the baseline.
    """
    alone = weigh([views], margin, alpha)
    evidence = alone if repeat is None else weigh([views, repeat.views], margin, alpha)
    word = evidence.word
    reasons: tuple[Reason, ...] = ()
    if word is Verdict.UNDECIDED and unusable is not None and _ends_differ(views, margin, alpha):
        word, reasons = Verdict.WITHHELD, (unusable,)
    elif word is Verdict.UNDECIDED and repeat is not None and alone.word.decided:
        word = Verdict.WITHHELD if repeat.shown else Verdict.UNDECIDED
        reasons = (RepeatDiffers(repeat.delta, repeat.gap, repeat.tasks),)
    elif word in (Verdict.UNDECIDED, Verdict.NO_WORSE) and evidence.p_lower <= alpha:
        reasons = (SmallerLoss(),)
    return Decision(word, reasons, margin, evidence)


def _ends_differ(views: Views, margin: float, alpha: float) -> bool:
    """Whether the two ends of the unusable answers, each taken as the data, differ in verdict."""
    worst = weigh([Views(views.worst, views.worst)], margin, alpha).word
    best = weigh([Views(views.best, views.best)], margin, alpha).word
    return worst.acceptable != best.acceptable or worst.decided != best.decided


def as_family(decisions: Sequence[Decision]) -> list[Decision]:
    """Verdicts of several arms on one task that hold together (Holm 1979).

    The chance that any arm is falsely called no worse is alpha at most, whatever the dependence;
    likewise that any is falsely called worse. An arm whose verdict is withheld stays in the family.
    """
    no_worse = holm([d.evidence.p_no_worse for d in decisions])
    worse = holm([d.evidence.p_worse for d in decisions])
    better = holm([d.evidence.p_better for d in decisions])
    together = []
    for k, decision in enumerate(decisions):
        p_no_worse, p_worse, p_better = float(no_worse[k]), float(worse[k]), float(better[k])
        adjusted = replace(
            decision.evidence, p_no_worse=p_no_worse, p_worse=p_worse, p_better=p_better
        )
        word, reasons = decision.verdict, decision.reasons
        if word.decided:
            word = adjusted.word
        if decision.verdict.decided and not word.decided:
            reasons = (OneOfMany(len(decisions), decision.verdict), *reasons)
        together.append(
            replace(
                decision,
                verdict=word,
                reasons=reasons,
                p_no_worse_adjusted=p_no_worse,
                p_worse_adjusted=p_worse,
            )
        )
    return together
