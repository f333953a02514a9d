"""Translation of schedules into engine settings and back: exact, or refused by name.

`from_freq` and `from_pattern` give the layers that an engine really keeps for its settings; `read`
takes whole configurations; `export` writes the settings that make an engine run a schedule. What an
engine cannot express (a lag, a source per layer, a pattern where it knows frequencies only) raises
`ScheduleError`; nothing is approximated, and schedules are compared by layer ids, never by counts.
Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from evalkit.dsa.engine_config.dialect import Dialect
from evalkit.dsa.engine_config.dialects import DIALECTS
from evalkit.dsa.engine_config.launch import launch_line
from evalkit.dsa.engine_config.parse import (
    PLUGIN_FIELD,
    PLUGIN_VARIABLE,
    EffectiveSchedule,
    frequency_pattern,
    pattern_letters,
    read_settings,
)
from evalkit.dsa.engine_config.versions import choose
from evalkit.dsa.families.registry import FAMILIES
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.dsa.schedule import ReuseSchedule, ScheduleError
from evalkit.dsa.stages import check_cut

Layers = int | Sequence[int]


@dataclass(frozen=True, slots=True)
class Export:
    """Settings that make an engine run a schedule.

    Attributes:
        engine: name in `DIALECTS`.
        schedule: what will run.
        overrides: configuration fields; empty where the engine is to be left as it is (off).
        environment: variables that hand the schedule over in place of fields.
        launch: the command or code that hands them over.
        notes: what must be known beside it.
    """

    engine: str
    schedule: ReuseSchedule
    overrides: JsonObject
    launch: str
    notes: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def json(self) -> str:
        """The overrides as JSON."""
        return json.dumps(self.overrides)


def dialect(engine: str) -> Dialect:
    """The row of an engine: by its own name, or for a version (``sglang==0.5.19``).

    Raises:
        ScheduleError: unknown; the known ones are listed.
    """
    return DIALECTS[engine] if engine in DIALECTS else DIALECTS[choose(engine).name]


def from_freq(
    layers: Layers,
    freq: int,
    *,
    engine: str,
    offset: int | None = None,
    stages: Sequence[int] = (),
) -> ReuseSchedule:
    """The layers that an engine really keeps at a frequency.

    Args:
        layers: number or absolute ids of the layers that the engine counts: all backbone layers,
            for DeepSeek-V4 engines the compressed-sparse ones.
        freq: `index_topk_freq`.
        engine: name in `DIALECTS`.
        offset: `index_skip_topk_offset`; None: not set.
        stages: absolute id of the first layer of every pipeline stage.

    Raises:
        ScheduleError: the engine has no frequency, does not read an offset, or the result cannot
            run (its first layer would be shared).
    """
    row = dialect(engine)
    if offset is not None and row.offset_rule == "unread":
        raise ScheduleError(f"{engine} does not read an offset: leave it out")
    ids = tuple(range(layers)) if isinstance(layers, int) else tuple(layers)
    letters = frequency_pattern(engine, row, len(ids), freq, offset)
    return _staged(engine, row, ReuseSchedule.from_pattern(letters, layers=ids), stages)


def from_pattern(
    layers: Layers, pattern: str, *, engine: str, stages: Sequence[int] = ()
) -> ReuseSchedule:
    """The layers that an engine really keeps for a pattern, too short or too long included.

    Raises:
        ScheduleError: the engine refuses the pattern, or reads none.
    """
    row = dialect(engine)
    ids = tuple(range(layers)) if isinstance(layers, int) else tuple(layers)
    letters, _ = pattern_letters(engine, row, len(ids), pattern)
    schedule = ReuseSchedule.from_pattern(letters, layers=ids)
    if row.stages == "forced by frequency":
        refuse_stages(engine, row, schedule, stages)
    return _staged(engine, row, schedule, stages)


def read(
    settings: JsonObject,
    *,
    engine: str,
    layers: Layers,
    native: ReuseSchedule | None = None,
    overrides: JsonObject | None = None,
    model_type: str | None = None,
) -> EffectiveSchedule:
    """What an engine does with a configuration.

    Args:
        settings: the checkpoint's `config.json` as written.
        engine: name in `DIALECTS`.
        layers: as `from_freq`.
        native: schedule of the checkpoint, in force where the settings decide nothing.
        overrides: what the command line adds, in that engine's order; None: `settings` has them.
        model_type: of the checkpoint, where it is known.

    Raises:
        ScheduleError: the engine would refuse it, it is written in a way that means something
            else there (lower-case letters, a list of layer ids), or transformers reads the
            settings of this model type by other rules.
    """
    row = dialect(engine)
    _refuse_family(engine, row, model_type)
    note = (overrides or {}).get(PLUGIN_FIELD)
    if row.plugin and note is not None:
        return EffectiveSchedule(ReuseSchedule.parse(str(note)), PLUGIN_FIELD, ())
    return read_settings(engine, row, settings, layers, native, overrides)


def export(
    schedule: ReuseSchedule,
    *,
    engine: str,
    model: str = "MODEL",
    native: ReuseSchedule | None = None,
    config: JsonObject | None = None,
    enabled: bool | None = None,
    stages: Sequence[int] = (),
    model_type: str | None = None,
) -> Export:
    """The settings that make an engine run exactly this schedule.

    Args:
        schedule: over the indexer-bearing layers.
        engine: name in `DIALECTS`.
        model: checkpoint of the launch line.
        native: schedule of the checkpoint; default: all layers full.
        config: the checkpoint's config.json, on which the overrides are read back.
        enabled: whether reuse is switched on; None switches it on where the schedule is not the
            checkpoint's own. True with every layer full is frequency 1, another code path than off.
        stages: absolute id of the first layer of every pipeline stage.
        model_type: of the checkpoint, where it is known.

    Raises:
        ScheduleError: the engine cannot express it; the message names engine and reason.
    """
    row = dialect(engine)
    _refuse_family(engine, row, model_type)
    default = native or ReuseSchedule.from_pattern("F" * len(schedule), layers=schedule.layer_ids)
    _refuse(engine, row, schedule, default)
    refuse_stages(engine, row, schedule, stages)
    on = schedule != default if enabled is None else enabled
    if not on and schedule != default:
        raise ScheduleError(f"{engine}: reuse cannot be off: the schedule is not the checkpoint's")
    if row.plugin:
        environment = {PLUGIN_VARIABLE: str(schedule)} if on else {}
        launch = launch_line(row.launch, model, {}, environment=environment)
        notes = tuple(_notes(row, schedule, default, on))
        return Export(engine, schedule, {}, launch, notes, environment)
    overrides = _overrides(engine, row, schedule) if on else {}
    if row.overrides == "after class" and config:
        overrides = _without_types(engine, row, schedule, config, overrides)
    if overrides or config:  # read back as the engine reads it: the same layers, one by one
        ids = schedule.layer_ids
        again = read_settings(engine, row, config or {}, ids, native, overrides)
        if again.schedule != schedule:
            raise ScheduleError(
                f"{engine} would run {again.schedule}, not {schedule}: {again.decided_by} decides"
            )
    notes = tuple(_notes(row, schedule, default, on))
    return Export(engine, schedule, overrides, launch_line(row.launch, model, overrides), notes)


def engines_for(space: str) -> tuple[str, ...]:
    """Engines that settings can be written for, by the layers that they count."""
    return tuple(name for name, row in DIALECTS.items() if row.space == space and row.launch)


def _use(space: str) -> str:
    """Engines that can run reuse: releases first, the rest marked as what it is."""
    known = {name: DIALECTS[name] for name in engines_for(space)}
    rows = {name: row for name, row in known.items() if row.reads or row.plugin}
    released = [name for name, row in rows.items() if row.status == "released" and not row.until]
    rest = [name for name, row in rows.items() if row.status != "released"]
    unreleased = f"; unreleased: {', '.join(rest)}" if rest else ""
    return f"use {', '.join(released)}{unreleased}"


def _instead(row: Dialect) -> str:
    if row.family == "megatron":
        return " (the main branch has them: megatron==main)"
    return f" ({_use('c4')})" if "deepseek_v4" in row.models else ""


def refuse_stages(
    engine: str, row: Dialect, schedule: ReuseSchedule, stages: Sequence[int]
) -> None:
    """Raise where a pipeline stage would begin on a shared layer and the engine has no remedy."""
    if row.plugin and stages:
        for start, end in pairwise([*sorted(stages), schedule.layer_ids[-1] + 1]):
            check_cut(schedule, range(start, end))
    for layer in _shared_starts(schedule, stages):
        if row.stages in ("carried", "one process") or row.plugin:
            continue
        why = {
            "first full": "selections do not cross pipeline stages",
            "forced full": "it would run that layer full",
            "forced by frequency": "it would refuse the pattern, or run that layer full",
            "unknown": "nothing is known about pipeline stages there",
        }[row.stages]
        raise ScheduleError(f"{engine}: a pipeline stage begins on shared layer {layer}, and {why}")


def _shared_starts(schedule: ReuseSchedule, stages: Sequence[int]) -> Iterator[int]:
    """Absolute ids of stages' first indexer-bearing layers that are shared."""
    for start, end in pairwise([*sorted(stages), schedule.layer_ids[-1] + 1]):
        inside = [i for i, layer in enumerate(schedule.layer_ids) if start <= layer < end]
        if inside and not schedule.computes[inside[0]]:
            yield schedule.layer_ids[inside[0]]


