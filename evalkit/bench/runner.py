"""Measure the arms of a recipe: checked first, then in turns, the baseline first and last.

bench/facts.json    the load, the arms, what their servers said of themselves
bench/rounds.jsonl  every request of every round, appended round by round
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from evalkit.bench import workload
from evalkit.bench.load_generator import Timing, drive
from evalkit.bench.results import BenchFacts, MeasuredArm, Round, RoundRow
from evalkit.bench.server_metrics import added, between, read_counters
from evalkit.config.arm import ArmConfig
from evalkit.config.bench import BenchConfig
from evalkit.config.run import RunConfig
from evalkit.config.server import OpenAIServerConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.files import append_jsonl, read_jsonl, write_atomic, write_object
from evalkit.core.model_info import resolve_model
from evalkit.core.provenance import environment
from evalkit.core.secrets import hide_fields
from evalkit.core.types import Prompt
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.json_types import JsonObject, as_list, as_object
from evalkit.engagement.check import check_arm
from evalkit.engagement.evidence import CheckedArm
from evalkit.engagement.findings import ENGAGED, NOT_ENGAGED, UNKNOWN
from evalkit.engagement.server_info import JsonClient
from evalkit.engines.openai.api_keys import warn_plain_http
from evalkit.engines.openai.engine import OpenAIServerEngine
from evalkit.run.store import RunStore

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An arm that is ready to be measured.

    Attributes:
        arm: of the recipe.
        engine: with its checkpoint's tokenizer loaded.
        schedule: of the arm.
        urls: its servers.
    """

    arm: ArmConfig
    engine: OpenAIServerEngine
    schedule: ReuseSchedule | None
    urls: tuple[str, ...]

    def facts(self, check: JsonObject) -> MeasuredArm:
        """For the records, with the check of its servers: no addresses."""
        schedule = self.schedule
        return {
            "name": self.arm.name,
            "model": self.engine.model,
            "schedule": {"text": None if schedule is None else str(schedule)},
            "pattern": None if schedule is None else schedule.pattern,
            "full": None if schedule is None else len(schedule.full_layers),
            "parity_of": self.arm.server.parity_of if self.arm.server else None,
            "servers": len(self.urls),
            "check": check,
        }


def baseline_of(config: RunConfig) -> str:
    """Name of the arm that the others are compared with."""
    return config.compare.baseline or config.arms[0].name


def measure_arms(
    config: RunConfig, base_dir: Path, store: RunStore, say: Say, *, add: bool = False
) -> None:
    """Check every arm, measure those that are engaged (or unknown), write the records.

    Args:
        config: the recipe.
        base_dir: folder of the recipe.
        store: run directory.
        say: progress, one line at a time.
        add: keep what was measured before under the same load, and add a round of every arm whose
            server is there now: one set of machines, started anew for every arm.

    Raises:
        EvalkitError: the recipe has no load, another load was measured before, the baseline is not
            engaged, no arm is, or every request of a round failed.
    """
    bench = _load_of(config, base_dir)
    folder = store.path / "bench"
    facts: BenchFacts = {
        "bench": hide_fields(bench.model_dump(mode="json", exclude={"text_file"})),
        "baseline": baseline_of(config),
        "environment": environment(),
        "arms": [],
    }
    earlier = _earlier(folder, facts) if add else {}
    engaged = []
    for candidate in _candidates(config, base_dir):
        name = candidate.arm.name
        entry = _checked(candidate, [*facts["arms"], *earlier.values()], say)
        usable = entry["check"]["verdict"] in (ENGAGED, UNKNOWN)
        if usable:
            engaged.append(candidate)
        elif name == facts["baseline"] and not add:
            raise EvalkitError(f"baseline {name}: not engaged: {entry['check']['reason']}")
        facts["arms"].append(entry if usable else earlier.get(name, entry))
    if not engaged:
        raise EvalkitError(
            "no arm's server is running: `evalkit check --recipe` prints the start lines"
        )
    if not add:
        write_atomic(folder / "rounds.jsonl", "")
    write_object(folder / "facts.json", cast(JsonObject, facts), allow_nan=True)
    done = 1 + max((row.number for row in _rounds(folder)), default=-1)
    turns = _added(engaged, bench, done) if add else _order(engaged, facts["baseline"], bench)
    for number, candidate, first in turns:
        measured = _round(candidate, bench, number, first)
        append_jsonl(folder / "rounds.jsonl", [cast(JsonObject, measured.row())])
        failed = [t.error for t in measured.timings if t.error is not None]
        counts = f"{len(measured.timings)} requests, {len(failed)} failed"
        say(f"{candidate.arm.name}, round {number + 1}: {counts}")
        if len(failed) == len(measured.timings):
            raise EvalkitError(f"arm {candidate.arm.name}: every request failed: {failed[0]}")


def _earlier(folder: Path, facts: BenchFacts) -> dict[str, MeasuredArm]:
    """Arms that were measured before, under the same load."""
    path = folder / "facts.json"
    if not path.is_file():
        return {}
    old = _read_facts(path)
    if (old["bench"], old["baseline"]) != (facts["bench"], facts["baseline"]):
        raise EvalkitError(f"{folder}: another load was measured here: use another --out")
    measured = {row.arm for row in _rounds(folder)}
    return {entry["name"]: entry for entry in old["arms"] if entry["name"] in measured}


def _read_facts(path: Path) -> BenchFacts:
    facts: BenchFacts = json.loads(path.read_text(encoding="utf-8"))
    return facts


