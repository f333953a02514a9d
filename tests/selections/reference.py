"""Every policy once more, one query and one key at a time, in plain Python."""

from __future__ import annotations

import math
from bisect import bisect

import torch

E4M3 = sorted(
    {
        (1 + m / 8) * 2.0 ** (e - 7) if e else m / 8 * 2.0**-6
        for e in range(16)
        for m in range(8)
        if (e, m) != (15, 7)
    }
)
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def score(query, weight, key, scale):
    """Σ_h w·ReLU(q·k)·scale of one query [H][d] and one key [d]."""
    total = 0.0
    for q, w in zip(query, weight, strict=True):
        dot = sum(a * b for a, b in zip(q, key, strict=True))
        total += w * max(0.0, dot) * scale
    return total


def mean(keys):
    """Of a few vectors."""
    return [sum(column) / len(keys) for column in zip(*keys, strict=True)]


def blocks_of(keys, block):
    """Numbers of the keys of each block."""
    return [list(range(i, min(i + block, len(keys)))) for i in range(0, len(keys), block)]


def best(scores, count):
    """Numbers of the largest scores, the earlier one first among equals."""
    return sorted(scores, key=lambda i: (-scores[i], i))[:count]


def full(query, weight, keys, scale, topk):
    """All keys scored by all heads; also the products that it took."""
    return best({i: score(query, weight, k, scale) for i, k in enumerate(keys)}, topk), (
        len(keys) * len(query)
    )


def hisa(query, weight, keys, scale, topk, *, block, blocks, as_key=lambda mean: mean):
    """Best blocks by their mean, the first and the last always, then keys inside them."""
    groups = blocks_of(keys, block)
    products, kept = 0, range(len(groups))
    if len(groups) > blocks:
        means = [as_key(mean([keys[i] for i in g])) for g in groups]
        coarse = {b: score(query, weight, m, scale) for b, m in enumerate(means)}
        products = len(groups) * len(query)
        coarse[0] = coarse[len(groups) - 1] = math.inf
        kept = best(coarse, blocks)
    scores = {i: score(query, weight, keys[i], scale) for b in kept for i in groups[b]}
    return best(scores, topk), products + len(scores) * len(query)


def misa(query, weight, keys, scale, topk, *, heads, block, candidates=None):
    """Heads by what they make of the blocks' means, then keys by those heads."""
    if heads >= len(query) or len(keys) <= (candidates or 0):
        return full(query, weight, keys, scale, topk)
    groups = [mean([keys[i] for i in g]) for g in blocks_of(keys, block)]
    energy = {
        h: sum(abs(score([query[h]], [weight[h]], m, 1.0)) for m in groups) / len(groups)
        for h in range(len(query))
    }
    chosen = sorted(best(energy, heads))
    few, less = [query[h] for h in chosen], [weight[h] for h in chosen]
    scores = {i: score(few, less, k, scale) for i, k in enumerate(keys)}
    products = len(groups) * len(query) + len(keys) * heads
    if candidates is not None:
        again = best(scores, candidates)
        scores = {i: score(query, weight, keys[i], scale) for i in again}
        products += len(again) * len(query)
    return best(scores, topk), products


def nearest(value, levels):
    """Of the levels (codes 0, 1, 2 …) the nearest; between two the one with an even code."""
    size = abs(value)
    at = bisect(levels, size)
    near = range(max(0, at - 1), min(at + 1, len(levels)))
    code = min(near, key=lambda i: (abs(levels[i] - size), i % 2))
    return math.copysign(levels[code], value)


def rounded(vector, kind, *, powers=True):
    """A vector in blocks of 128 (fp8) or 32 (fp4) channels."""
    if kind == "unrounded":
        return vector
    size, top, levels, least = (
        (128, 448.0, E4M3, 1e-4) if kind == "fp8" else (32, 6.0, E2M1, 6 * 2.0**-126)
    )
    out = []
    for start in range(0, len(vector), size):
        part = vector[start : start + size]
        scale = max(*map(abs, part), least) / top
        if powers or kind == "fp4":
            scale = 2.0 ** math.ceil(math.log2(scale))
        out += [nearest(max(-top, min(top, v / scale)), levels) * scale for v in part]
    return out


def lists(features, row):
    """Query, head weights and visible keys of one row of the first sequence."""
    seen = int(features.positions.flatten()[row] + 1) // features.ratio
    return (
        features.query[0, row].double().tolist(),
        features.weight[0, row].double().tolist(),
        features.key[0, :seen].double().tolist(),
    )


def random_features(length, heads=4, width=8, seed=0, ratio=1):
    """Made-up features of one sequence; products are positive, or zeros would tie."""
    from evalkit.dsa import IndexFeatures

    torch.manual_seed(seed)
    return IndexFeatures(
        torch.randn(1, length, heads, width) + 1.5,
        torch.randn(1, length // ratio, width) + 1.5,
        torch.randn(1, length, heads),
        width**-0.5,
        torch.arange(length),
        ratio=ratio,
    )
