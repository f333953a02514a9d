"""`evalkit schedule export` and `import`: a schedule in an engine's language, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evalkit.cli.schedule_text import describe, layout_of
from evalkit.core.errors import EvalkitError
from evalkit.dsa import ReuseSchedule, ScheduleError
from evalkit.dsa.engine_config.dialects import DIALECTS
from evalkit.dsa.engine_config.export import dialect, export, read
from evalkit.dsa.engine_config.published_patterns import published, published_pattern
from evalkit.dsa.engine_config.released_models import known_config


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
