"""A graph-walk cell as a task: `GraphWalkTask.sample(i, renderer)`."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Renderer, Sample
from evalkit.tasks.common.fit_length import Fitter, Grid
from evalkit.tasks.common.rng import permutation, rng
from evalkit.tasks.common.word_streams import read_words
from evalkit.tasks.graphwalk import graph
from evalkit.tasks.graphwalk.config import REASONING, GraphWalkConfig
from evalkit.tasks.graphwalk.draft import PREFIX, GraphDraft

FINE = 4096
"""Up to this length graphs grow by single edges, beyond it by 1/4096 of the length."""

EXAMPLE_WIDTH = 3
EXAMPLE_EDGES = 4
"""The solved example: nodes of its answer at most, and edges that do not matter."""


@dataclass(frozen=True)
class GraphWalkTask:
    """One operation at one length.

    Attributes:
        config: the recipe section.
        operation: ``frontier`` or ``parents``.
        length: in the section's unit.
        nodes: names of the nodes, or () for random ones.
    """

    config: GraphWalkConfig
    operation: str
    length: int
    nodes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``<name>_<operation>@<length>``, with ``chars`` behind a length in characters."""
        unit = "chars" if self.config.unit == "characters" else ""
        return f"{self.config.name}_{self.operation}@{self.length}{unit}"

    @property
    def deviations(self) -> dict[str, Any]:
        """Empty: the task is our own, there is nothing official to depart from."""
        return {}

    def __len__(self) -> int:
        """Number of samples."""
        return self.config.samples

    def sample(self, index: int, renderer: Renderer) -> Sample:
        """Sample `index`, its graph as large as fits into the length.

        Raises:
            EvalkitError: there is no such sample, the length is too short, or there are too few
                names; the message names the cell.
        """
        if not 0 <= index < len(self):
            raise EvalkitError(f"{self.name}: no sample {index} among {len(self)}")
        return self._fitter.sample(index, renderer)

    @cached_property
    def _fitter(self) -> Fitter:
        tokens = self.config.unit == "tokens"
        limit = self.length - (self.max_new_tokens if tokens else 0)
        return Fitter(self.name, limit, self._draft, self.config.unit)

    @cached_property
    def max_new_tokens(self) -> int:
        """Budget of the answer."""
        if self.config.max_new_tokens is not None:
            return self.config.max_new_tokens
        longest = max(map(len, self.nodes), default=self.config.digits)
        answer = 8 + self.config.width * (longest + 2)
        return answer + (0 if self.config.direct else REASONING)

    def _draft(self, index: int, _renderer: Renderer) -> GraphDraft:
        config = self.config
        source = partial(rng, self.name, config.seed, index)
        names = self._names(source("names"))
        steps = None
        if self.operation == "frontier":
            steps = config.steps[index % len(config.steps)]
        fine = config.unit == "characters" or self.length <= FINE
        solved = self._core(steps, EXAMPLE_WIDTH, names, source("example"))
        more = graph.further(solved, names, source("example further"))
        lines = [*solved.edges, *islice(more, EXAMPLE_EDGES)]
        source("example order").shuffle(lines)
        core = self._core(steps, config.width, names, source("core"))
        return GraphDraft(
            grid=Grid(0, 1 if fine else self.length // FINE),
            core=core,
            further=graph.further(core, names, source("further")),
            steps=steps,
            example=(solved, lines),
            order=lambda units: source(f"order/{units}"),
            finish=partial(self._finish, index),
        )

    def _core(
        self, steps: int | None, width: int, names: Iterator[str], source: random.Random
    ) -> graph.Core:
        if steps is None:
            return graph.parents(min(width, self.config.width), names, source)
        return graph.frontier(steps, min(width, self.config.width), names, source)

    def _finish(
        self, index: int, *, text: str, references: tuple[str, ...], meta: Mapping[str, Any]
    ) -> Sample:
        return Sample(
            id=f"{self.name}/{index}",
            task=self.name,
            text=text,
            references=references,
            metric=self.config.metric,
            max_new_tokens=self.max_new_tokens,
            answer_prefix=PREFIX if self.config.direct else "",
            cluster=f"{self.name}/{index}",
            meta={"length": self.length, "operation": self.operation, **meta},
        )

    def _names(self, source: random.Random) -> Iterator[str]:
        """Distinct names of nodes; EvalkitError when all are used."""
        digits = self.config.digits
        if self.nodes:
            yield from (self.nodes[i] for i in permutation(len(self.nodes), source))
            raise EvalkitError(f"{len(self.nodes)} names are too few for the nodes of a graph")
        yield from (f"{i:0{digits}x}" for i in permutation(16**digits, source))
        raise EvalkitError(f"{digits} digits make too few names for the nodes of a graph")


def build(config: GraphWalkConfig, base_dir: Path) -> list[GraphWalkTask]:
    """The cells of a recipe section, operation by operation.

    Raises:
        EvalkitError: the names beside the recipe cannot be used.
    """
    nodes: tuple[str, ...] = ()
    if config.nodes is not None:
        nodes = read_words(config.nodes, base_dir, "node")
        odd = next((name for name in nodes if not re.fullmatch(r"[a-z0-9_-]+", name)), None)
        if odd is not None:
            raise EvalkitError(
                f"{config.name}: {odd!r} is not a name of a node: use lower-case letters, digits,"
                " _ and -"
            )
    return [
        GraphWalkTask(config, operation, length, nodes)
        for operation in config.operations
        for length in config.lengths
    ]
