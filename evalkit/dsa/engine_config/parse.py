"""Which layers an engine keeps for its settings: frequency rules, patterns, configurations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evalkit.dsa.config_fields import entries, integer, text_config
from evalkit.dsa.engine_config.dialects import Dialect, Source
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.dsa.schedule import ReuseSchedule, ScheduleError

_SOURCES: tuple[Source, ...] = ("types", "pattern", "freq")


@dataclass(frozen=True, slots=True)
class EffectiveSchedule:
    """The schedule that an engine runs for a configuration.

    Attributes:
        schedule: the layers that really run.
        decided_by: the field that decided, or what was in force without one.
        warnings: where the engine is lenient, or ignores what was set.
    """

    schedule: ReuseSchedule
    decided_by: str
    warnings: tuple[str, ...]


def frequency_pattern(engine: str, row: Dialect, count: int, freq: int, offset: int | None) -> str:
    """F/S letters of a frequency rule; refused where the engine has none or cannot run it."""
    if "freq" not in row.reads:
        raise ScheduleError(f"{engine} has no frequency rule: {row.title}")
    if not row.freq_known:
        raise ScheduleError(f"{engine}: its frequency rule is not known here, write a pattern")
    if freq < 1:
        raise ScheduleError(f"{engine}: frequency {freq} must be 1 or more")
    if row.fixed_freq not in (None, freq):
        raise ScheduleError(f"{engine}: its frequency is built in ({row.fixed_freq})")
    if offset is not None and row.least_offset is not None and offset < row.least_offset:
        raise ScheduleError(f"{engine}: offset {offset} must be {row.least_offset} or more")
    shift = row.shift(offset)
    letters = "".join("F" if max(i - shift, 0) % freq == 0 else "S" for i in range(count))
    if letters.startswith("S"):
        used = row.offset if offset is None else offset
        raise ScheduleError(
            f"{engine}: frequency {freq} at offset {used} shares layer 0, which has no source"
            f" (it would run {letters[:8]}…)"
        )
    return letters


def pattern_letters(
    engine: str, row: Dialect, count: int, pattern: object
) -> tuple[str, tuple[str, ...]]:
    """The letters in force for a pattern, one per layer, with warnings where length is off."""
    if not isinstance(pattern, str):
        raise ScheduleError(
            f"{engine}: index_topk_pattern {pattern!r} is not F/S text; a list of layer ids is"
            " TensorRT-LLM's own form: write letters"
        )
    if "pattern" not in row.reads and row.reads:
        raise ScheduleError(f"{engine} reads no pattern: {row.title}")
    for i, letter in enumerate(pattern):
        if letter not in "FS":
            raise ScheduleError(
                f"{engine}: pattern letter {letter!r} at layer {i}: use F or S (most engines take"
                " every other letter, lower case too, for a full layer)"
            )
    if not pattern.startswith("F"):
        early = "refused at once" if row.checks_first else "it fails, or reads stale positions"
        raise ScheduleError(f"{engine}: the pattern does not begin with F ({early})")
    return _fit(engine, row, count, pattern)


def _fit(engine: str, row: Dialect, count: int, pattern: str) -> tuple[str, tuple[str, ...]]:
    if len(pattern) == count:
        return pattern, ()
    size = f"{len(pattern)} letters for {count} layers"
    if row.short == "exact":
        raise ScheduleError(f"{engine}: {size}: the length must match")
    if len(pattern) > count:
        return pattern[:count], (f"{size}: the last {len(pattern) - count} are ignored",)
    if row.short == "error":
        raise ScheduleError(f"{engine}: {size}: too short, nothing for layer {len(pattern)}")
    return pattern.ljust(count, "F"), (f"{size}: layers from {len(pattern)} on are full",)


def read_settings(
    engine: str,
    row: Dialect,
    settings: JsonObject,
    layers: int | Sequence[int],
    native: ReuseSchedule | None,
) -> EffectiveSchedule:
    """See `evalkit.dsa.engine_config.export.read`."""
    ids = tuple(range(layers)) if isinstance(layers, int) else tuple(layers)
    settings = text_config(settings)
    default = native or ReuseSchedule.from_pattern("F" * len(ids), layers=ids)
    present = [source for source in _SOURCES if settings.get(_field(row, source)) is not None]
    if not row.reads:
        ignored = [f"{_field(row, source)} is ignored: {row.title}" for source in present]
        return EffectiveSchedule(default, "the checkpoint", tuple(ignored))
    enabled = bool(settings.get("use_index_cache"))
    if row.gate == "required" and not enabled and "types" not in present:
        ignored = [f"{_field(row, s)} is ignored: use_index_cache is not set" for s in present]
        return EffectiveSchedule(default, "use_index_cache is off", tuple(ignored))
    warnings: tuple[str, ...] = ()
    if row.gate == "documented" and present and not enabled:
        warnings = ("use_index_cache is not set; the documentation asks for it",)
    source = next((source for source in row.reads if source in present), None)
    if source is not None:
        letters, more = _letters(engine, row, len(ids), source, settings)
        schedule = ReuseSchedule.from_pattern(letters, layers=ids)
        return EffectiveSchedule(schedule, _field(row, source), (*warnings, *more))
    if row.fixed_freq and native is None:
        letters = frequency_pattern(engine, row, len(ids), row.fixed_freq, None)
        return EffectiveSchedule(ReuseSchedule.from_pattern(letters, layers=ids), "built in", ())
    return EffectiveSchedule(default, "the checkpoint", warnings)


def _letters(
    engine: str, row: Dialect, count: int, source: Source, settings: JsonObject
) -> tuple[str, tuple[str, ...]]:
    """F/S letters by one field, and warnings."""
    if source == "pattern":
        return pattern_letters(engine, row, count, settings[_field(row, source)])
    if source == "types":
        types = entries(settings, _field(row, source))
        return _fit(engine, row, count, "".join(_letter(engine, kind) for kind in types))
    frequency, offset = (integer(settings, name) for name in row.names)
    if offset is None or row.offset_rule == "unread":
        warnings = (f"{row.names[1]} {offset} is not read by {engine}",) if offset else ()
        return frequency_pattern(engine, row, count, frequency or 0, None), warnings
    return frequency_pattern(engine, row, count, frequency or 0, offset), ()


def _letter(engine: str, kind: JsonValue) -> str:
    if kind not in ("full", "shared"):
        raise ScheduleError(f"{engine}: indexer type {kind!r}: use full or shared")
    return "F" if kind == "full" else "S"


def _field(row: Dialect, source: Source) -> str:
    if source == "types":
        return "indexer_types"
    return "index_topk_pattern" if source == "pattern" else row.names[0]
