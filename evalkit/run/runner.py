"""Resume, generate, append. Scoring is another step and needs no model.

Samples are rendered once per checkpoint in blocks; within a block all arms answer before the next
block begins, so a run that is cut short has compared every arm on the same samples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

from evalkit.config.arm import ArmConfig
from evalkit.config.engine import ENGINES
from evalkit.core.errors import EvalkitError
from evalkit.core.model_info import dense_tokens
from evalkit.core.recipe import Strict
from evalkit.core.records import RunRecord, StoppingRecord
from evalkit.core.types import Prompt, Renderer
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.json_types import JsonObject
from evalkit.engines import open_engine
from evalkit.engines.base import (
    Ask,
    Engine,
    MultiProcessEngine,
    SharingEngine,
    answers_together,
    evidence,
    load,
)
from evalkit.prompts.renderer import ChatRenderer
from evalkit.run.answer_cache import AnswerCache
from evalkit.run.cached_arms import cached_arms
from evalkit.run.first_prompts import Need, ask_first_prompts, require_fit
from evalkit.run.plan import RunPlan
from evalkit.run.prompt_texts import renderer_of
from evalkit.run.recorder import RunRecorder
from evalkit.run.shared_prefill import prefill_groups
from evalkit.run.store import RunStore
from evalkit.run.turn import Turn, answered
from evalkit.tasks.base import Task, samples

BLOCK_SAMPLES = 512
BLOCK_TOKENS = 2_000_000


class StoppingRule(Protocol):
    """Order of the samples, and which arm needs no more of them on which task.

    Attributes:
        baseline: name of the arm that the others are compared with.
        look: samples between two looks.
    """

    baseline: str
    look: int

    def order(self, task: Task, count: int, renderer: Renderer) -> list[int]:
        """Positions of a task's first `count` samples in the order of drawing."""
        ...

    def done(self, arm: str, task: str) -> bool:
        """Whether an arm needs no more samples of a task."""
        ...

    def exclude(self, arm: str) -> None:
        """Leave an arm that gets no answers out of every decision."""
        ...

    def record(self) -> StoppingRecord:
        """What was decided, for run.json."""
        ...


def run(
    todo: RunPlan,
    store: RunStore,
    *,
    on_answer: Callable[[str, int], None] = lambda *_: None,
    stopping: StoppingRule | None = None,
    engine: Engine | None = None,
    cache: AnswerCache | None = None,
) -> dict[str, str]:
    """Generate everything that is missing in a run directory.

    Args:
        todo: from `plan`.
        store: the directory; the caller holds its lock.
        on_answer: called as (arm name, answers) while answers come, resumed ones included.
        stopping: draws the samples of every task in its order and may stop arms early.
        engine: one that is open already; default: the recipe's.
        cache: answers of other runs that need not be given again, and where new ones go.

    Returns:
        arms that got no answers because their server does not run their schedule, and why.

    Raises:
        EvalkitError: the directory holds a different run, a cell cannot be asked (known before the
            first answer), or an engine cannot do what is asked.
    """
    refused: dict[str, str] = {}
    recorder = RunRecorder(todo, store)
    recorder.note_until_decided(None if stopping is None else StoppingRecord.interrupted())
    needs = ask_first_prompts(todo, _models(todo, stopping))
    engine = engine or open_engine(todo.config.engine)
    for model in _models(todo, stopping):
        arms = [arm for arm in todo.config.arms if todo.models[arm.name] == model]
        renderer = renderer_of(todo.config, model)
        facts, schedules = _described(engine, model, arms, renderer, recorder)
        done = {arm.name: answered(store, arm.name) for arm in arms}
        unfinished = [arm for arm in arms if _lacks(todo, done[arm.name], recorder.run)]
        if ENGINES.of(todo.config.engine).servers:
            refused |= _check(todo, needs[model], engine, unfinished, schedules, recorder)
        recorder.write()
        arms = [arm for arm in arms if arm.name not in refused]
        _exclude(refused, stopping)
        known = {}
        if cache is not None:
            known = cached_arms(cache, todo, recorder.run, arms, facts, schedules)
        turns = [
            Turn(engine, a, schedules[a.name], renderer, store, on_answer, known.get(a.name))
            for a in arms
        ]
        _answer(todo, recorder, turns, stopping, done)
        for arm in arms:
            recorder.note_index_costs(arm, schedules[arm.name])
        recorder.write()
    if stopping is not None:
        recorder.note_until_decided(stopping.record())
        recorder.write()
    if isinstance(engine, MultiProcessEngine):
        engine.close()
    return refused


