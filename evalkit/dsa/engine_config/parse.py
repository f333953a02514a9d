"""Which layers an engine keeps for its settings: frequency rules, patterns, configurations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evalkit.dsa.engine_config.config_class import in_force
from evalkit.dsa.engine_config.dialect import Dialect, Source
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.dsa.schedule import ReuseSchedule, ScheduleError

_SOURCES: tuple[Source, ...] = ("types", "cli", "pattern", "freq")
PLUGIN_FIELD = "evalkit_schedule"  # where the plugin notes its schedule in the server's settings
PLUGIN_VARIABLE = "EVALKIT_SCHEDULE"


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
    overrides: JsonObject | None = None,
) -> EffectiveSchedule:
    """See `evalkit.dsa.engine_config.export.read`."""
    ids = tuple(range(layers)) if isinstance(layers, int) else tuple(layers)
    full = ReuseSchedule.from_pattern("F" * len(ids), layers=ids)
    fields, filled_by = in_force(engine, row, settings, overrides, len(ids))
    values: dict[Source, JsonValue] = {s: fields.get(field_name(row, s)) for s in _SOURCES}
    if filled_by and "types" not in row.reads:
        values["types"] = None
    present = [field_name(row, source) for source, value in values.items() if value is not None]
    if not row.reads:
        ignored = [f"{field} is ignored: {row.title}" for field in present]
        return EffectiveSchedule(native or full, "the checkpoint", tuple(ignored))
    if row.gate == "required" and not fields.get("use_index_cache") and values["types"] is None:
        ignored = [f"{field} is ignored: use_index_cache is not set" for field in present]
        return EffectiveSchedule(native or full, "use_index_cache is off", tuple(ignored))
    warnings: list[str] = []
    if row.gate == "documented" and present and not fields.get("use_index_cache"):
        warnings.append("use_index_cache is not set; the documentation asks for it")
    for source in row.reads:
        value = values[source]
        if value is None or (source == "cli" and _whole(value, "cli_factor") == 1):
            continue
        letters, more = _letters(engine, row, len(ids), source, value, fields)
        schedule = ReuseSchedule.from_pattern(letters, layers=ids)
        decided_by = field_name(row, source)
        warnings += [*more, *_overruled(engine, row, schedule, source, overrides or {})]
        if source == "types" and filled_by:
            decided_by = f"{decided_by}, filled by {filled_by} from config.json"
        return EffectiveSchedule(schedule, decided_by, (*warnings, *_lacking(schedule, native)))
    if row.fixed_freq and native is None:
        letters = frequency_pattern(engine, row, len(ids), row.fixed_freq, None)
        return EffectiveSchedule(ReuseSchedule.from_pattern(letters, layers=ids), "built in", ())
    if row.overrides == "after class" and fields.get("model_type"):
        return EffectiveSchedule(full, "its default", (*warnings, *_lacking(full, native)))
    return EffectiveSchedule(native or full, "the checkpoint", tuple(warnings))


def _overruled(
    engine: str,
    row: Dialect,
    schedule: ReuseSchedule,
    source: Source,
    overrides: JsonObject,
) -> Iterator[str]:
    """Overrides that are read and do not act, since another field goes before them."""
    for other in row.reads[row.reads.index(source) + 1 :]:
        name = field_name(row, other)
        value = overrides.get(name)
        if value is None:
            continue
        try:
            letters, _ = _letters(engine, row, len(schedule), other, value, overrides)
        except ScheduleError:
            letters = ""
        if letters != schedule.pattern:
            yield f"{name} is set and does not act: {field_name(row, source)} goes before it"


def _lacking(schedule: ReuseSchedule, native: ReuseSchedule | None) -> Iterator[str]:
    if native is None or native.layer_ids != schedule.layer_ids:
        return
    ids = [str(schedule.layer_ids[i]) for i in schedule.full_layers if not native.computes[i]]
    if ids:
        more = " …" if len(ids) > 6 else ""
        yield f"layers {', '.join(ids[:6])}{more} run full and have no indexer in this checkpoint"


def _letters(
    engine: str,
    row: Dialect,
    count: int,
    source: Source,
    value: JsonValue,
    fields: JsonObject,
) -> tuple[str, tuple[str, ...]]:
    if source == "pattern":
        return pattern_letters(engine, row, count, value)
    if source == "types":
        return _type_letters(engine, row, count, value)
    if source == "cli":
        factor = _whole(value, "cli_factor")
        if factor < 1:
            raise ScheduleError(f"{engine}: cli_factor {factor} must be 1 or more")
        return "".join("F" if i % factor == 0 else "S" for i in range(count)), ()
    offset = fields.get(row.names[1])
    freq = _whole(value, row.names[0])
    if offset is None or row.offset_rule == "unread":
        warning = (f"{row.names[1]} {offset} is not read by {engine}",) if offset else ()
        return frequency_pattern(engine, row, count, freq, None), warning
    return frequency_pattern(engine, row, count, freq, _whole(offset, row.names[1])), ()


def _type_letters(
    engine: str, row: Dialect, count: int, value: JsonValue
) -> tuple[str, tuple[str, ...]]:
    if not isinstance(value, list | tuple):
        raise ScheduleError(f"{engine}: indexer_types {value!r} is not a list of full and shared")
    unknown = next((t for t in value if t not in ("full", "shared")), None)
    if unknown is not None:
        raise ScheduleError(f"{engine}: indexer type {unknown!r}: use full or shared")
    letters = "".join("F" if t == "full" else "S" for t in value)
    if letters.startswith("S"):
        raise ScheduleError(f"{engine}: indexer_types does not begin with full")
    if row.types_exact and len(letters) != count:
        raise ScheduleError(
            f"{engine}: {len(letters)} indexer types for {count} layers: the length must match"
        )
    return _fit(engine, row, count, letters)


def _whole(value: JsonValue, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScheduleError(f"{name} {value!r} is not a whole number")
    return value


def field_name(row: Dialect, source: Source) -> str:
    """Configuration field of a source, as the engine spells it."""
    names = {"types": "indexer_types", "cli": "cli_factor", "pattern": "index_topk_pattern"}
    return names.get(source, row.names[0])
