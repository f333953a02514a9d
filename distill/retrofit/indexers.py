r"""Indexers for a converted model, copied from its own attention.

An indexer scores I[t,s] = Σ_h w[t,h] · ReLU(q[t,h]·k[s]) with one key for all index heads, k =
LayerNorm(W_k n), rotated like the attention's keys. The copy start takes

- index queries: those of the attention heads, in the order of the indexer's rotation. After the
  rotation q[t,h]·W_k n[s] is the attention logit of head h, up to one factor (no approximation);
- index key: the key-value heads side by side. Its LayerNorm is the first approximation: it divides
  each key by its own length;
- head weights: the same for all heads, read from the constant channel. That channel of n is
  positive and differs by token t only, so that it cannot change an order of keys;
- ReLU in place of the softmax's exponential: the second approximation.

With fewer index heads than attention heads, an index head takes the sum of the queries of several
attention heads. Heads of different key-value heads are put together first: their queries occupy
different dims of the key, so that only the ReLU of a sum stands in for the sum of two.

A bias b of the keys goes behind the LayerNorm, b / σ, with σ = ‖W_k‖_F / √(G·d): the standard
deviation of W_k n for directions n without preference.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from distill.retrofit.dense import DenseModel
from distill.retrofit.rotary import pair_order
from distill.retrofit.weights import LayerMaps, padded_width

HALF_SPLIT = ("deepseek_v32",)  # families whose indexer rotates halves; the others rotate pairs


def head_groups(heads: int, groups: int, index_heads: int) -> tuple[tuple[int, ...], ...]:
    """Which attention heads each index head takes, in one partition of all heads.

    Heads are ordered by their place in their key-value head first, so that neighbours in the order
    belong to different key-value heads; the order is cut into parts of nearly equal size.
    """
    share = heads // groups
    if index_heads == heads:
        return tuple((head,) for head in range(heads))
    order = [group * share + place for place in range(share) for group in range(groups)]
    cuts = [round(part * heads / index_heads) for part in range(index_heads + 1)]
    return tuple(tuple(sorted(order[start:end])) for start, end in pairwise(cuts))


def copied_indexer(
    dense: DenseModel, maps: LayerMaps, parts: tuple[tuple[int, ...], ...], family: str
) -> dict[str, Tensor]:
    """Tensors of one layer's indexer, by name within the indexer.

    Args:
        dense: the model converted.
        maps: queries and keys of the layer.
        parts: attention heads of each index head.
        family: model type of the target.
    """
    order = pair_order(dense.groups, dense.head_dim, interleaved=family not in HALF_SPLIT)
    query = torch.stack([maps.query[list(heads)].sum(0) for heads in parts])[:, order]
    key, hidden = maps.key[order], dense.config.hidden_size
    bias = torch.zeros(len(order), dtype=torch.float64)
    if maps.key_bias is not None:
        bias = maps.key_bias[order] / (key.norm() / math.sqrt(len(order)))
    weight = torch.zeros(len(parts), padded_width(hidden), dtype=torch.float64)
    weight[:, hidden] = 1.0 / math.sqrt(hidden * dense.config.rms_norm_eps)
    return {
        "wq_b.weight": query.flatten(0, 1),
        "wk.weight": key,
        "k_norm.weight": torch.ones(len(order)),
        "k_norm.bias": bias,
        "weights_proj.weight": weight,
    }


def empty_indexer(dense: DenseModel, latent: int) -> dict[str, Tensor]:
    """Tensors of an indexer with one head that scores every key 0."""
    width, hidden = dense.groups * dense.head_dim, padded_width(dense.config.hidden_size)
    return {
        "wq_b.weight": torch.zeros(width, latent),
        "wk.weight": torch.zeros(width, hidden),
        "k_norm.weight": torch.ones(width),
        "k_norm.bias": torch.zeros(width),
        "weights_proj.weight": torch.zeros(1, hidden),
    }
