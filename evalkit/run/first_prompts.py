"""The first and the longest prompt of every cell, made before the first answer: does it fit?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from evalkit.config.engine import ENGINES
from evalkit.core.errors import EvalkitError
from evalkit.core.types import Prompt, Renderer
from evalkit.prompts.renderer import ChatRenderer
from evalkit.run.plan import RunPlan
from evalkit.run.prompt_texts import renderer_of
from evalkit.tasks.base import Task, UnevenPrompts, samples
from evalkit.tasks.registry import build

LONGEST = 2**24
"""No length is tried beyond this one."""

SHOWN = 6


@dataclass(frozen=True, slots=True)
class Need:
    """What the longest prompt of a cell takes.

    Attributes:
        cell: its name.
        prompt: tokens of the prompt.
        answer: most tokens of the answer, reasoning included.
        around: tokens of the prompt that the chat template adds.
        reasoning: tokens of the answer that no length of a task counts.
    """

    cell: str
    prompt: int
    answer: int
    around: int
    reasoning: int

    @property
    def size(self) -> int:
        """Positions of prompt and answer."""
        return self.prompt + self.answer


@dataclass(frozen=True, slots=True)
class Window:
    """What reads the prompts of some arms.

    Attributes:
        of: what it is, in words.
        positions: tokens of prompt and answer that it takes at most.
        needs: of the cells that it answers.
    """

    of: str
    positions: int
    needs: Sequence[Need]


def ask_first_prompts(todo: RunPlan, models: Sequence[str]) -> dict[str, list[Need]]:
    """Make first and longest prompt of every cell, so that what cannot be asked is known at once.

    Args:
        todo: the run.
        models: its checkpoints.

    Returns:
        what the longest prompts take, by checkpoint.

    Raises:
        EvalkitError: some cells cannot be asked. Names each, the smallest length that would do of
            one that is too short, and the window of what is too long for a checkpoint.
    """
    faults: list[str] = []
    needs: dict[str, list[Need]] = {}
    for model in models:
        renderer, needs[model] = renderer_of(todo.config, model), []
        for task in todo.tasks:
            if not todo.count(task):
                continue
            try:
                needs[model].append(_longest(task, todo.count(task), renderer))
            except EvalkitError as error:
                fits = _smallest_length(task, renderer) if "too short" in str(error) else None
                faults.append(
                    f"{error}{'' if fits is None else f'; it fits from length {fits} on'}"
                )
    faults = list(dict.fromkeys(faults))
    more = [f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
    faults = [*faults[:SHOWN], *more, *_too_long(todo, _windows(todo, needs))]
    if faults:
        raise EvalkitError(f"nothing was asked yet: {'; '.join(faults)}")
    return needs


def require_fit(todo: RunPlan, needs: Sequence[Need], positions: Mapping[str, int]) -> None:
    """Refuse cells whose longest prompt, with its answer, is longer than the servers of arms take.

    Args:
        todo: the run.
        needs: of the checkpoint that the servers serve.
        positions: tokens that they take at most, by arm.

    Raises:
        EvalkitError: names them, the smallest window that they do not fit into, and what would fit.
    """
    windows = [Window(f"the server of arm {arm}", its, needs) for arm, its in positions.items()]
    if faults := _too_long(todo, windows):
        raise EvalkitError(f"nothing was asked yet: {'; '.join(faults)}")


def _windows(todo: RunPlan, needs: Mapping[str, Sequence[Need]]) -> list[Window]:
    """The checkpoints whose window is known before they are loaded."""
    kind, windows = ENGINES.of(todo.config.engine), []
    for model, of_model in needs.items():
        positions = kind.positions(todo.config.engine, model)
        if positions is not None:
            arm = next(name for name, its in todo.models.items() if its == model)
            name = f"the checkpoint of arm {arm} ({Path(model).name})"
            windows.append(Window(name, positions, of_model))
    return windows


def _too_long(todo: RunPlan, windows: Sequence[Window]) -> list[str]:
    """A sentence for every window that binds some cells; a cell is named with its smallest one."""
    binding: dict[str, tuple[Window, Need]] = {}
    for window in sorted(windows, key=lambda window: window.positions):
        for need in window.needs:
            if need.size > window.positions:
                binding.setdefault(need.cell, (window, need))
    sentences = []
    for window in windows:
        needs = [need for its, need in binding.values() if its is window]
        if needs:
            cells = ", ".join(f"{n.cell} ({n.prompt} + {n.answer} tokens)" for n in needs)
            would = dict.fromkeys(_what_fits(todo, need, window.positions) for need in needs)
            sentences.append(
                f"too long for the {window.positions} positions of {window.of}, prompt and answer"
                f" together: {cells}; what fits: {', '.join(would)}"
            )
    return sentences


def _what_fits(todo: RunPlan, need: Need, positions: int) -> str:
    """What to write into the section of a cell."""
    section = next(
        config
        for config in todo.config.tasks
        if need.cell in {task.name for task in build(config, todo.base_dir)}
    )
    most = max(0, positions - need.reasoning)
    if getattr(section, "max_length", None) is not None:
        return f"max_length up to {max(0, positions - need.answer - need.around)}"
    if (
        getattr(section, "unit", "tokens") != "tokens"
        or "lengths" not in type(section).model_fields
    ):
        return "shorter prompts, or a smaller max_new_tokens"
    if getattr(section, "lengths", None) is None:
        return f"lengths = [{most}], which cuts the middle out of what is longer"
    return f"lengths up to {most}"


def _longest(task: Task, count: int, renderer: ChatRenderer) -> Need:
    """What the longest prompt of a cell takes; its first one is made, too."""
    indices = {0, task.longest(count)} if isinstance(task, UnevenPrompts) else {0}
    prompt = max(_ask(task, renderer, sorted(indices)), key=lambda prompt: prompt.size)
    around = renderer.overhead(chat=prompt.sample.chat)
    answer, reads = prompt.max_new_tokens, prompt.sample.scored_from
    return Need(
        task.name, len(prompt.token_ids), answer, around, 0 if reads else prompt.reasoning_tokens
    )


def _ask(task: Task, renderer: Renderer, indices: Sequence[int] = (0,)) -> list[Prompt]:
    return [renderer.render(sample) for sample in samples(task, renderer, indices)]


def _smallest_length(task: Task, renderer: Renderer) -> int | None:
    """The smallest length at which the first prompt of a cell fits; None where it has none."""
    if not is_dataclass(task) or "length" not in {field.name for field in fields(task)}:
        return None

    def fits(length: int) -> bool:
        try:
            _ask(_of_length(task, length), renderer)
        except EvalkitError as error:
            if "too short" in str(error):
                return False
            raise
        return True

    low: int = task.length
    high = 2 * low
    try:
        while not fits(high):
            low, high = high, 2 * high
            if high > LONGEST:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
    except EvalkitError:  # for another reason: that one is said of the cell itself
        return None
    return high


def _of_length(task: Any, length: int) -> Task:  # a dataclass of whatever kind of task
    changed: Task = replace(task, length=length)
    return changed
