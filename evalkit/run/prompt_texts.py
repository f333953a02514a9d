"""The prompts of a run as text: for whoever must not train on them, and for whoever reads answers.

Records hold a hash of every prompt, not its text, which may be a megabyte long: it is made again
from recipe, data and tokenizer, and is shown only where its hash is that of the answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from evalkit.config.engine import ENGINES
from evalkit.config.run import RunConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.core.records import RunRecord
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import load_tokenizer
from evalkit.run.plan import RunPlan
from evalkit.tasks.base import Task, samples
from evalkit.tasks.registry import build_all


def prompt_texts(todo: RunPlan) -> Iterator[tuple[str, str]]:
    """Sample id and text of every prompt, once per checkpoint of the arms.

    Raises:
        EvalkitError: a cell cannot be asked, or its data are not there.
    """
    for model in dict.fromkeys(todo.models.values()):
        renderer = renderer_of(todo.config, model)
        for task in todo.tasks:
            for sample in samples(task, renderer, range(todo.count(task))):
                yield sample.id, renderer.render(sample).text


def renderer_of(config: RunConfig, model: str) -> ChatRenderer:
    """What makes the prompts that a run asks a checkpoint."""
    in_user_turn = ENGINES.of(config.engine).prefix_in_user_turn(config.engine)
    return ChatRenderer(load_tokenizer(model), config.prompts, prefix_in_user_turn=in_user_turn)


class RecordedPrompts:
    """The prompts of recorded runs, one by one; a sample of several runs is that of its hash.

    Attributes:
        missing: why the last one asked for is not known; empty as long as all were.
    """

    def __init__(self, *runs: RunRecord) -> None:
        self.missing = ""
        self._runs = [_RunPrompts(run) for run in runs]

    def text(self, sample_id: str, sha256: str | None) -> str | None:
        """The prompt of a sample, if its hash is `sha256`; else None."""
        for prompts in self._runs:
            text = prompts.text(sample_id, sha256)
            if text is not None:
                return text
        self.missing = self._runs[0].missing
        return None


class _RunPrompts:
    """Those of one run; `missing` is why the last one asked for is not known."""

    def __init__(self, run: RunRecord) -> None:
        self.missing = ""
        self._run = run
        self._unusable = ""

    def text(self, sample_id: str, sha256: str | None) -> str | None:
        """The prompt of a sample, if its hash is `sha256`; else None."""
        if sha256 is None:
            self.missing = "prompts of imported predictions are not recorded"
            return None
        try:
            text = self._text(sample_id, sha256)
        except EvalkitError as error:
            self.missing = str(error)
            return None
        if text is None:
            self.missing = (
                f"that of {sample_id} came out otherwise than when it was asked: data, tokenizer"
                " or this program changed since"
            )
        return text

    def _text(self, sample_id: str, sha256: str) -> str | None:
        name, _, index = sample_id.rpartition("/")
        if self._unusable:
            raise EvalkitError(self._unusable)
        try:
            renderer, tasks = self._setup
        except EvalkitError as error:
            self._unusable = str(error)
            raise
        if name not in tasks or not index.isdecimal():
            raise EvalkitError(f"the recorded recipe makes no {sample_id}")
        for sample in samples(tasks[name], renderer, [int(index)]):
            prompt = renderer.render(sample)
            if sample.id == sample_id and prompt.sha256 == sha256:
                return prompt.text
        return None

    @cached_property
    def _setup(self) -> tuple[ChatRenderer, Mapping[str, Task]]:
        """The renderer, and the tasks by name.

        Raises:
            EvalkitError: tokenizer, data or the recipe's folder are not there.
        """
        if not self._run.invocations:
            raise EvalkitError("an earlier version did not record where its recipe lay")
        config = parse(self._run.recipe, RunConfig, "the recorded recipe")
        folder = Path(self._run.invocations[-1].folder)
        model = next((arm.model for arm in self._run.arms if arm.model and not arm.imported), "")
        if Path(model).is_absolute() and not Path(model).exists():
            raise EvalkitError("the model, whose tokenizer makes them, is no longer where it was")
        return renderer_of(config, model), {
            task.name: task for task in build_all(config.tasks, folder)
        }
