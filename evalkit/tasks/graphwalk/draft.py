"""One graph-walk sample with the number of edges still open."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from evalkit.core.types import Sample
from evalkit.tasks.common.fit_length import Grid
from evalkit.tasks.graphwalk.graph import Core, Edge

INTRO = (
    "A directed graph is given as a list of edges, one a line; the order of the lines means"
    ' nothing. The line "edge a -> b" is an edge from node a to node b.\n\n'
    "End your reply with one line of this form, the nodes in any order:\n"
    "Final answer: [node, node]\n\n"
)
EXAMPLE = "Example\n\n{edges}\n\nQuestion: {question}\nFinal answer: [{answer}]\n\n"
TASK = "Graph\n\n{edges}\n\nQuestion: {question}"
PREFIX = " Final answer:"

FRONTIER = (
    "Which nodes are exactly {steps} away from node {node}? These are the nodes whose shortest"
    " path from {node}, along the direction of the edges, has {edges}."
)
PARENTS = (
    "Which nodes are parents of node {node}? These are the nodes from which an edge leads to"
    " {node}."
)


@dataclass(frozen=True)
class GraphDraft:
    """What a sample is made of.

    Attributes:
        grid: numbers of further edges to choose from.
        core: what decides the answer.
        further: edges around the core, without end.
        steps: of the search, None for parents.
        example: a solved graph and its edges in order.
        order: the generator that shuffles the edges, by their number.
        finish: makes the sample of text, references and meta.
    """

    grid: Grid
    core: Core
    further: Iterator[Edge]
    steps: int | None
    example: tuple[Core, list[Edge]]
    order: Callable[[int], random.Random]
    finish: Callable[..., Sample]
    _drawn: list[Edge] = field(default_factory=list)

    def size(self, units: int) -> float:
        """Lines are all of about one length."""
        return units

    def build(self, units: int) -> Sample:
        """See `evalkit.tasks.common.fit_length.Draft`."""
        self._drawn.extend(islice(self.further, max(0, units - len(self._drawn))))
        edges = [*self.core.edges, *self._drawn[:units]]
        self.order(units).shuffle(edges)
        shown = question(self.core.node, self.steps)
        solved, lines = self.example
        example = EXAMPLE.format(
            edges=listed(lines),
            question=question(solved.node, self.steps),
            answer=", ".join(sorted(solved.answer)),
        )
        return self.finish(
            text=INTRO + example + TASK.format(edges=listed(edges), question=shown),
            references=tuple(sorted(self.core.answer)),
            meta={
                "question": shown,
                "steps": self.steps,
                "edges": len(edges),
                "nodes": len({node for edge in edges for node in edge}),
                "units": units,
            },
        )


def listed(edges: list[Edge]) -> str:
    """One edge a line."""
    return "\n".join(f"edge {source} -> {target}" for source, target in edges)


def question(node: str, steps: int | None) -> str:
    """The question about a node: so many steps away, or its parents."""
    if steps is None:
        return PARENTS.format(node=node)
    many = "" if steps == 1 else "s"
    return FRONTIER.format(node=node, steps=f"{steps} step{many}", edges=f"{steps} edge{many}")