def _described(
    engine: Engine,
    model: str,
    arms: Sequence[ArmConfig],
    renderer: ChatRenderer,
    recorder: RunRecorder,
) -> tuple[JsonObject, dict[str, ReuseSchedule | None]]:
    """Load a checkpoint and record its arms; its facts, and the arms' schedules."""
    facts = {**load(engine, model), "prompts_sha256": renderer.fingerprint()}
    facts["dense_tokens"] = dense_tokens(model)
    schedules = {arm.name: _schedule(engine, arm) for arm in arms}
    for arm in arms:
        recorder.describe(arm, model, facts, schedules[arm.name])
    recorder.write()
    return facts, schedules


def _lacks(todo: RunPlan, done: Collection[str], record: RunRecord) -> bool:
    """Whether an arm lacks answers; those to samples that were taken out do not count."""
    return len(done) - len(record.taken_out(done)) < todo.samples


def _models(todo: RunPlan, stopping: StoppingRule | None) -> list[str]:
    """Checkpoints, each once; where arms may stop early, the one of the baseline first."""
    models = list(dict.fromkeys(todo.models.values()))
    if stopping is None:
        return models
    return sorted(models, key=lambda model: model != todo.models[stopping.baseline])


def _exclude(arms: Iterable[str], stopping: StoppingRule | None) -> None:
    """Leave arms without answers out of every decision."""
    if stopping is not None:
        for name in arms:
            stopping.exclude(name)


def _undecided(
    arms: Sequence[ArmConfig], task: str, stopping: StoppingRule | None
) -> list[ArmConfig]:
    """Arms that need more samples of a task."""
    return [arm for arm in arms if stopping is None or not stopping.done(arm.name, task)]


def _answer(
    todo: RunPlan,
    recorder: RunRecorder,
    turns: Sequence[Turn],
    stopping: StoppingRule | None,
    done: Mapping[str, dict[str, str | None]],
) -> None:
    """Answer all blocks, what other runs have answered first, and note the evidence."""
    if not turns:
        return
    arms, by_name = [turn.arm for turn in turns], {turn.arm.name: turn for turn in turns}
    renderer, store = turns[0].renderer, turns[0].store
    items = store.read_items()
    for prompts in _turns(blocks(todo, renderer, arms, stopping), todo.config.engine):
        store.add_items(prompts, items)
        asked = [by_name[a.name] for a in _undecided(arms, prompts[0].sample.task, stopping)]
        for turn in asked:
            if verdict := turn.recall(prompts, done[turn.arm.name]):
                recorder.note_engagement(turn.arm.name, {"verdict": verdict})
        for name in _block(todo, asked, prompts, done):
            proof = evidence(by_name[name].engine, name)
            recorder.note_engagement(name, proof)
            by_name[name].keep_for_others(str(proof["verdict"]))