def _staged(
    engine: str, row: Dialect, schedule: ReuseSchedule, stages: Sequence[int]
) -> ReuseSchedule:
    """The schedule as it runs over pipeline stages; some engines make their first layers full."""
    if not row.stages.startswith("forced"):
        refuse_stages(engine, row, schedule, stages)
        return schedule
    forced = set(_shared_starts(schedule, stages))
    letters = "".join(
        "F" if layer in forced else letter
        for layer, letter in zip(schedule.layer_ids, schedule.pattern, strict=True)
    )
    return ReuseSchedule.from_pattern(letters, layers=schedule.layer_ids)


def _refuse_family(engine: str, row: Dialect, model_type: str | None) -> None:
    """Raise where transformers reads the settings of a model type by other rules than `engine`."""
    family = FAMILIES.get(model_type or "")
    if family is not None and row.launch == "transformers" and engine != family.dialect:
        reads = f"reads the settings of {model_type} by other rules: use {family.dialect}"
        problem = reads if family.dialect else f"has no model type {model_type}"
        raise ScheduleError(f"{engine}: transformers {problem}")


def _refuse(engine: str, row: Dialect, schedule: ReuseSchedule, native: ReuseSchedule) -> None:
    """Raise where an engine cannot run a schedule, whatever its settings."""
    if schedule.source != schedule.nearest and not row.plugin:
        lag = schedule.lag
        what = f"a lag (k = {lag})" if isinstance(lag, int) else "a source per layer"
        raise ScheduleError(
            f"{engine} cannot express {what}: shared layers read the nearest full layer before them"
            " (vllm-plugin can)"
        )
    if not row.reads and not row.plugin and schedule != native:
        raise ScheduleError(f"{engine} cannot express reuse: {row.title}{_instead(row)}")
    if row.space == "layers" and not schedule.every_layer:
        raise ScheduleError(
            f"{engine} counts all layers, this schedule the compressed-sparse ones ({_use('c4')})"
        )
    if row.space == "c4" and schedule.every_layer:
        raise ScheduleError(
            f"{engine} counts compressed-sparse layers, this schedule all layers ({_use('layers')})"
        )
    if native.layer_ids != schedule.layer_ids:
        raise ScheduleError("the schedule counts other layers than the checkpoint")
    schedule.require_indexers(native)
    if row.launch is None:
        raise ScheduleError(f"{engine}: its settings can be imported, not exported ({row.title})")