def _checked(candidate: Candidate, others: Sequence[MeasuredArm], say: Say) -> MeasuredArm:
    """Facts of an arm with the check of its servers; one that cannot be reached is not engaged."""
    checked = [
        CheckedArm(
            entry["name"],
            entry["schedule"]["text"] or "",
            {k: str(v) for k, v in as_object(entry["check"].get("probe")).items()},
            tuple(map(as_object, as_list(entry["check"].get("servers")))),
        )
        for entry in others
    ]
    check: JsonObject
    try:
        check = check_arm(candidate.engine, candidate.arm, candidate.schedule, checked).record()
    except EvalkitError as error:
        check = {"verdict": NOT_ENGAGED, "reason": str(error)}
    say(f"{candidate.arm.name}: {check['verdict']}: {check['reason']}")
    return candidate.facts(check)


def _added(
    candidates: Sequence[Candidate], bench: BenchConfig, done: int
) -> Iterator[tuple[int, Candidate, int]]:
    """One round of every arm that is there, with prompts that no server has seen."""
    size = bench.requests + bench.warmup
    for turn, candidate in enumerate(candidates):
        yield done, candidate, size * (1000 * done + turn)


def stored(store: RunStore) -> tuple[BenchFacts, list[Round]]:
    """Facts and rounds of the last measurement in a run directory.

    Raises:
        EvalkitError: nothing was measured.
    """
    path = store.path / "bench" / "facts.json"
    if not path.is_file():
        raise EvalkitError(f"{store.path}: no measurement here: run `evalkit bench RECIPE` first")
    facts, rounds = _read_facts(path), _rounds(store.path / "bench")
    if not any(r.arm == facts["baseline"] for r in rounds):
        raise EvalkitError(
            f"{store.path}: the baseline {facts['baseline']} was not measured yet: start its server"
            " and run `evalkit bench RECIPE --add`"
        )
    return facts, rounds


def _rounds(folder: Path) -> list[Round]:
    return read_jsonl(folder / "rounds.jsonl", lambda row: Round.of(cast(RoundRow, row)))


def _load_of(config: RunConfig, base_dir: Path) -> BenchConfig:
    bench = config.bench
    if bench is None:
        raise EvalkitError("the recipe has no [bench] section: it says what load to send")
    if not isinstance(config.engine, OpenAIServerConfig):
        raise EvalkitError("bench measures servers: set engine.kind = openai_server")
    if bench.text_file is None:
        return bench
    return bench.model_copy(update={"text_file": str((base_dir / bench.text_file).resolve())})


def _candidates(config: RunConfig, base_dir: Path) -> list[Candidate]:
    engines: dict[str, OpenAIServerEngine] = {}
    candidates = []
    for arm in config.arms:
        model = resolve_model(arm.model or config.model or "", base_dir)
        if model not in engines:
            if not isinstance(config.engine, OpenAIServerConfig):
                raise TypeError("checked before")
            engines[model] = OpenAIServerEngine(config.engine)
            engines[model].load(model)
        engine = engines[model]
        native = engine.native()
        if native is None and not arm.is_native:
            raise EvalkitError(f"arm {arm.name}: this model has no lightning indexer")
        urls = engine.urls(arm)
        for url in urls:
            warn_plain_http(url, engine.key)
        schedule = None if native is None else arm.schedule(native)
        candidates.append(Candidate(arm, engine, schedule, urls))
    return candidates


def _order(
    candidates: Sequence[Candidate], baseline: str, bench: BenchConfig
) -> Iterator[tuple[int, Candidate, int]]:
    """(round, arm, number of the first prompt): the baseline first and last, arms in turns.

    Arms read the same prompts in the same round, unless a server would have them in its prefix
    cache: then every turn has its own.
    """
    base = next(c for c in candidates if c.arm.name == baseline)
    others = [c for c in candidates if c.arm.name != baseline]
    urls = [url for c in candidates for url in c.urls]
    together = len(set(urls)) == len(urls)
    size = bench.requests + bench.warmup
    turn = 0
    for number in range(bench.rounds):
        for candidate in [base, *others]:
            yield number, candidate, size * (number if together else turn)
            turn += 1
    yield bench.rounds, base, size * (bench.rounds if together else turn)


def _round(candidate: Candidate, bench: BenchConfig, number: int, first: int) -> Round:
    engine, arm = candidate.engine, candidate.arm
    as_text = engine.config.api != "ids"
    count = bench.warmup + bench.requests
    prompts = workload.prompts(bench, engine.tokenizer, count, as_text=as_text, first=first)
    if bench.warmup:
        _drive(candidate, bench, prompts[: bench.warmup], [0.0] * bench.warmup)
    before = _counters(candidate)
    due = workload.arrivals(bench, bench.requests, number)
    timings = _drive(candidate, bench, prompts[bench.warmup :], due)
    return Round(arm.name, number, tuple(timings), between(before, _counters(candidate)))


def _drive(
    candidate: Candidate, bench: BenchConfig, prompts: Sequence[Prompt], due: Sequence[float]
) -> list[Timing]:
    engine, arm = candidate.engine, candidate.arm
    return asyncio.run(
        drive(
            engine.wire,
            candidate.urls,
            engine.key,
            prompts,
            due,
            concurrency=bench.concurrency,
            extra_body=bench.extra_body,
            served_model=engine.served_model(arm),
        )
    )


def _counters(candidate: Candidate) -> Mapping[str, float]:
    counters = []
    for url in candidate.urls:
        with JsonClient(url, candidate.engine.key) as client:
            counters.append(read_counters(client))
    return added(counters)