def _block(
    todo: RunPlan,
    turns: Sequence[Turn],
    prompts: Sequence[Prompt],
    done: Mapping[str, Mapping[str, str | None]],
) -> Iterator[str]:
    """Answer a block, arms that read it alike together; names of those with something to do."""
    finished = {turn.arm.name: turn.finished(prompts, done[turn.arm.name]) for turn in turns}
    left = {t.arm.name: t for t in turns if len(finished[t.arm.name]) < len(prompts)}
    arms, schedules = [t.arm for t in left.values()], {n: t.schedule for n, t in left.items()}
    if any(prompt.sample.followup is not None for prompt in prompts):
        groups = [[arm] for arm in arms]  # a second question quotes the arm's own answer
    else:
        groups = prefill_groups(arms, schedules, todo.config.compare.repeat_of_baseline)
    for group in groups:
        engine = left[group[0].name].engine
        if isinstance(engine, SharingEngine) and len(group) > 1:
            asks = [Ask(arm, schedules[arm.name], finished[arm.name]) for arm in group]
            for name, batch in answers_together(engine, asks, prompts):
                left[name].keep(prompts, batch)
        else:
            for arm in group:
                left[arm.name].block(prompts, finished[arm.name])
        yield from (arm.name for arm in group)


def _check(
    todo: RunPlan,
    needs: Sequence[Need],
    engine: Engine,
    arms: Sequence[ArmConfig],
    schedules: Mapping[str, ReuseSchedule | None],
    recorder: RunRecorder,
) -> dict[str, str]:
    """Ask servers whether they run the schedules of their arms; the reasons of those that do not.

    Nothing is recorded under the name of an arm that is not engaged.

    Raises:
        EvalkitError: a cell is too long for a server that tells its window.
    """
    from evalkit.engagement.check import check_arm
    from evalkit.engagement.evidence import checked_arms
    from evalkit.engines.openai.engine import OpenAIServerEngine

    if not isinstance(engine, OpenAIServerEngine):
        raise TypeError(f"{type(engine).__name__}: an engine with servers derives from ours")
    refused: dict[str, str] = {}
    positions: dict[str, int] = {}
    for arm in arms:
        try:
            others = checked_arms(recorder.run.arms)
            check = check_arm(engine, arm, schedules[arm.name], others)
        except EvalkitError as error:
            refused[arm.name] = str(error)
            continue
        recorder.note_check(arm.name, check.record())
        if check.verdict == "not engaged":
            refused[arm.name] = f"not engaged: {check.reason}{check.start_hint}"
        elif check.positions is not None:
            positions[arm.name] = check.positions
    require_fit(todo, needs, positions)
    return refused


def blocks(
    todo: RunPlan,
    renderer: Renderer,
    arms: Sequence[ArmConfig] = (),
    stopping: StoppingRule | None = None,
) -> Iterator[list[Prompt]]:
    """Rendered samples, block by block, each within one cell; none for arms that are done."""
    for task in todo.tasks:
        count = todo.count(task)
        order = range(count) if stopping is None else stopping.order(task, count, renderer)
        stream = (renderer.render(sample) for sample in samples(task, renderer, order))
        size = BLOCK_SAMPLES if stopping is None else stopping.look
        while block := list(_take_block(stream, size)):
            yield block
            if stopping is not None and not _undecided(arms, task.name, stopping):
                break


def _turns(rendered: Iterator[list[Prompt]], engine: Strict) -> Iterator[list[Prompt]]:
    """Blocks cut into the turns that arms take on their servers, so that drift hits all alike."""
    turn_samples = ENGINES.of(engine).turn_samples
    size = BLOCK_SAMPLES if turn_samples is None else turn_samples(engine)
    for block in rendered:
        for start in range(0, len(block), size):
            yield block[start : start + size]


def _take_block(stream: Iterator[Prompt], size: int) -> Iterator[Prompt]:
    tokens = 0
    for prompt in islice(stream, size):
        yield prompt
        tokens += len(prompt.token_ids)
        if tokens >= BLOCK_TOKENS:
            return


def _schedule(engine: Engine, arm: ArmConfig) -> ReuseSchedule | None:
    native = engine.native()
    if native is None:
        if not arm.is_native or arm.selection is not None:
            raise EvalkitError(f"arm {arm.name}: this model has no lightning indexer")
        return None
    return arm.schedule(native)
