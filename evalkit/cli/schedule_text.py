"""What `evalkit schedule` prints: a schedule in words, in an engine's settings, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.dsa import Layout, ReuseSchedule, ScheduleError
from evalkit.dsa.engine_config.dialects import DIALECTS
from evalkit.dsa.engine_config.export import dialect, export, read
from evalkit.dsa.engine_config.published_patterns import published, published_pattern
from evalkit.dsa.engine_config.released_models import known_config


def lines(
    target: str,
    retention: str | None,
    pattern: str | None,
    sources: str | None,
    lag: str,
    lag_phase: str,
) -> Iterator[str]:
    """What the command prints; arguments as `resolve`."""
    found, schedule = resolve(target, retention, pattern, sources, lag, lag_phase)
    yield f"model      {found.model_type}, {found.num_layers} layers"
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

    found = layout_of(target)
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
        return found, arm.schedule(found.native)
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
    if target.isdigit():
        count = int(target)
        if count < 1:
            raise EvalkitError("a model has at least one layer")
        return Layout("any model", count, tuple(range(count)), ReuseSchedule.uniform(count))
    from pathlib import Path

    from evalkit.core.model_info import model_config, resolve_model
    from evalkit.dsa import layout
    from evalkit.dsa.engine_config.released_models import known_config

    config = known_config(target) or model_config(resolve_model(target, Path())).to_dict()
    return layout(config)


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
        schedule: what shall run.
        engine: name in `evalkit.dsa.engine_config.dialects`.
        enabled: reuse switched on or off; None: on where the schedule is not the checkpoint's.
        stages: comma-separated first layers of the pipeline stages.

    Raises:
        ScheduleError: the engine cannot say it.
    """
    found = layout_of(target)
    if target.isdigit() and dialect(engine).space == "c4":
        raise EvalkitError(f"{engine} counts compressed-sparse layers: name a model, not a number")
    made = export(
        schedule,
        engine=engine,
        model="MODEL" if target.isdigit() else target,
        native=None if target.isdigit() else found.native,
        enabled=enabled,
        stages=_stages(stages),
    )
    yield f"engine     {DIALECTS[engine].title}"
    yield from describe(schedule)
    yield f"overrides  {made.json}"
    yield f"launch     {made.launch}"
    for note in made.notes:
        yield f"note       {note}"


def import_lines(target: str, engine: str, settings: str) -> Iterator[str]:
    """What an engine does with settings on top of a model's own configuration.

    Args:
        target: model directory, hub id, or number of indexer-bearing layers.
        engine: name in `evalkit.dsa.engine_config.dialects`.
        settings: JSON text, or a file that holds it.

    Raises:
        EvalkitError: not JSON.
        ScheduleError: the engine would refuse it.
    """
    found = layout_of(target)
    own = {} if target.isdigit() else own_settings(target)
    native = None if target.isdigit() else found.native
    overrides = json_settings(settings)
    reading = read(own | overrides, engine=engine, layers=found.layer_ids, native=native)
    yield f"engine     {DIALECTS[engine].title}"
    yield f"decided by {reading.decided_by}"
    yield from describe(reading.schedule)
    for warning in reading.warnings:
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


def json_settings(text: str) -> dict[str, Any]:
    """A JSON object, as text or as the name of a file.

    Raises:
        EvalkitError: neither.
    """
    try:
        path = Path(text)
        raw = text if text.lstrip().startswith("{") else path.read_text(encoding="utf-8")
        found = json.loads(raw)
    except (OSError, ValueError) as error:
        raise EvalkitError(f"settings {text[:60]}: neither JSON nor a JSON file: {error}") from None
    if not isinstance(found, dict):
        raise EvalkitError(f"settings {text[:60]}: not a JSON object")
    return found


def own_settings(model: str) -> dict[str, Any]:
    """The reuse fields of a checkpoint's config.json as it is written, nothing derived."""
    from evalkit.core.model_info import resolve_model

    known = known_config(model)
    if known is not None:
        return known
    name = resolve_model(model, Path())
    path = Path(name) / "config.json"
    if not path.is_file():
        from huggingface_hub import hf_hub_download

        try:
            path = Path(hf_hub_download(name, "config.json"))
        except (OSError, ValueError) as error:
            raise EvalkitError(f"model {name}: no config.json: {error}") from None
    config = json_settings(str(path))
    return dict(config.get("text_config") or config)


def _stages(text: str | None) -> Sequence[int]:
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise ScheduleError(f"stages {text}: write first layers with commas, 0,20,40") from None
