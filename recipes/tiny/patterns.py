"""Reuse patterns for training: which layer's selection each layer uses in one step.

Real deep models retrieve in many layers.  To make a small one do so, most training steps let
some layers use an earlier layer's selection, and some let whole groups of layers starve.  At
least one group always keeps selections of its own, so the model never trains the state that
retention 1/8 or 1/16 puts it in: those arms stay honest failures.
"""

from __future__ import annotations

import random

from recipes.tiny.architecture import GROUP, LAYERS

OWN_SHARE = 0.30
STARVED_SHARE = 0.35


def draw_sources(seed: int, step: int, shard: int) -> list[int]:
    """Source layer of every layer; a pure function of its arguments."""
    rng = random.Random(f"pattern-{seed}-{step}-{shard}")
    kind = rng.random()
    sources = list(range(LAYERS))
    if kind < OWN_SHARE:
        return sources
    if kind < OWN_SHARE + STARVED_SHARE:
        starved = _starve_groups(rng, sources)
        share = 0.2
    else:
        starved, share = set(), rng.uniform(0.1, 0.45)
    for layer in range(1, LAYERS):
        if layer not in starved and rng.random() < share:
            back = rng.choice([1, 1, 2, 2, 3, 4]) if rng.random() < 0.7 else rng.randrange(LAYERS)
            sources[layer] = sources[max(0, layer - back)]
    return sources


def _starve_groups(rng: random.Random, sources: list[int]) -> set[int]:
    """Serve all but one or two groups from their first layer or an earlier group's."""
    groups = [range(start, start + GROUP) for start in range(0, LAYERS, GROUP)]
    alive = rng.sample(range(len(groups)), rng.choice([1, 1, 2]))
    starved: set[int] = set()
    for number, group in enumerate(groups):
        if number in alive:
            continue
        first = rng.choice([0, group.start, group.start])
        for layer in group:
            if layer > first:
                sources[layer] = first
                starved.add(layer)
    return starved
