"""Which layers an engine keeps for its settings: frequency rules, patterns, configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalkit.dsa.engine_config.dialects import Dialect, Source
from evalkit.dsa.schedule import ReuseSchedule, ScheduleError

_SOURCES: tuple[Source, ...] = ("types", "pattern", "freq")
_LETTER = {"full": "F", "shared": "S"}


@dataclass(frozen=True, slots=True)
class Reading:
    """What an engine does with a configuration.

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
    settings: Mapping[str, Any],
    layers: int | Sequence[int],
    native: ReuseSchedule | None,
) -> Reading:
    """See `evalkit.dsa.engine_config.export.read`."""
    ids = tuple(range(layers)) if isinstance(layers, int) else tuple(layers)
    settings = settings.get("text_config") or settings
    own = native or ReuseSchedule.from_pattern("F" * len(ids), layers=ids)
    given: dict[Source, Any] = {s: settings.get(_field(row, s)) for s in _SOURCES}
    set_here = [_field(row, source) for source, value in given.items() if value is not None]
    if not row.reads:
        ignored = [f"{field} is ignored: {row.title}" for field in set_here]
        return Reading(own, "the checkpoint", tuple(ignored))
    if row.gate == "required" and not settings.get("use_index_cache") and given["types"] is None:
        off = [f"{field} is ignored: use_index_cache is not set" for field in set_here]
        return Reading(own, "use_index_cache is off", tuple(off))
    warnings: list[str] = []
    if row.gate == "documented" and set_here and not settings.get("use_index_cache"):
        warnings.append("use_index_cache is not set; the documentation asks for it")
    for source in row.reads:
        if given[source] is not None:
            letters, more = _letters(engine, row, len(ids), source, given[source], settings)
            schedule = ReuseSchedule.from_pattern(letters, layers=ids)
            return Reading(schedule, _field(row, source), (*warnings, *more))
    if row.fixed_freq and native is None:
        letters = frequency_pattern(engine, row, len(ids), row.fixed_freq, None)
        return Reading(ReuseSchedule.from_pattern(letters, layers=ids), "built in", ())
    return Reading(own, "the checkpoint", tuple(warnings))


def _letters(
    engine: str,
    row: Dialect,
    count: int,
    source: Source,
    value: Any,
    settings: Mapping[str, Any],
) -> tuple[str, tuple[str, ...]]:
    if source == "pattern":
        return pattern_letters(engine, row, count, value)
    if source == "types":
        unknown = next((t for t in value if t not in _LETTER), None)
        if unknown is not None:
            raise ScheduleError(f"{engine}: indexer type {unknown!r}: use full or shared")
        return _fit(engine, row, count, "".join(_LETTER[t] for t in value))
    offset = settings.get(row.names[1])
    if offset is None or row.offset_rule == "unread":
        warning = (f"{row.names[1]} {offset} is not read by {engine}",) if offset else ()
        return frequency_pattern(engine, row, count, int(value), None), warning
    return frequency_pattern(engine, row, count, int(value), int(offset)), ()


def _field(row: Dialect, source: Source) -> str:
    if source == "types":
        return "indexer_types"
    return "index_topk_pattern" if source == "pattern" else row.names[0]
