"""A schedule as recipes write it, and how its full layers select."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from evalkit.config.selection import SelectionConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import Strict
from evalkit.dsa import ReuseSchedule, ScheduleError
from evalkit.dsa.engine_config.export import from_freq
from evalkit.dsa.engine_config.versions import choose


class ScheduleConfig(Strict):
    """Which layers keep their indexer, how they select, and whose selection each layer reads.

    Give at most one of `retention`, `pattern`, `sources` and `freq`; with none of them the
    checkpoint's own schedule is meant (all full, unless it ships with shared layers).

    Attributes:
        retention: 1/n, full layers at ordinals 0, n, 2n …
        pattern: one letter per indexer-bearing layer, F or S.
        sources: σ itself, one ordinal per indexer-bearing layer.
        freq: `index_topk_freq` by the rule of the arm's engine; without one, by the rule that
            transformers, SGLang and vLLM share.
        offset: `index_skip_topk_offset` beside it; default: the engine's.
        lag: k, or one k per layer.
        lag_phase: where the lag acts.
        selection: how full layers select; default: as the checkpoint was trained.
        unset: fields that records leave out where they are not set: those of earlier versions stay
            as they were.
    """

    unset: ClassVar[frozenset[str]] = frozenset({"freq", "offset", "selection"})
    retention: str | float | None = None
    pattern: str | None = None
    sources: tuple[int, ...] | None = None
    freq: int | None = Field(default=None, ge=1)
    offset: int | None = None
    lag: int | tuple[int, ...] = 0
    lag_phase: Literal["decode", "all"] | None = None
    selection: SelectionConfig = None

    @property
    def title(self) -> str:
        """How messages call it."""
        return "arm"

    @model_validator(mode="after")
    def _one_schedule(self) -> Self:
        ways = ("retention", "pattern", "sources", "freq")
        given = [k for k in ways if getattr(self, k) is not None]
        if len(given) > 1:
            raise ValueError(f"{self.title}: give one of {' and '.join(given)}, not both")
        if self.offset is not None and self.freq is None:
            raise ValueError(f"{self.title}: an offset belongs to a frequency: give freq too")
        if self.sources is not None and self.lag != 0:
            raise ValueError(f"{self.title}: sources say everything, a lag cannot be added")
        return self

    @model_serializer(mode="wrap")
    def _without_unset(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        data: dict[str, object] = handler(self)
        return {k: v for k, v in data.items() if k not in self.unset or v is not None}

    @property
    def frequency_engine(self) -> str | None:
        """Whose rule `freq` follows; None: the one that most engines share."""
        return None

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
            if self.freq is not None:
                letters = self._frequency_pattern(native)
                return ReuseSchedule.from_pattern(letters, lag, layers=ids, lag_phase=phase)
            if self.sources is not None:
                phase = self.lag_phase or "all"
                return ReuseSchedule.from_sources(self.sources, layers=ids, lag_phase=phase)
            pattern = self.pattern if self.pattern is not None else native.pattern
            return ReuseSchedule.from_pattern(pattern, lag, layers=ids, lag_phase=phase)
        except ScheduleError as error:
            raise EvalkitError(f"{self.title}: {error}") from None

    def require_selectable(self, topk: int | None) -> None:
        """Refuse a selection that leaves fewer keys than `topk`, where it is known.

        Raises:
            EvalkitError: the message names arm and selection.
        """
        if self.selection is not None and topk is not None:
            problem = self.selection.problem(topk)
            if problem:
                raise EvalkitError(f"{self.title}: selection {self.selection.text}: {problem}")

    def _frequency_pattern(self, native: ReuseSchedule) -> str:
        everywhere = native.layer_ids == tuple(range(len(native)))
        engine = self.frequency_engine
        if engine is None and not everywhere:
            raise ScheduleError(
                "engines count frequencies differently over compressed-sparse layers: name"
                " server.engine, or write the pattern"
            )
        model_type = "" if everywhere else "deepseek_v4"
        row = choose(engine or "transformers", model_type=model_type).name
        return from_freq(native.layer_ids, self.freq or 1, engine=row, offset=self.offset).pattern
