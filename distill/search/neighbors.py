"""Neighbourhood of a schedule for greedy search. No torch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from distill.errors import DistillError
from evalkit.dsa import LagPhase, ReuseSchedule
from evalkit.dsa.schedule import parse_retention


@dataclass(frozen=True, slots=True)
class Neighbors:
    """The schedules that differ from a given one by one change.

    Attributes:
        kind: ``pattern``: a full layer becomes shared; ``lag``: a layer's k rises by one.
        pinned: ordinals that stay full.
        max_lag: largest k.
        lag_phase: where lags act.
    """

    kind: Literal["pattern", "lag"]
    pinned: frozenset[int]
    max_lag: int = 1
    lag_phase: LagPhase = "decode"

    def candidates(
        self, schedule: ReuseSchedule, among: Collection[int] | None = None
    ) -> list[int]:
        """Ordinals that can be changed, of all or of some; a change without effect is none."""
        ordinals = []
        for ordinal in range(len(schedule)) if among is None else sorted(among):
            if self.kind == "pattern":
                possible = schedule.computes[ordinal] and ordinal not in self.pinned
            else:
                now = schedule.lags[ordinal]
                possible = now < self.max_lag and self.apply(schedule, ordinal).lags[ordinal] > now
            if possible:
                ordinals.append(ordinal)
        return ordinals

    def apply(self, schedule: ReuseSchedule, ordinal: int) -> ReuseSchedule:
        """The schedule after a change."""
        letters, lag = list(schedule.pattern), schedule.lag
        if self.kind == "pattern":
            letters[ordinal] = "S"
        else:
            lag = tuple(k + (i == ordinal) for i, k in enumerate(schedule.lags))
        return ReuseSchedule.from_pattern(
            "".join(letters), lag, layers=schedule.layer_ids, lag_phase=self.lag_phase
        )


def blocks(layer_ids: Sequence[int], stages: Sequence[int]) -> list[list[int]]:
    """Ordinals of every pipeline stage that has an indexer.

    Raises:
        DistillError: the stages do not begin with layer 0 in rising order.
    """
    if not stages:
        return [list(range(len(layer_ids)))]
    if list(stages) != sorted(set(stages)) or stages[0] != 0:
        raise DistillError(f"stages {list(stages)}: name first layers in rising order, from 0")
    ends = [*stages[1:], layer_ids[-1] + 1]
    by_stage = [
        [i for i, layer in enumerate(layer_ids) if start <= layer < end]
        for start, end in zip(stages, ends, strict=True)
    ]
    return [block for block in by_stage if block]


def full_layers_at(retention: str | float, count: int) -> int:
    """Full layers at a retention, at least one.

    Raises:
        ScheduleError: not above 0 and at most 1.
    """
    share = parse_retention(retention)
    return max(1, -(-count * share.numerator // share.denominator))


def evaluations(candidates: int, flips: int, pinned: int = 0) -> int:
    """Evaluations of the whole greedy search: Σ over flips of the candidates still there."""
    return sum(max(0, candidates - pinned - flip) for flip in range(flips))
