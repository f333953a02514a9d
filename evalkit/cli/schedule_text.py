"""`evalkit schedule`: a schedule in words and numbers."""

from __future__ import annotations

from collections.abc import Iterator

from evalkit.core.errors import EvalkitError
from evalkit.dsa import Layout, ReuseSchedule


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
