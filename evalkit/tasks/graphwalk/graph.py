"""Directed graphs whose answer is known: a core that decides it, and edges that cannot change it.

The answer is known by construction, so that a graph can grow to any length around it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

Edge = tuple[str, str]

OUT = 3
"""Edges that leave a node at most; 1 to `OUT` with equal chance."""

NEW = 0.6
"""Chance that an edge leads to a node not seen before."""


@dataclass(frozen=True, slots=True)
class Core:
    """The part of a graph that decides the answer.

    Attributes:
        node: the node that the question names.
        edges: all edges that decide the answer.
        answer: the asked nodes.
        sources: nodes of the core that further edges may leave.
        targets: nodes of the core that further edges may enter.
    """

    node: str
    edges: tuple[Edge, ...]
    answer: tuple[str, ...]
    sources: tuple[str, ...]
    targets: tuple[str, ...]


def frontier(steps: int, width: int, names: Iterator[str], source: random.Random) -> Core:
    """Nodes at exactly `steps` edges from the start; further edges leave only those nodes.

    Edges back to earlier levels and between nodes of one level occur, so that counting walks
    instead of shortest paths gives another answer.
    """
    start = next(names)
    levels = [[start]]
    edges: list[Edge] = []
    for _ in range(steps):
        level: list[str] = []
        for node in levels[-1]:
            seen = {node}
            for _ in range(source.randint(1, OUT)):
                known = [n for n in (*(n for lv in levels for n in lv), *level) if n not in seen]
                room = len(level) < width
                fresh = not level or (room and (not known or source.random() < NEW))
                if fresh:
                    level.append(next(names))
                elif not known:
                    break
                target = level[-1] if fresh else source.choice(known)
                seen.add(target)
                edges.append((node, target))
        levels.append(level)
    nodes = tuple(node for level in levels for node in level)
    last = tuple(levels[-1])
    return Core(start, tuple(edges), last, last, nodes)


def parents(width: int, names: Iterator[str], source: random.Random) -> Core:
    """Nodes with an edge to the asked one; no further edge enters it."""
    node = next(names)
    answer = tuple(islice(names, source.randint(1, width)))
    children = tuple(islice(names, source.randint(1, OUT)))
    edges = [(parent, node) for parent in answer] + [(node, child) for child in children]
    return Core(node, tuple(edges), answer, (*answer, *children), (*answer, *children))


def further(core: Core, names: Iterator[str], source: random.Random) -> Iterator[Edge]:
    """Distinct edges around a core that leave the answer as it is, without end."""
    targets = list(core.targets)
    waiting = list(core.sources)
    taken = set(core.edges)
    while True:
        if waiting:
            k = source.randrange(len(waiting))
            waiting[k], waiting[-1] = waiting[-1], waiting[k]
            node = waiting.pop()
        else:
            node = next(names)
            targets.append(node)
        for _ in range(source.randint(1, OUT)):
            if source.random() < NEW:
                target = next(names)
                targets.append(target)
                waiting.append(target)
            else:
                target = source.choice(targets)
            if target != node and (node, target) not in taken:
                taken.add((node, target))
                yield node, target
