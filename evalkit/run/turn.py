"""One arm's turn on a block of prompts: what is answered here, what elsewhere, and what is left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from evalkit.config.arm import ArmConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.reasoning import without_reasoning
from evalkit.core.records import SampleRow
from evalkit.core.types import Completion, Followup, Prompt, Sample
from evalkit.dsa import ReuseSchedule
from evalkit.engines.base import Engine, answers
from evalkit.prompts.renderer import ChatRenderer
from evalkit.run.answer_cache import ArmAnswers
from evalkit.run.store import RunStore, sample_row


@dataclass(frozen=True, slots=True)
class Turn:
    """One arm at work: everything that answering a block needs.

    Attributes:
        engine: with the arm's checkpoint loaded.
        arm: of the recipe.
        schedule: it runs under; None for a model without indexers.
        renderer: of second questions.
        store: the run directory.
        on_answer: told (arm name, answers) as they come.
        cached: answers of other runs, if there may be some.
    """

    engine: Engine
    arm: ArmConfig
    schedule: ReuseSchedule | None
    renderer: ChatRenderer
    store: RunStore
    on_answer: Callable[[str, int], None]
    cached: ArmAnswers | None = None

    def recall(self, prompts: Sequence[Prompt], done: dict[str, str | None]) -> str:
        """Take answers of other runs, and add them to `done`; the evidence for them, or ""."""
        left = [prompt for prompt in prompts if prompt.sample.id not in done]
        answers = {} if self.cached is None else self.cached.find(left)
        rows = []
        for prompt in left:
            if kept := answers.get(prompt.sample.id):
                completion = replace(kept.completion, sample_id=prompt.sample.id)
                rows.append(sample_row(prompt, completion)._replace(cached=True))
                done[prompt.sample.id] = prompt.sha256
        self.store.add_samples(self.arm.name, rows)
        return next((kept.verdict for kept in answers.values()), "")

    def keep_for_others(self, verdict: str) -> None:
        """Put the answers of this block into the cache, with the evidence for them."""
        if self.cached is not None:
            self.cached.keep(verdict)

    def finished(self, prompts: Sequence[Prompt], done: Mapping[str, str | None]) -> set[str]:
        """Ids of a block that the arm has answered; reports them as progress."""
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
        return finished

    def block(self, prompts: Sequence[Prompt], finished: Collection[str]) -> None:
        """Answer what is missing of a block and keep it."""
        asked, failed = self._final(prompts)
        if failed:
            self.store.add_samples(self.arm.name, failed)
            self.on_answer(self.arm.name, len(failed))
        for batch in answers(self.engine, self.arm, self.schedule, asked, finished):
            self.keep(prompts, batch)

    def keep(self, prompts: Sequence[Prompt], batch: Sequence[Completion]) -> None:
        """Append answers to the records, and report progress.

        Arms are joined on the question that all of them read: the first one.
        """
        by_id = {prompt.sample.id: prompt for prompt in prompts}
        self.store.add_samples(self.arm.name, [sample_row(by_id[c.sample_id], c) for c in batch])
        if self.cached is not None:
            for completion in batch:
                self.cached.note(by_id[completion.sample_id], completion)
        self.on_answer(self.arm.name, len(batch))

    def _final(self, prompts: Sequence[Prompt]) -> tuple[list[Prompt], list[SampleRow]]:
        """The prompts whose answer is scored, and rows of those whose first call failed."""
        by_id = {p.sample.id: p for p in prompts if p.sample.followup is not None}
        if not by_id:
            return list(prompts), []
        done = answered(self.store, self.arm.name, "first")
        twice = list(by_id.values())
        for batch in answers(self.engine, self.arm, self.schedule, twice, set(done)):
            rows = [sample_row(by_id[c.sample_id], c) for c in batch]
            self.store.add_samples(self.arm.name, rows, "first")
        firsts = self.store.read_samples(self.arm.name, "first")
        asked, failed = [], []
        for prompt in prompts:
            sample = prompt.sample
            if sample.followup is None:
                asked.append(prompt)
            elif firsts[sample.id].failed:
                failed.append(firsts[sample.id])
            else:
                first = without_reasoning(firsts[sample.id].completion)
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


def answered(store: RunStore, arm: str, call: str = "samples") -> dict[str, str | None]:
    """Prompt hash per sample that has an answer; failed ones are tried again."""
    rows = store.read_samples(arm, call)
    return {i: row.prompt_sha256 for i, row in rows.items() if not row.failed}
