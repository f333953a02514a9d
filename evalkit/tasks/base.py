"""What a task is: a named, seeded, lazily evaluated list of samples; and what a kind of task is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from evalkit.core.errors import EvalkitError
from evalkit.core.kinds import C, Kind
from evalkit.core.plugins import package_of, running
from evalkit.core.types import Renderer, Sample

if TYPE_CHECKING:
    from evalkit.tasks.common.summary import Scored, Summary


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


@runtime_checkable
class SharedHaystacks(Protocol):
    """A task that knows beforehand how many haystacks its samples share."""

    @property
    def shared_haystacks(self) -> int | None:
        """Different haystacks of the whole task; None where every sample has its own."""
        ...


@runtime_checkable
class UnevenPrompts(Protocol):
    """A task whose prompts are as long as its data, and that knows which is the longest."""

    def longest(self, count: int) -> int:
        """Position of the sample with the most characters among the first `count`; cheap."""
        ...


@dataclass(frozen=True, slots=True)
class Dataset:
    """How the hub calls what a cell was made of.

    Attributes:
        type: id of the data set, or our kind of task where it is generated.
        name: for people.
        config: configuration of the data set.
        split: of the data set.
        hub: whether the data set is on the hub.
    """

    type: str
    name: str
    config: str | None = None
    split: str | None = None
    hub: bool = False


@dataclass(frozen=True, kw_only=True)
class TaskKind(Kind[C]):
    """A kind of task that a recipe can name, and all that others ask about it.

    Attributes:
        build: the cells of a section, one task each; the second argument is the recipe's folder.
        descriptions: one line for every task of the kind, by its name; needs no data.
        columns: column of a report by the name of a cell before ``@`` and ``/`` (a shell pattern),
            in the order of the table. Cells without one are a column of their own.
        chooses: fields of a section that only say which cells there are, and how many samples they
            have: a run may change them, and add samples.
        summaries: what the benchmark itself reports beside the mean of a cell.
        dataset: of a cell, for model cards; None: it is generated.
        contents: checksums of the files that a section names, by the field that names them; in the
            identity of a run they take the place of where the files lie.
        reads: whether its samples are texts that an engine reads (`Sample.scored_from`), instead of
            questions that it answers.
    """

    build: Callable[[C, Path], Sequence[Task]]
    descriptions: Callable[[], Mapping[str, str]]
    columns: Mapping[str, str] = field(default_factory=dict)
    chooses: tuple[str, ...] = ()
    summaries: Callable[[Scored], Sequence[Summary]] = lambda _: ()
    dataset: Callable[[str], Dataset] | None = None
    contents: Callable[[C, Path], Mapping[str, str]] = lambda *_: {}
    reads: bool = False

    def column(self, cell: str) -> str | None:
        """Column of a report that a cell belongs to; None for a cell of another kind."""
        name = cell.partition("@")[0].partition("/")[0]
        return next((c for pattern, c in self.columns.items() if fnmatchcase(name, pattern)), None)


def samples(
    task: Task, renderer: Renderer, indices: Sequence[int] | None = None
) -> Iterator[Sample]:
    """The samples of a task in order, made as they are consumed.

    Raises:
        EvalkitError: the task of another package makes something else than samples of its own.
    """
    package = package_of(task)
    for index in range(len(task)) if indices is None else indices:
        with running(package):
            sample = task.sample(index, renderer)
        if not isinstance(sample, Sample) or sample.task != task.name:
            raise EvalkitError(f"{package}: {task.name}: sample {index} is no Sample of this task")
        yield sample
