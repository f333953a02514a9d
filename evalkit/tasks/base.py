"""What a task is: a named, seeded, lazily evaluated list of samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from evalkit.core.types import Renderer, Sample


class Task(Protocol):
    """A benchmark at one setting, bound to its parameters.

    A task is a finite sequence: ``sample(i, renderer)`` is a pure function of the task's
    parameters, its seed, ``i`` and the renderer's tokenizer, so any subset in any order or
    process yields the same samples.
    """

    @property
    def name(self) -> str:
        """The cell that is scored and reported, such as ``niah_single_1@512``."""
        ...

    @property
    def deviations(self) -> Mapping[str, Any]:
        """Departures from the official benchmark, for the report; empty if there are none."""
        ...

    def __len__(self) -> int:
        """Number of samples."""
        ...

    def sample(self, index: int, renderer: Renderer) -> Sample:
        """Sample `index` (0-based); raises EvalkitError when the setting is impossible."""
        ...


def samples(
    task: Task, renderer: Renderer, indices: Sequence[int] | None = None
) -> Iterator[Sample]:
    """The samples of a task in order, made as they are consumed."""
    for index in range(len(task)) if indices is None else indices:
        yield task.sample(index, renderer)