def _overrides(engine: str, row: Dialect, schedule: ReuseSchedule) -> dict[str, JsonValue]:
    gate: dict[str, JsonValue] = {} if row.gate == "none" else {"use_index_cache": True}
    if not row.reads:
        raise ScheduleError(f"{engine} has no reuse that could be switched on: {row.title}")
    if all(schedule.computes) and "freq" in row.reads and not row.fixed_freq and row.freq_known:
        return {**gate, row.names[0]: 1}
    fields: dict[str, JsonValue] = {}
    if "pattern" in row.reads:
        fields["index_topk_pattern"] = schedule.pattern
    if row.reads[0] == "types":
        fields["indexer_types"] = ["full" if full else "shared" for full in schedule.computes]
    return {**gate, **(fields or _as_frequency(engine, row, schedule))}


def _without_types(
    engine: str,
    row: Dialect,
    schedule: ReuseSchedule,
    config: JsonObject,
    overrides: dict[str, JsonValue],
) -> dict[str, JsonValue]:
    """The pattern alone, where it says everything: a start line that can be read."""
    short = {key: value for key, value in overrides.items() if key != "indexer_types"}
    if short == overrides or "index_topk_pattern" not in short:
        return overrides
    ids = schedule.layer_ids
    again = read_settings(engine, row, config, ids, None, short)
    return short if again.schedule == schedule else overrides


def _as_frequency(engine: str, row: Dialect, schedule: ReuseSchedule) -> dict[str, JsonValue]:
    """Frequency and offset that keep exactly these layers: shift + 1 full ones, then a period."""
    shift = schedule.pattern.index("S") - 1
    following = schedule.pattern.find("F", shift + 1)
    freq = (following if following > 0 else len(schedule)) - shift
    if frequency_pattern(engine, row, len(schedule), freq, shift + 1) != schedule.pattern:
        raise ScheduleError(
            f"{engine} knows frequencies only, and none keeps exactly layers"
            f" {', '.join(map(str, schedule.full_layer_ids))}"
        )
    return {row.names[0]: freq, row.names[1]: shift + 1}


def _notes(row: Dialect, schedule: ReuseSchedule, native: ReuseSchedule, on: bool) -> Iterator[str]:
    if not on:
        yield "nothing is set: the checkpoint's own schedule, reuse settings off"
    elif all(schedule.computes):
        yield "every layer full with reuse switched on (frequency 1) is another code path than off"
    if not all(native.computes):
        yield f"the baseline of this checkpoint is its own schedule {native.pattern}"
    if row.status != "released":
        what = "a pull request or fork" if row.status == "unreleased" else "the main branch"
        yield f"not in a release: {what}"
    if on and row.plugin:
        yield "for quality, not speed; pip install the plugin beside vLLM (docs/serving.md)"
    if on and row.gate == "documented":
        yield "its documentation asks for use_index_cache; the code read here does not test it"
    yield f"MTP layers: {row.mtp}"
    yield f"indexer of a shared layer: {row.shared_indexer}"
