"""The prompts of a run as text, for whoever must not train on them."""

from __future__ import annotations

from collections.abc import Iterator

from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import load_tokenizer
from evalkit.run.plan import RunPlan
from evalkit.tasks.base import samples


def prompt_texts(todo: RunPlan) -> Iterator[tuple[str, str]]:
    """Sample id and text of every prompt, once per checkpoint of the arms.

    Raises:
        EvalkitError: a cell cannot be asked, or its data are not there.
    """
    for model in dict.fromkeys(todo.models.values()):
        renderer = ChatRenderer(load_tokenizer(model), todo.config.prompts)
        for task in todo.tasks:
            for sample in samples(task, renderer, range(todo.count(task))):
                yield sample.id, renderer.render(sample).text
