"""Resume, generate, append. Scoring is another step and needs no model.

Samples are rendered once per checkpoint in blocks; within a block all arms answer before the next
block begins, so a run that is cut short has compared every arm on the same samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from evalkit.config.arm import ArmConfig
from evalkit.config.engine import ENGINES
from evalkit.core.errors import EvalkitError
from evalkit.core.model_info import dense_tokens
from evalkit.core.provenance import environment, with_guests
from evalkit.core.reasoning import without_reasoning
from evalkit.core.recipe import Strict, canonical_hash
from evalkit.core.types import Followup, Prompt, Renderer, Sample
from evalkit.dsa import ReuseSchedule
from evalkit.engines import open_engine
from evalkit.engines.base import Engine, MultiProcessEngine, answers, evidence, load
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import load_tokenizer
from evalkit.run.plan import Plan, changes, identity
from evalkit.run.stopping_rule import Stopper
from evalkit.run.store import RunStore, sample_row
from evalkit.tasks.base import samples

BLOCK_SAMPLES = 512
BLOCK_TOKENS = 2_000_000


def run(
    todo: Plan,
    store: RunStore,
    *,
    on_answer: Callable[[str, int], None] = lambda *_: None,
    stopper: Stopper | None = None,
) -> dict[str, str]:
    """Generate everything that is missing in a run directory.

    Args:
        todo: from `plan`.
        store: the directory; the caller holds its lock.
        on_answer: called as (arm name, answers) while answers come, resumed ones included.
        stopper: draws the samples of every task in its order and may stop arms early.

    Returns:
        arms that got no answers because their server does not run their schedule, and why.

    Raises:
        EvalkitError: the directory holds a different run, or an engine cannot do what is asked.
    """
    refused: dict[str, str] = {}
    record = _begin(todo, store)
    if stopper is None:
        record.pop("until_decided", None)  # this time everything is answered
    else:
        record["until_decided"] = {"verdicts": {}}
    engine = open_engine(todo.config.engine)
    for model in _models(todo, stopper):
        arms = [arm for arm in todo.config.arms if todo.models[arm.name] == model]
        facts = load(engine, model)
        renderer = ChatRenderer(load_tokenizer(model), todo.config.prompts)
        facts = {**facts, "prompts_sha256": renderer.fingerprint()}
        facts["dense_tokens"] = dense_tokens(model)
        schedules = {arm.name: _schedule(engine, arm) for arm in arms}
        _describe(record, store, arms, schedules, model, facts)
        for arm in arms:
            _entry(record, arm.name).update(todo.indexers.get(arm.name, {}))
        items = store.read_items()
        done = {arm.name: _answered(store, arm.name) for arm in arms}
        unfinished = [arm for arm in arms if len(done[arm.name]) < todo.samples]
        if ENGINES.of(todo.config.engine).servers:
            refused |= _check(engine, unfinished, schedules, record)
        store.write_run(record)
        arms = [arm for arm in arms if arm.name not in refused]
        if stopper is not None:
            for name in refused:
                stopper.refuse(name)
        for prompts in _turns(blocks(todo, renderer, arms, stopper), todo.config.engine):
            store.add_items(prompts, items)
            for arm in _undecided(arms, prompts[0].sample.task, stopper):
                turn = _Turn(engine, arm, schedules[arm.name], renderer, store, on_answer)
                if turn.block(prompts, done[arm.name]):
                    _note_engagement(_entry(record, arm.name), engine)
        store.write_run(record)
    if stopper is not None:
        record["until_decided"] = stopper.record()
        store.write_run(record)
    if isinstance(engine, MultiProcessEngine):
        engine.close()
    return refused


def _models(todo: Plan, stopper: Stopper | None) -> list[str]:
    """Checkpoints, each once; where arms may stop early, the one of the baseline first."""
    models = list(dict.fromkeys(todo.models.values()))
    if stopper is None:
        return models
    return sorted(models, key=lambda model: model != todo.models[stopper.baseline])


def _undecided(arms: Sequence[ArmConfig], task: str, stopper: Stopper | None) -> list[ArmConfig]:
    """Arms that need more samples of a task."""
    return [arm for arm in arms if stopper is None or not stopper.done(arm.name, task)]


def _check(
    engine: Any,
    arms: Sequence[ArmConfig],
    schedules: Mapping[str, ReuseSchedule | None],
    record: dict[str, Any],
) -> dict[str, str]:
    """Ask servers whether they run the schedules of their arms; the reasons of those that do not.

    Nothing is recorded under the name of an arm that is not engaged.
    """
    from evalkit.engagement.check import check_arm

    refused: dict[str, str] = {}
    for arm in arms:
        try:
            found = check_arm(engine, arm, schedules[arm.name], record["arms"]).record()
        except EvalkitError as error:
            refused[arm.name] = str(error)
            continue
        _entry(record, arm.name)["check"] = found
        if found["verdict"] == "not engaged":
            start = f"; start it as: {found['launch']}" if found["launch"] else ""
            refused[arm.name] = f"not engaged: {found['reason']}{start}"
    return refused


def blocks(
    todo: Plan,
    renderer: Renderer,
    arms: Sequence[ArmConfig] = (),
    stopper: Stopper | None = None,
) -> Iterator[list[Prompt]]:
    """Rendered samples, block by block, each within one cell; none for arms that are done."""
    for task in todo.tasks:
        count = todo.count(task)
        order = range(count) if stopper is None else stopper.order(task, count, renderer)
        stream = (renderer.render(sample) for sample in samples(task, renderer, order))
        size = BLOCK_SAMPLES if stopper is None else stopper.look
        while block := list(_take_block(stream, size)):
            yield block
            if stopper is not None and not _undecided(arms, task.name, stopper):
                break


def _turns(found: Iterator[list[Prompt]], engine: Strict) -> Iterator[list[Prompt]]:
    """Blocks cut into the turns that arms take on their servers, so that drift hits all alike."""
    turn_samples = ENGINES.of(engine).turn_samples
    size = BLOCK_SAMPLES if turn_samples is None else turn_samples(engine)
    for block in found:
        for start in range(0, len(block), size):
            yield block[start : start + size]


def _take_block(stream: Iterator[Prompt], size: int) -> Iterator[Prompt]:
    tokens = 0
    for prompt in islice(stream, size):
        yield prompt
        tokens += len(prompt.token_ids)
        if tokens >= BLOCK_TOKENS:
            return


@dataclass(frozen=True, slots=True)
class _Turn:
    """One arm at work: everything that answering a block needs."""

    engine: Engine
    arm: ArmConfig
    schedule: ReuseSchedule | None
    renderer: ChatRenderer
    store: RunStore
    on_answer: Callable[[str, int], None]

    def block(self, prompts: Sequence[Prompt], done: Mapping[str, str]) -> bool:
        """Answer what is missing of a block, append it, report progress; was anything missing?"""
        by_id = {prompt.sample.id: prompt for prompt in prompts}
        for sample_id, prompt in by_id.items():
            if done.get(sample_id, prompt.sha256) != prompt.sha256:
                raise EvalkitError(
                    f"{self.store.path}: arm {self.arm.name} answered another prompt for"
                    f" {sample_id}: the tokenizer or prompt policy changed since this run began;"
                    " use a new directory"
                )
        finished = set(by_id) & set(done)
        if finished:
            self.on_answer(self.arm.name, len(finished))
        if len(finished) == len(by_id):
            return False
        asked, failed = self._final(prompts)
        if failed:
            self.store.add_samples(self.arm.name, failed)
            self.on_answer(self.arm.name, len(failed))
        for batch in answers(self.engine, self.arm, self.schedule, asked, finished):
            # Arms are joined on the question that all of them read: the first one.
            rows = [sample_row(by_id[c.sample_id], c) for c in batch]
            self.store.add_samples(self.arm.name, rows)
            self.on_answer(self.arm.name, len(batch))
        return True

    def _final(self, prompts: Sequence[Prompt]) -> tuple[list[Prompt], list[dict[str, Any]]]:
        """The prompts whose answer is scored, and rows of those whose first call failed."""
        by_id = {p.sample.id: p for p in prompts if p.sample.followup is not None}
        if not by_id:
            return list(prompts), []
        firsts = _answered(self.store, self.arm.name, "first")
        twice = list(by_id.values())
        for batch in answers(self.engine, self.arm, self.schedule, twice, set(firsts)):
            rows = [sample_row(by_id[c.sample_id], c) for c in batch]
            self.store.add_samples(self.arm.name, rows, "first")
        first_answers = self.store.read_samples(self.arm.name, "first")
        asked, failed = [], []
        for prompt in prompts:
            sample = prompt.sample
            if sample.followup is None:
                asked.append(prompt)
            elif first_answers[sample.id]["finish_reason"] == "error":
                failed.append(first_answers[sample.id])
            else:
                first = without_reasoning(first_answers[sample.id]["completion"])
                asked.append(self.renderer.render(_second(sample, sample.followup, first)))
        return asked, failed


def _second(sample: Sample, followup: Followup, first_answer: str) -> Sample:
    """The follow-up question as a sample of its own, under the same id."""
    return replace(
        sample,
        text=followup.fill(first_answer),
        max_new_tokens=followup.max_new_tokens,
        answer_prefix=followup.answer_prefix,
        followup=None,
    )


def _answered(store: RunStore, arm: str, call: str = "samples") -> dict[str, str]:
    """Prompt hash per sample that has an answer; failed ones are tried again."""
    rows = store.read_samples(arm, call)
    return {i: row["prompt_sha256"] for i, row in rows.items() if row["finish_reason"] != "error"}


def _schedule(engine: Engine, arm: ArmConfig) -> ReuseSchedule | None:
    native = engine.native()
    if native is None:
        if not arm.is_native:
            raise EvalkitError(f"arm {arm.name}: this model has no lightning indexer")
        return None
    return arm.schedule(native)


def _begin(todo: Plan, store: RunStore) -> dict[str, Any]:
    """A fresh run.json, or the old one after a check that it is the same run.

    A directory without a single answer binds nobody: what failed at once is mended in the recipe.
    """
    wanted = identity(todo)
    record: dict[str, Any] = {"format": 1, "arms": []}
    if store.exists:
        old = store.read_run()
        if store.answered:
            record = old
            differences = changes(old.get("identity", {}), wanted)
            if differences:
                raise EvalkitError(
                    f"{store.path} holds another run; changed: {'; '.join(differences[:4])}"
                    f"{' …' if len(differences) > 4 else ''}. Use another --out, or the old recipe"
                )
        else:
            store.forget_items()
    known = {entry["name"] for entry in record["arms"]}
    record["identity"] = wanted
    record["recipe"] = todo.config.model_dump(mode="json")
    record["identity_sha256"] = canonical_hash(wanted)
    planned = [
        {"name": task.name, "samples": todo.count(task), "deviations": dict(task.deviations)}
        for task in todo.tasks
    ]
    names = {task["name"] for task in planned}
    # Cells that only imported arms have stay in the tables.
    record["tasks"] = planned + [t for t in record.get("tasks", []) if t["name"] not in names]
    record["arms"] += [{"name": arm.name} for arm in todo.config.arms if arm.name not in known]
    record["environment"] = with_guests(environment(), todo.packages, record.get("environment"))
    store.write_run(record)
    return record


def _describe(
    record: dict[str, Any],
    store: RunStore,
    arms: Sequence[ArmConfig],
    schedules: Mapping[str, ReuseSchedule | None],
    model: str,
    facts: Mapping[str, Any],
) -> None:
    """Write into run.json what each arm really is; a changed checkpoint is refused."""
    entries = {entry["name"]: entry for entry in record["arms"]}
    for arm in arms:
        entry = entries[arm.name]
        for key in ("weights_sha256", "prompts_sha256"):
            old = entry.get(key, facts[key])
            if old != facts[key]:
                raise EvalkitError(
                    f"{store.path}: arm {arm.name}: {key} changed since this run began"
                    f" (was {str(old)[:12]}, is {str(facts[key])[:12]}); use a new directory"
                )
        entry |= {"model": model, **facts, "schedule": _schedule_facts(schedules[arm.name])}
        schedule = schedules[arm.name]
        if arm.lag and schedule is not None and schedule.lag == 0:
            entry["note"] = (
                f"a lag of {arm.lag} changes nothing here: {len(schedule.full_layers)} full"
                " layers are too few for it"
            )
        if arm.server is not None and arm.server.parity_of is not None:
            entry["parity_of"] = arm.server.parity_of
    store.write_run(record)


def _entry(record: Mapping[str, Any], arm: str) -> dict[str, Any]:
    """What run.json says of an arm."""
    found: dict[str, Any] = next(entry for entry in record["arms"] if entry["name"] == arm)
    return found


def _schedule_facts(schedule: ReuseSchedule | None) -> dict[str, Any] | None:
    if schedule is None:
        return None
    return {
        "text": str(schedule),
        "pattern": schedule.pattern,
        "retention": str(schedule.retention),
        "lag": schedule.lag,
        "lag_phase": schedule.lag_phase,
        "source": list(schedule.source),
        "layer_ids": list(schedule.layer_ids),
        "full_layer_ids": list(schedule.full_layer_ids),
    }


def _note_engagement(entry: dict[str, Any], engine: Engine) -> None:
    """Keep the strongest evidence: one block that was not engaged spoils the arm."""
    before = str((entry.get("engagement") or {}).get("verdict") or "")
    if check := entry.get("check"):  # the weakest of all starts of the server counts
        unknown = check["verdict"] == "unknown"
        now = f"unknown: {check['reason']}" if unknown else check["verdict"]
        entry["engagement"] = {"verdict": before if before.startswith("unknown") else now}
        return
    proof = evidence(engine)
    if before == "not engaged" or (str(proof["verdict"]).startswith("unknown") and before):
        return
    entry["engagement"] = dict(proof)
