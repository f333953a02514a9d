"""Attention probabilities of layers with an indexer, for some rows, one head at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from evalkit.dsa.families.base import UnsupportedModelError
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.features import take_rows
from evalkit.dsa.transformers_model import text_config_of

AttentionVisitor = Callable[[int, Tensor, Tensor, float, Tensor | None], None]


def sees_attention(model: nn.Module) -> bool:
    """Whether the attention of a model's indexer layers can be observed.

    It runs through transformers' ``sdpa`` interface. Not DeepSeek-V4: a sink and a local window
    share its softmax, so that the share of the selected keys is no distribution of its own.
    """
    used = text_config_of(model)._attn_implementation
    return used == "sdpa" and not indexer_sites(model).family.sentinel


@contextmanager
def attention_seen(model: nn.Module, visit: AttentionVisitor) -> Iterator[None]:
    """Observe the inputs of attention, layer by layer, in forwards inside the block.

    `visit` is called as (ordinal, query [B, heads, S, d], key [B, heads, T, d], scale, mask).

    Raises:
        UnsupportedModelError: it cannot be observed, see `sees_attention`.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as FUNCTIONS

    sites = indexer_sites(model)
    if not sees_attention(model):
        used = text_config_of(model)._attn_implementation
        raise UnsupportedModelError(
            f"{sites.layout.model_type}: no attention teacher (attention runs as {used}); use the"
            " indexers of the consumers"
        )
    ordinals = {id(owner): i for i, owner in enumerate(sites.owners)}
    sdpa = FUNCTIONS["sdpa"]

    def attend(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        scaling: float | None = None,
        **options: object,
    ) -> object:
        if id(module) in ordinals:
            scale: float = query.shape[-1] ** -0.5 if scaling is None else scaling
            visit(ordinals[id(module)], query, key, scale, mask)
        return sdpa(module, query, key, value, mask, scaling=scaling, **options)

    FUNCTIONS["sdpa"] = attend
    try:
        yield
    finally:
        FUNCTIONS["sdpa"] = sdpa


def attention_share(query: Tensor, key: Tensor, scale: float, allowed: Tensor) -> Tensor:
    """log of the attention distribution, summed over heads and normalised, one head at a time.

    Args:
        query: rotated attention queries at the rows [B, heads, R, d].
        key: rotated attention keys [B, heads or fewer, T, d].
        scale: of the logits.
        allowed: bool [B, R, T]: keys that the layer attends to.

    Returns:
        fp32 [B, R, T], -inf where nothing is attended.
    """
    total = torch.zeros(allowed.shape, dtype=torch.float32, device=query.device)
    group = query.shape[1] // key.shape[1]
    low = torch.finfo(torch.float32).min
    with torch.autocast(query.device.type, enabled=False):  # fp32 whatever the forward runs in
        for head in range(query.shape[1]):
            keys = key[:, head // group].float().transpose(1, 2)
            logits = torch.bmm(query[:, head].float(), keys) * scale
            share = logits.masked_fill(~allowed, low).softmax(-1)
            total += share.masked_fill(~allowed, 0.0)
    return (total / total.sum(-1, keepdim=True).clamp(min=1e-30)).log()


def allowed_keys(rows: Tensor, keys: int, mask: Tensor | None, first: int = 0) -> Tensor:
    """bool [B, R, T]: what the mask [B, 1, S, T] lets the rows see, or all up to each row.

    Row 0 of the mask stands at position `first` of the text.
    """
    allowed = torch.arange(keys, device=rows.device) <= rows.unsqueeze(-1) + first
    if mask is None:
        return allowed
    seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    return allowed & take_rows(seen[:, 0].expand(rows.shape[0], -1, -1), rows)
