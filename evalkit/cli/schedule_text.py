"""Text of `evalkit schedule`: a schedule, an engine's settings for it, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.model_info import full_config, resolve_model, written_config
from evalkit.dsa import Layout, ReuseSchedule, ScheduleError, layout
from evalkit.dsa.engine_config.dialects import DIALECTS
from evalkit.dsa.engine_config.export import dialect, export, read
from evalkit.dsa.engine_config.import_keys import refuse_foreign_keys
from evalkit.dsa.engine_config.published_patterns import published, published_pattern
from evalkit.dsa.engine_config.released_models import known_config
from evalkit.dsa.engine_config.versions import choose
from evalkit.dsa.families.layer_rules import MOST_LAYERS
from evalkit.dsa.json_types import JsonObject


def lines(
    target: str,
    retention: str | None,
    pattern: str | None,
    sources: str | None,
    lag: str,
    lag_phase: str,
) -> Iterator[str]:
    """What the command prints; arguments as `resolve`."""
    places, schedule = resolve(target, retention, pattern, sources, lag, lag_phase)
    yield f"model      {places.model_type}, {places.num_layers} layers"
    yield from describe(schedule)
    yield ""
    yield "layer  kind    reads in prefill  reads in decode  read by (decode)"
    yield from _table(schedule)


def resolve(
    target: str,
    retention: str | None,
    pattern: str | None,
    sources: str | None,
    lag: str,
    lag_phase: str,
) -> tuple[Layout, ReuseSchedule]:
    """Layout of a target, and the schedule that the options ask for.

    Args:
        target: model directory, hub id, or number of indexer-bearing layers.
        retention: as `ReuseSchedule.uniform`; none of the next three: the model's own schedule.
        pattern: as `ReuseSchedule.from_pattern`.
        sources: comma-separated σ.
        lag: k, or comma-separated lags.
        lag_phase: ``decode`` or ``all``.

    Raises:
        EvalkitError: arguments that contradict each other or cannot be read.
        ScheduleError: the schedule cannot be.
    """
    from evalkit.config.arm import ArmConfig
    from evalkit.core.recipe import parse

    places = layout_of(target)
    arm = parse(
        {
            "name": target,
            "retention": retention,
            "pattern": pattern,
            "sources": _numbers("sources", sources) if sources else None,
            "lag": _numbers("lag", lag) if "," in lag else lag,
            "lag_phase": lag_phase if not sources or lag_phase == "all" else None,
        },
        ArmConfig,
        "schedule",
    )
    try:
        return places, arm.schedule(places.native)
    except EvalkitError as error:
        raise EvalkitError(str(error).removeprefix(f"arm {target}: ")) from None


def describe(schedule: ReuseSchedule) -> Iterator[str]:
    """Schedule, pattern, retention, lag and layer ids, one line each."""
    yield f"schedule   {schedule}"
    yield f"pattern    {schedule.pattern}"
    full = len(schedule.full_layers)
    yield f"retention  {schedule.retention} ({full} full, {len(schedule) - full} shared)"
    yield f"lag        {schedule.lag} ({schedule.lag_phase})"
    yield f"full ids   {_join(schedule.full_layer_ids)}"
    yield f"shared ids {_join(schedule.shared_layer_ids) or '–'}"


def _table(schedule: ReuseSchedule) -> Iterator[str]:
    ids = schedule.layer_ids
    prefill, decode = schedule.sources("prefill"), schedule.sources("decode")
    for i, full in enumerate(schedule.computes):
        readers = _join(tuple(ids[c] for c in schedule.consumers(i))) if full else ""
        kind = "full" if full else "shared"
        yield (
            f"{ids[i]:>5}  {kind:<6}  {ids[prefill[i]]:>16}  {ids[decode[i]]:>15}  {readers}"
        ).rstrip()


def layout_of(target: str) -> Layout:
    """Layout of a model directory, a hub id, or of any model with so many layers."""
    if target.isdecimal():
        count = int(target) if len(target) < 9 else 0
        if not 1 <= count <= MOST_LAYERS:
            raise EvalkitError(f"a model has 1 to {MOST_LAYERS} layers")
        return Layout("any model", count, tuple(range(count)), ReuseSchedule.uniform(count))
    model = _model(target)
    written = (Path(model) / "config.json").is_file()  # as written: no library has to know it
    return layout(written_config(model) if written else full_config(model))


def _model(target: str) -> str:
    """The hub id of a released model as it is, else as `resolve_model` finds it."""
    return target if known_config(target) is not None else resolve_model(target, Path())


def _numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise EvalkitError(f"--{name} {text}: write numbers with commas, 0,0,2,2") from None


def _join(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def export_lines(
    target: str,
    schedule: ReuseSchedule,
    engine: str,
    *,
    enabled: bool | None,
    stages: str | None,
) -> Iterator[str]:
    """Overrides, launch line and notes of a schedule.

    Args:
        target: model directory, hub id, or number of layers.
        schedule: to be run.
        engine: as `evalkit.dsa.engine_config.versions.choose`.
        enabled: reuse switched on or off; None: on where the schedule is not the checkpoint's.
        stages: comma-separated first layers of the pipeline stages.

    Raises:
        ScheduleError: the engine cannot express it.
    """
    any_model = target.isdecimal()
    places = layout_of(target)
    choice = choose(engine, model_type="" if any_model else places.model_type)
    if any_model and dialect(choice.name).space == "c4":
        raise EvalkitError(f"{engine} counts compressed-sparse layers: name a model, not a number")
    settings = export(
        schedule,
        engine=choice.name,
        model="MODEL" if any_model else target,
        native=None if any_model else places.native,
        config=None if any_model else written_config(_model(target)),
        enabled=enabled,
        stages=_stages(stages),
        model_type=places.model_type,
    )
    yield f"engine     {choice}"
    if choice.caution:
        yield f"caution    {choice.caution}"
    yield from describe(schedule)
    for name, value in settings.environment.items():
        yield f"environment {name}={value}"
    if not settings.environment:
        yield f"overrides  {settings.json}"
    yield f"launch     {settings.launch}"
    for note in settings.notes:
        yield f"note       {note}"


def import_lines(target: str, engine: str, settings: str) -> Iterator[str]:
    """What an engine does with settings on top of a model's own configuration.

    Args:
        target: model directory, hub id, or number of indexer-bearing layers.
        engine: as `evalkit.dsa.engine_config.versions.choose`.
        settings: JSON text, or a file that holds it.

    Raises:
        EvalkitError: not JSON.
        ScheduleError: the engine would refuse it, or does not read one of the keys.
    """
    any_model = target.isdecimal()
    places = layout_of(target)
    choice = choose(engine, model_type="" if any_model else places.model_type)
    config = {} if any_model else written_config(_model(target))
    overrides = json_settings(settings)
    refuse_foreign_keys(engine, DIALECTS[choice.name], overrides, config)
    effective = read(
        config,
        engine=choice.name,
        layers=places.layer_ids,
        native=None if any_model else places.native,
        overrides=overrides,
        model_type=places.model_type,
    )
    yield f"engine     {choice}"
    if choice.caution:
        yield f"caution    {choice.caution}"
    yield f"decided by {effective.decided_by}"
    yield from describe(effective.schedule)
    for warning in effective.warnings:
        yield f"warning    {warning}"


def published_lines() -> Iterator[str]:
    """Published patterns with their origin."""
    for entry in published().values():
        schedule = entry.schedule
        yield f"{entry.name}: {len(schedule.full_layers)} full of {len(schedule)}; {entry.model}"
        yield f"  {entry.pattern}"
        yield f"  {entry.origin}"
        if entry.caution:
            yield f"  caution: {entry.caution}"


def pattern_named(name: str | None, pattern: str | None) -> str | None:
    """The letters of a published pattern, or those given.

    Raises:
        EvalkitError: both were given.
    """
    if name is None:
        return pattern
    if pattern is not None:
        raise EvalkitError("give a pattern or a published one, not both")
    return published_pattern(name).pattern


def json_settings(text: str) -> JsonObject:
    """A JSON object, as text or as the name of a file.

    Raises:
        EvalkitError: neither.
    """
    try:
        inline = text.lstrip().startswith("{")
        settings = json.loads(text if inline else Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EvalkitError(f"settings {text[:60]}: neither JSON nor a JSON file: {error}") from None
    if not isinstance(settings, dict):
        raise EvalkitError(f"settings {text[:60]}: not a JSON object")
    return settings


def _stages(text: str | None) -> Sequence[int]:
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise ScheduleError(f"stages {text}: write first layers with commas, 0,20,40") from None
