"""Check that an arm's servers run its schedule, before the arm answers or by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evalkit.config.arm import ArmConfig
from evalkit.config.server import CUSTOM, ServerConfig
from evalkit.core.model_info import model_config, written_config
from evalkit.core.secrets import hide_fields
from evalkit.core.types import Prompt
from evalkit.dsa import Layout, ReuseSchedule, ScheduleError
from evalkit.dsa.config_fields import integer, text_config
from evalkit.dsa.engine_config.dialects import DIALECTS
from evalkit.dsa.engine_config.export import export
from evalkit.dsa.engine_config.launch import launch_line
from evalkit.dsa.engine_config.parse import PLUGIN_FIELD
from evalkit.dsa.engine_config.start_flags import refuse_flags
from evalkit.dsa.json_types import as_list, as_object
from evalkit.engagement import evidence
from evalkit.engagement.behavioral_probe import continuations, probe_prompts
from evalkit.engagement.evidence import CheckedArm
from evalkit.engagement.findings import ArmCheck, Finding
from evalkit.engagement.returned_topk import decode, prove, request_body
from evalkit.engagement.selection_settings import setting_findings
from evalkit.engagement.server_info import JsonClient, ServerInfo, read_server_info
from evalkit.engagement.server_logs import LogFacts, read_log_file
from evalkit.engines.openai.engine import OpenAIServerEngine

RPC_SECONDS = 30.0


def check_arm(
    engine: OpenAIServerEngine,
    arm: ArmConfig,
    schedule: ReuseSchedule | None,
    others: Sequence[CheckedArm] = (),
) -> ArmCheck:
    """All evidence about an arm's servers.

    Args:
        engine: with the arm's checkpoint loaded.
        arm: under test.
        schedule: of the arm; None for a model without indexers.
        others: arms that were checked before, this one among them.

    Raises:
        EvalkitError: a server cannot be reached, or a log cannot be read.
    """
    prompts = _prompts(engine)
    servers: list[ServerInfo] = []
    findings: list[Finding] = []
    for url in engine.urls(arm):
        with JsonClient(url, engine.key) as client:
            info = read_server_info(client)
            servers.append(info)
            findings.append(evidence.model_finding(engine.served_model(arm), engine.model, info))
            findings += setting_findings(arm.name, info, others)
            if schedule is not None and engine.layout is not None:
                native = engine.layout.native
                findings += _schedule_findings(engine, arm, schedule, native, info, client)
                findings += _selection_findings(
                    client, info, schedule, prompts, engine, engine.layout.ratio
                )
    probe, deterministic = _probe(engine, arm, schedule, prompts)
    if probe and deterministic is not None:
        findings += evidence.probe_findings(
            CheckedArm(arm.name, "" if schedule is None else str(schedule), probe),
            others,
            deterministic=deterministic,
            configured=any(f.what == "overrides" and f.holds for f in findings),
        )
    if schedule is None:
        findings.append(Finding("model", True, "the model has no indexers", proof=True))
    return ArmCheck(
        arm.name,
        tuple(findings),
        tuple(info.facts() for info in servers),
        probe,
        deterministic,
        launch_of(arm, schedule, engine.layout, engine.model, server_info=servers[0]),
        min((s.positions for s in servers if s.positions is not None), default=None),
    )


def launch_of(
    arm: ArmConfig,
    schedule: ReuseSchedule | None,
    layout: Layout | None,
    model: str,
    *,
    server_info: ServerInfo | None = None,
) -> str:
    """How the arm's server is to be started; "" where that is not known.

    Args:
        arm: under test.
        schedule: of the arm.
        layout: of its checkpoint; None, as the schedule, for a model without indexers.
        model: the checkpoint.
        server_info: what answers there; None: not asked.
    """
    if schedule is None or layout is None:
        return ""
    server = arm.server or ServerConfig()
    environment, flags = _shown(server)
    try:
        choice = evidence.dialect_of(
            arm, server_info or ServerInfo("", "unknown"), schedule, layout.model_type
        )
        if choice is None:
            return ""
        if choice.name == CUSTOM:
            return launch_line("sglang", model, {}, environment=environment, flags=flags)
        settings = export(
            schedule,
            engine=choice.name,
            model=model,
            native=layout.native,
            config=written_config(model),
            enabled=server.enabled,
            model_type=layout.model_type,
        )
        launch = DIALECTS[choice.name].launch
        refuse_flags(launch, server.flags, schedule)
    except ScheduleError as error:
        return f"# {error}"
    environment = {**environment, **settings.environment}
    return launch_line(launch, model, settings.overrides, environment=environment, flags=flags)


def _shown(server: ServerConfig) -> tuple[dict[str, str], tuple[str, ...]]:
    """Environment and flags for a start line, without secrets."""
    shown = hide_fields({"environment": dict(server.environment), "flags": list(server.flags)})
    environment = as_object(shown["environment"])
    flags = as_list(shown["flags"])
    return {k: str(v) for k, v in environment.items()}, tuple(map(str, flags))


def _schedule_findings(
    engine: OpenAIServerEngine,
    arm: ArmConfig,
    schedule: ReuseSchedule,
    native: ReuseSchedule,
    info: ServerInfo,
    client: JsonClient,
) -> Iterator[Finding]:
    server = arm.server
    facts: LogFacts | None = None
    if server is not None and server.log is not None:
        facts = read_log_file(
            server.log, server.markers, server.fallbacks, engine=server.engine or ""
        )
    overrides = info.overrides
    if overrides is None and facts is not None and facts.overrides:
        overrides = facts.overrides[-1]
    yield evidence.overrides_finding(
        arm, schedule, native, info, overrides, written_config(engine.model)
    )
    if evidence.wants_plugin(arm) and not evidence.is_off(arm, schedule, native):
        yield _ranks_finding(client, arm, schedule)
    if facts is not None:
        yield from evidence.log_findings(
            arm, schedule, evidence.is_off(arm, schedule, native), facts
        )
    elif server is not None and server.engine == CUSTOM:
        yield Finding("log", None, "no log was named (server.log): nothing proves a custom build")


def _ranks_finding(client: JsonClient, arm: ArmConfig, schedule: ReuseSchedule) -> Finding:
    """What every rank of a vLLM with our plugin says over its development API."""
    reply = as_object(client.post("/collective_rpc", {"method": PLUGIN_FIELD}, RPC_SECONDS))
    said = [str(as_object(rank).get("schedule")) for rank in as_list(reply.get("results"))]
    if not said:
        text = "no rank tells what it runs: start it with VLLM_SERVER_DEV_MODE=1, or name its log"
        return Finding("ranks", None, text)
    return evidence.plugin_finding("ranks", arm, schedule, said)


def _selection_findings(
    client: JsonClient,
    info: ServerInfo,
    schedule: ReuseSchedule,
    prompts: Sequence[Prompt],
    engine: OpenAIServerEngine,
    ratio: int,
) -> Iterator[Finding]:
    if not info.settings.get("enable_return_indexer_topk") or not prompts:
        return
    if schedule.source != schedule.nearest:
        yield Finding("selections", None, "returned selections cannot show a lag")
        return
    prompt = prompts[0]
    seconds = (
        engine.config.timeout + engine.config.timeout_per_1k_tokens * len(prompt.token_ids) / 1e3
    )
    reply = client.post("/generate", request_body(prompt.token_ids, 8), seconds)
    selections = decode(as_object(as_object(reply).get("meta_info")), len(schedule))
    if selections is None:
        yield Finding("selections", None, "the server returned no selections")
        return
    proof = prove(selections, schedule, ratio=ratio)
    yield Finding("selections", proof.holds, proof.text, proof=bool(proof.holds))


def _prompts(engine: OpenAIServerEngine) -> list[Prompt]:
    config = engine.config
    if config.probe_prompts == 0:
        return []
    fields = text_config(model_config(engine.model).to_dict())
    dense = None if engine.layout is None else engine.layout.dense_tokens
    return probe_prompts(
        engine.tokenizer,
        dense or 0,
        config.probe_prompts,
        config.probe_tokens,
        max_positions=integer(fields, "max_position_embeddings"),
    )


def _probe(
    engine: OpenAIServerEngine,
    arm: ArmConfig,
    schedule: ReuseSchedule | None,
    prompts: Sequence[Prompt],
) -> tuple[dict[str, str], bool | None]:
    """Continuations, and whether a second round gives the same."""
    if not prompts:
        return {}, None
    rounds = [
        continuations([c for batch in engine.answer(arm, schedule, prompts, ()) for c in batch])
        for _ in range(2)
    ]
    return rounds[0], rounds[0] == rounds[1] and bool(rounds[0])
