"""The words of a verdict, and the reasons beside them.

One question: is the arm worse than the baseline by the margin or more? Five words answer it:

- **better**: no worse, and its score is higher (tested only once no worse is shown, so that the
  second claim costs the first nothing);
- **no worse**: a loss as large as the margin is excluded;
- **worse**: the loss is larger than the margin;
- **undecided**: the samples allow both; the reasons say what would decide;
- **withheld**: something other than chance stands in the way (answers that failed, a task on
  which nothing can be lost, a baseline that differs from its own repeat, a setting not engaged).

"No worse", "better" and "worse" are each wrong with a chance of at most (1 - confidence) / 2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TypeAlias

from evalkit.core.errors import EvalkitError
from evalkit.dsa.json_types import JsonObject


class Verdict(StrEnum):
    """The five words."""

    BETTER = "better"
    NO_WORSE = "no worse"
    WORSE = "worse"
    UNDECIDED = "undecided"
    WITHHELD = "withheld"

    @property
    def acceptable(self) -> bool:
        """Whether a loss as large as the margin is excluded."""
        return self in (Verdict.BETTER, Verdict.NO_WORSE)

    @property
    def decided(self) -> bool:
        """Whether the verdict makes a claim."""
        return self.acceptable or self is Verdict.WORSE


# Reasons: why a verdict is what it is, as a value; `str` gives the clause for a reader, with
# differences in points of 100.


@dataclass(frozen=True, slots=True)
class MoreUnits:
    """Undecided for want of samples: how many like these would decide.

    Attributes:
        have: samples or haystacks now.
        needed: so many would, None where the measured difference lies too close to the margin.
        noun: ``"samples"`` or ``"haystacks"``.
    """

    have: int
    needed: int | None
    noun: str

    def __str__(self) -> str:
        if self.needed is None:
            return "the measured difference lies at the margin: no number of samples would do"
        return f"about {self.needed:,} {self.noun} like these {self.have:,} would decide"


@dataclass(frozen=True, slots=True)
class UnseenChanges:
    """The changes seen so far decide, the bound that allows changes not seen does not.

    Attributes:
        have: samples or haystacks now.
        needed: so many like these would exclude them too, None where none would.
        noun: ``"samples"`` or ``"haystacks"``.
        losses: whether a few samples lost whole stand in the way of "no worse", or a few gained
            whole in the way of "worse".
    """

    have: int
    needed: int | None
    noun: str
    losses: bool = True

    def __str__(self) -> str:
        how = "lost" if self.losses else "gained"
        clause = f"what was seen would decide, but {self.have:,} {self.noun} cannot exclude "
        clause += f"that a few others are {how} whole"
        return clause if self.needed is None else f"{clause}; about {self.needed:,} would"


@dataclass(frozen=True, slots=True)
class SmallTasks:
    """The macro average is undecided because of tasks with few samples or haystacks.

    Attributes:
        needed: task -> (units now, units that would let the average decide).
        noun: ``"samples"`` or ``"haystacks"``.
    """

    needed: Mapping[str, tuple[int, int]]
    noun: str

    def __str__(self) -> str:
        tasks = ", ".join(f"{task} {now} → {then}" for task, (now, then) in self.needed.items())
        return f"more {self.noun} of the smallest tasks would decide: {tasks}"


MoreData: TypeAlias = MoreUnits | UnseenChanges | SmallTasks  # what more samples would do


@dataclass(frozen=True, slots=True)
class Unusable:
    """Answers that are no evidence: counted as right or as wrong they change the verdict.

    Attributes:
        arm: answers of the arm that failed or are missing.
        baseline: the same of the baseline.
    """

    arm: int
    baseline: int

    def __str__(self) -> str:
        sides = [f"{n} answers of the {who}" for n, who in self._counts() if n]
        return f"{' and '.join(sides)} failed or are missing: the verdict depends on them"

    def _counts(self) -> tuple[tuple[int, str], ...]:
        return (self.baseline, "baseline"), (self.arm, "arm")


@dataclass(frozen=True, slots=True)
class NothingToLose:
    """A task on which the baseline is not shown to score the margin more than no knowledge does.

    Attributes:
        score: of the baseline.
        floor: score of chance, or of the best constant answer; 0 where there is none.
        shown: lower bound of what the baseline scores above it.
    """

    score: float
    floor: float
    shown: float

    def __str__(self) -> str:
        above = "0" if self.floor == 0.0 else f"the {points(self.floor)} of knowing nothing"
        return (
            f"the baseline scores {points(self.score)}, not shown to be above {above} by the margin"
        )


@dataclass(frozen=True, slots=True)
class TasksWithoutHeadroom:
    """Tasks of a macro average on which nothing can be lost (`NothingToLose`).

    Attributes:
        tasks: their names.
        of: tasks in all.
    """

    tasks: tuple[str, ...]
    of: int

    def __str__(self) -> str:
        return f"{len(self.tasks)} of {self.of} tasks cannot show a loss: {', '.join(self.tasks)}"


@dataclass(frozen=True, slots=True)
class RepeatDiffers:
    """The arm holds against the baseline and not against its second run, or the other way round.

    Attributes:
        delta: second run minus first.
        gap: the mean over tasks of the size of it; more than that of `delta` where tasks differ
            in opposite directions.
        tasks: of a macro average on which the two runs do not differ, tasks on which they do.
    """

    delta: float
    gap: float
    tasks: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.tasks:
            where = f"on {', '.join(self.tasks)}"
        elif points(self.gap) != points(abs(self.delta)):
            where = f"by {points(self.gap)} a task, one way or the other"
        else:
            where = f"by {'+' if self.delta > 0 else ''}{points(self.delta)}"
        return f"the baseline's second run differs from it {where}: not both bear the verdict out"


@dataclass(frozen=True, slots=True)
class NotEngaged:
    """Nothing shows that the arm's setting did anything.

    Attributes:
        why: what the check found.
    """

    why: str

    def __str__(self) -> str:
        return f"the setting is not shown to be engaged: {self.why}"


@dataclass(frozen=True, slots=True)
class StoppingInterrupted:
    """A run that stops arms when decided did not come to its end."""

    def __str__(self) -> str:
        return "stopping when decided was interrupted: the same command goes on"


@dataclass(frozen=True, slots=True)
class LeftOutByHand:
    """Decided only without samples that somebody left out.

    Attributes:
        whole: the verdict with them.
    """

    whole: Verdict

    def __str__(self) -> str:
        return f"{self.whole} with the samples that were left out by hand"


@dataclass(frozen=True, slots=True)
class OneOfMany:
    """Decided alone, not as one of several arms.

    Attributes:
        arms: in the family.
        alone: the verdict without it.
    """

    arms: int
    alone: Verdict

    def __str__(self) -> str:
        return f"{self.alone} alone, not as one of {self.arms} arms tried"


@dataclass(frozen=True, slots=True)
class RareLossesExcluded:
    """The verdict reads the interval because the recipe excludes losses that are not in the sample.

    Attributes:
        why: the recipe's reason.
    """

    why: str

    def __str__(self) -> str:
        return f"total losses that the samples do not show are excluded by the recipe: {self.why}"


@dataclass(frozen=True, slots=True)
class SmallerLoss:
    """A loss is certain; whether it is within the margin is what the verdict says."""

    def __str__(self) -> str:
        return "a loss is certain"


Reason = (
    MoreUnits
    | UnseenChanges
    | SmallTasks
    | Unusable
    | NothingToLose
    | TasksWithoutHeadroom
    | RepeatDiffers
    | NotEngaged
    | StoppingInterrupted
    | LeftOutByHand
    | OneOfMany
    | RareLossesExcluded
    | SmallerLoss
)


def as_record(reason: Reason) -> JsonObject:
    """A reason for JSON: its kind, its numbers, and its text."""
    words = re.findall("[A-Z][a-z]*", type(reason).__name__)
    return {"kind": "_".join(words).lower(), **asdict(reason), "text": str(reason)}


def points(value: float) -> str:
    """Score units in points of 100."""
    return f"{100 * value:.3g} points"


def check_margin(margin: float) -> None:
    """Refuse a margin that is not in [0, 1]."""
    if not 0.0 <= margin <= 1.0:
        raise EvalkitError(f"margin {margin} must lie in [0, 1], in score units (0.01 = 1 point)")
