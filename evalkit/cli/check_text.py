"""Text of `evalkit check`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evalkit.config.arm import ArmConfig
from evalkit.config.run import RunConfig
from evalkit.config.server import OpenAIServerConfig, ServerConfig, check_urls
from evalkit.core.errors import EvalkitError
from evalkit.core.model_info import model_layout, resolve_model
from evalkit.core.recipe import load
from evalkit.core.secrets import learn
from evalkit.dsa.json_types import as_object
from evalkit.engagement.check import check_arm, launch_of
from evalkit.engagement.evidence import CheckedArm, checked_arms, dialect_of
from evalkit.engagement.findings import NOT_ENGAGED, ArmCheck
from evalkit.engagement.server_info import ServerInfo, read_server
from evalkit.engines.openai.api_keys import read_key
from evalkit.engines.openai.engine import OpenAIServerEngine
from evalkit.run.store import RunStore

_UNSEEN = "what environment variables told the server: start all arms with the same"
_SIGNS = {True: "+", False: "-", None: "?"}


def check_lines(
    url: str | None, recipe: Path | None, arm: str | None, out: Path | None, log: str | None
) -> Iterator[str]:
    """The report of a server, the whole check of an arm, or how its server is started.

    Args:
        url: of the server; None: only the start lines of the recipe's arms.
        recipe: with the arm; None: only what the server says.
        arm: name.
        out: run directory whose arms the probe is compared with; default: the recipe's.
        log: log of the server, instead of the recipe's.

    Raises:
        EvalkitError: no such arm, no answer, or the arm is not engaged.
    """
    if url is None:
        if recipe is None:
            raise EvalkitError("give the URL of a server, or --recipe to see how to start one")
        yield from _start_lines(recipe, arm)
        return
    _refuse_address(url)
    if recipe is None:
        yield from _server_lines(read_server(url, read_key(None, None)))
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
    result = check_arm(
        engine,
        chosen.model_copy(update={"server": server}),
        schedule,
        _probed(out or Path("runs") / recipe.stem),
    )
    yield from _check_lines(result)
    if result.verdict == NOT_ENGAGED:
        raise EvalkitError(f"arm {chosen.name}: not engaged: {result.reason}{result.start_hint}")


def _refuse_address(url: str) -> None:
    try:
        check_urls((url,))
    except ValueError as error:
        raise EvalkitError(str(error)) from None
    learn(url)


def _start_lines(recipe: Path, name: str | None) -> Iterator[str]:
    """The start line of every arm (or of one), without a server and without a download."""
    config = load(recipe, RunConfig)
    for arm in config.arms if name is None else [_arm(config, name)]:
        model = resolve_model(arm.model or config.model or "", recipe.resolve().parent)
        layout = model_layout(model)
        if layout is None:
            raise EvalkitError(f"arm {arm.name}: {model} has no lightning indexer")
        schedule = arm.schedule(layout.native)
        line = launch_of(arm, schedule, layout, model)
        choice = dialect_of(arm, ServerInfo("", "unknown"), schedule, layout.model_type)
        label = f"; {choice.label} ({choice.origin})" if choice and choice.version else ""
        yield f"# {arm.name}: {len(schedule.full_layers)} of {len(schedule)} full{label}"
        yield line or "# server.engine is not set: the dialect of its settings is not known"


def _server_lines(info: ServerInfo) -> Iterator[str]:
    yield f"server     {info.kind} {info.version}".rstrip()
    yield f"models     {', '.join(info.models) or 'none'}"
    told = info.facts()
    yield f"overrides  {'not told' if told['overrides'] is None else told['overrides']}"
    for name, value in as_object(told["settings"]).items():
        yield f"           {name} = {value}"
    yield f"not seen   {_UNSEEN}"


def _check_lines(check: ArmCheck) -> Iterator[str]:
    for finding in check.findings:
        mark = _SIGNS[finding.holds]
        yield f"{mark} {finding.what:<10} {finding.text}{' (proof)' if finding.proof else ''}"
    if check.launch:
        yield f"launch     {check.launch}"
    if check.servers:
        yield f"not seen   {_UNSEEN}"
    yield f"verdict    {check.verdict}: {check.reason}"


def _arm(config: RunConfig, name: str | None) -> ArmConfig:
    for arm in config.arms:
        if arm.name == name or (name is None and len(config.arms) == 1):
            return arm
    names = ", ".join(arm.name for arm in config.arms)
    raise EvalkitError(f"--arm {name}: no such arm ({names})")


def _engine_config(config: RunConfig) -> OpenAIServerConfig:
    return config.engine if isinstance(config.engine, OpenAIServerConfig) else OpenAIServerConfig()


def _probed(directory: Path) -> list[CheckedArm]:
    store = RunStore(directory)
    return checked_arms(store.read_run().arms) if store.exists else []
