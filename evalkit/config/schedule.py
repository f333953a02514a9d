"""A schedule as recipes write it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import Strict
from evalkit.dsa import ReuseSchedule, ScheduleError


class ScheduleConfig(Strict):
    """Which layers keep their indexer, and whose selection each layer reads.

    Give at most one of `retention`, `pattern` and `sources`; with none of them the checkpoint's own
    schedule is meant (all full, unless it ships with shared layers).

    Attributes:
        retention: 1/n, full layers at ordinals 0, n, 2n …
        pattern: one letter per indexer-bearing layer, F or S.
        sources: σ itself, one ordinal per indexer-bearing layer.
        lag: k, or one k per layer.
        lag_phase: where the lag acts.
    """

    retention: str | float | None = None
    pattern: str | None = None
    sources: tuple[int, ...] | None = None
    lag: int | tuple[int, ...] = 0
    lag_phase: Literal["decode", "all"] | None = None

    @property
    def title(self) -> str:
        """How messages call it."""
        return "arm"

    @model_validator(mode="after")
    def _one_schedule(self) -> Self:
        given = [k for k in ("retention", "pattern", "sources") if getattr(self, k) is not None]
        if len(given) > 1:
            raise ValueError(f"{self.title}: give one of {' and '.join(given)}, not both")
        if self.sources is not None and self.lag != 0:
            raise ValueError(f"{self.title}: sources say everything, a lag cannot be added")
        return self

    def schedule(self, native: ReuseSchedule) -> ReuseSchedule:
        """The schedule on a model whose own one is `native`.

        Raises:
            EvalkitError: it cannot be built for this model; the message names arm and layer.
        """
        ids, phase = native.layer_ids, self.lag_phase or "decode"
        lag = self.lag if isinstance(self.lag, int) else list(self.lag)
        try:
            if self.retention is not None:
                return ReuseSchedule.uniform(ids, self.retention, lag, lag_phase=phase)
            if self.sources is not None:
                phase = self.lag_phase or "all"
                return ReuseSchedule.from_sources(self.sources, layers=ids, lag_phase=phase)
            pattern = self.pattern if self.pattern is not None else native.pattern
            return ReuseSchedule.from_pattern(pattern, lag, layers=ids, lag_phase=phase)
        except ScheduleError as error:
            raise EvalkitError(f"{self.title}: {error}") from None
