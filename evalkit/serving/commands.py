"""What `evalkit check` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalkit.config import ArmConfig, RunConfig, resolve_model
from evalkit.engines.keys import read_key
from evalkit.engines.openai_server import OpenAIServerEngine
from evalkit.recipe import load
from evalkit.server_config import OpenAIServerConfig, ServerConfig
from evalkit.serving.check import check_arm, read_server
from evalkit.serving.findings import NOT_ENGAGED, Check
from evalkit.serving.reports import Report
from evalkit.store import RunStore
from evalkit.types import EvalkitError

_SIGNS = {True: "+", False: "-", None: "?"}


def check_lines(
    url: str, recipe: Path | None, arm: str | None, out: Path | None, log: str | None
) -> Iterator[str]:
    """The report of a server, or the whole check of an arm.

    Args:
        url: of the server.
        recipe: with the arm; None: only what the server says.
        arm: name.
        out: run directory whose arms the probe is compared with; default: the recipe's.
        log: log of the server, instead of the recipe's.

    Raises:
        EvalkitError: no such arm, no answer, or the arm is not engaged.
    """
    if recipe is None:
        yield from _report_lines(read_server(url, read_key(None, None)))
        return
    config = load(recipe, RunConfig)
    chosen = _arm(config, arm)
    server = (chosen.server or ServerConfig()).model_copy(
        update={"urls": (url,)} | ({"log": log} if log else {})
    )
    engine = OpenAIServerEngine(_engine_config(config))
    base_dir = recipe.resolve().parent
    engine.load(resolve_model(chosen.model or config.model or "", base_dir))
    native = engine.native()
    schedule = None if native is None else chosen.schedule(native)
    found = check_arm(
        engine,
        chosen.model_copy(update={"server": server}),
        schedule,
        _entries(out or Path("runs") / recipe.stem),
    )
    yield from _check_lines(found)
    if found.verdict == NOT_ENGAGED:
        start = f"; start it as: {found.launch}" if found.launch else ""
        raise EvalkitError(f"arm {chosen.name}: not engaged: {found.reason}{start}")


def _report_lines(report: Report) -> Iterator[str]:
    yield f"server     {report.kind} {report.version}".rstrip()
    yield f"models     {', '.join(report.models) or 'none'}"
    yield f"overrides  {'not told' if report.overrides is None else dict(report.overrides)}"
    for name, value in report.settings.items():
        yield f"           {name} = {value}"


def _check_lines(found: Check) -> Iterator[str]:
    for finding in found.findings:
        mark = _SIGNS[finding.holds]
        yield f"{mark} {finding.what:<10} {finding.text}{' (proof)' if finding.proof else ''}"
    if found.launch:
        yield f"launch     {found.launch}"
    yield f"verdict    {found.verdict}: {found.reason}"


def _arm(config: RunConfig, name: str | None) -> ArmConfig:
    for arm in config.arms:
        if arm.name == name or (name is None and len(config.arms) == 1):
            return arm
    names = ", ".join(arm.name for arm in config.arms)
    raise EvalkitError(f"--arm {name}: no such arm ({names})")


def _engine_config(config: RunConfig) -> OpenAIServerConfig:
    return config.engine if isinstance(config.engine, OpenAIServerConfig) else OpenAIServerConfig()


def _entries(directory: Path) -> Sequence[Mapping[str, Any]]:
    store = RunStore(directory)
    return list(store.read_run()["arms"]) if store.exists else []
