"""Is the arm's schedule in force on its servers? Run before an arm answers, or by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalkit.config.arm import ArmConfig
from evalkit.config.server import CUSTOM
from evalkit.core.types import Prompt
from evalkit.dsa import ReuseSchedule, ScheduleError
from evalkit.dsa.engine_config.dialects import DIALECTS
from evalkit.dsa.engine_config.export import export
from evalkit.dsa.engine_config.launch import launch_line
from evalkit.engagement import evidence
from evalkit.engagement.behavioral_probe import probe_prompts, results
from evalkit.engagement.findings import Check, Finding
from evalkit.engagement.returned_topk import decode, prove, request_body
from evalkit.engagement.server_info import Report, Web, read_report
from evalkit.engagement.server_logs import LogFacts, read_log_file
from evalkit.engines.openai.api_keys import Key
from evalkit.engines.openai.engine import OpenAIServerEngine


def check_arm(
    engine: OpenAIServerEngine,
    arm: ArmConfig,
    schedule: ReuseSchedule | None,
    entries: Sequence[Mapping[str, Any]] = (),
) -> Check:
    """Everything that can be found out about an arm's servers.

    Args:
        engine: with the arm's checkpoint loaded.
        arm: under test.
        schedule: of the arm; None for a model without indexers.
        entries: arms of run.json, for comparison with the probes of others.

    Raises:
        EvalkitError: a server cannot be reached, or a log cannot be read.
    """
    urls = engine.urls(arm)
    native = engine.native()
    prompts = _prompts(engine)
    reports, findings = [], []
    for url in urls:
        with Web(url, engine.key) as web:
            report = read_report(web)
            reports.append(report)
            findings.append(evidence.model_finding(arm, engine.model, report))
            if schedule is not None and native is not None:
                findings += _schedule_findings(engine, arm, schedule, native, report)
                findings += _selection_findings(web, report, schedule, prompts, engine)
    probe, same = _probe(engine, arm, schedule, prompts)
    if probe and same is not None:
        configured = any(f.what == "overrides" and f.holds for f in findings)
        text = "" if schedule is None else str(schedule)
        findings += evidence.probe_findings(arm.name, probe, same, text, entries, configured)
    if schedule is None:
        findings.append(Finding("model", True, "the model has no indexers", proof=True))
    return Check(
        arm.name,
        tuple(findings),
        tuple(report.facts() for report in reports),
        probe,
        same,
        launch_of(arm, schedule, native, engine.model, reports[0]),
    )


def launch_of(
    arm: ArmConfig,
    schedule: ReuseSchedule | None,
    native: ReuseSchedule | None,
    model: str,
    report: Report | None = None,
    *,
    model_type: str | None = None,
) -> str:
    """How the arm's server is to be started; "" where that is not known."""
    server = arm.server
    if schedule is None or native is None:
        return ""
    kind = report.kind if report is not None else "unknown"
    model_type = model_type or str(model_config_of(model)["model_type"])
    engine = evidence.dialect_of(arm, kind, schedule, model_type)
    environment = dict(server.environment) if server else {}
    flags = server.flags if server else ()
    if engine == CUSTOM:
        return launch_line("sglang", model, {}, environment=environment, flags=flags)
    if engine is None:
        return ""
    try:
        made = export(
            schedule,
            engine=engine,
            model=model,
            native=native,
            enabled=server.enabled if server else None,
        )
    except ScheduleError as error:
        return f"({error})"
    launch = DIALECTS[engine].launch
    return launch_line(launch, model, made.overrides, environment=environment, flags=flags)


def _schedule_findings(
    engine: OpenAIServerEngine,
    arm: ArmConfig,
    schedule: ReuseSchedule,
    native: ReuseSchedule,
    report: Report,
) -> Iterator[Finding]:
    server = arm.server
    facts: LogFacts | None = None
    if server is not None and server.log is not None:
        facts = read_log_file(server.log, server.markers, server.fallbacks)
    overrides = report.overrides
    if overrides is None and facts is not None and facts.overrides:
        overrides = facts.overrides[-1]
    yield evidence.overrides_finding(
        arm, schedule, native, report, overrides, own_settings(engine.model)
    )
    if facts is not None:
        yield from evidence.log_findings(
            arm, schedule, evidence.is_off(arm, schedule, native), facts
        )
    elif server is not None and server.engine == CUSTOM:
        yield Finding("log", None, "no log was named (server.log): nothing proves a custom build")


def _selection_findings(
    web: Web,
    report: Report,
    schedule: ReuseSchedule,
    prompts: Sequence[Prompt],
    engine: OpenAIServerEngine,
) -> Iterator[Finding]:
    if not report.settings.get("enable_return_indexer_topk") or not prompts:
        return
    if schedule.source != schedule.nearest:
        yield Finding("selections", None, "returned selections cannot show a lag")
        return
    prompt = prompts[0]
    seconds = (
        engine.config.timeout + engine.config.timeout_per_1k_tokens * len(prompt.token_ids) / 1e3
    )
    reply = web.post("/generate", request_body(prompt.token_ids, 8), seconds)
    meta = reply.get("meta_info") if isinstance(reply, dict) else None
    selections = decode(meta or {}, len(schedule))
    if selections is None:
        yield Finding("selections", None, "the server returned no selections")
        return
    everything = schedule.layer_ids == tuple(range(len(schedule)))
    proof = prove(selections, schedule, seen=1 if everything else 4)
    yield Finding("selections", proof.holds, proof.text, proof=bool(proof.holds))


def _prompts(engine: OpenAIServerEngine) -> list[Prompt]:
    count = engine.config.probe_prompts
    if count == 0 or engine.tokenizer is None:
        return []
    config = model_config_of(engine.model)
    return probe_prompts(engine.tokenizer, config, count, engine.config.probe_tokens)


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
        results([c for batch in engine.answer(arm, schedule, prompts, ()) for c in batch])
        for _ in range(2)
    ]
    return rounds[0], rounds[0] == rounds[1] and bool(rounds[0])


def own_settings(model: str) -> dict[str, Any]:
    """The checkpoint's own reuse settings, from config.json as written where that is here."""
    path = Path(model) / "config.json"
    if path.is_file():
        config = json.loads(path.read_text(encoding="utf-8"))
        return dict(config.get("text_config") or config)
    return model_config_of(model)


def model_config_of(model: str) -> dict[str, Any]:
    """The configuration of a checkpoint as a dictionary."""
    from evalkit.core.model_info import model_config

    return dict(model_config(model).to_dict())


def read_server(url: str, key: Key) -> Report:
    """What a server says of itself, without an arm to compare it with."""
    with Web(url, key) as web:
        return read_report(web)
