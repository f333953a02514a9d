"""The attention that layers with an indexer really pay, for some rows, one head at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from evalkit.dsa.families.base import UnsupportedModelError
from evalkit.dsa.families.seam import seam
from evalkit.dsa.features import take_rows

AttentionVisitor = Callable[[int, Tensor, Tensor, float, Tensor | None], None]


@contextmanager
def attention_seen(model: Any, visit: AttentionVisitor) -> Iterator[None]:
    """Show what attention is computed from, layer by layer, in forwards inside the block.

    `visit` is called as (ordinal, query [B, heads, S, d], key [B, heads, T, d], scale, mask).

    Raises:
        UnsupportedModelError: the model does not attend through transformers' ``sdpa`` interface
            (DeepSeek-V4: a sink and a local window share its softmax, so that the share of the
            selected keys is no distribution of its own).
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as FUNCTIONS

    where = seam(model)
    used = model.config.get_text_config()._attn_implementation
    if used != "sdpa" or where.family.sentinel:
        raise UnsupportedModelError(
            f"{where.layout.model_type}: no attention teacher (attention runs as {used}); use the"
            " indexers of the consumers"
        )
    ordinals = {id(owner): i for i, owner in enumerate(where.owners)}
    plain = FUNCTIONS["sdpa"]

    def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kw: Any) -> Any:
        if id(module) in ordinals:
            visit(ordinals[id(module)], query, key, kw["scaling"], mask)
        return plain(module, query, key, value, mask, **kw)

    FUNCTIONS["sdpa"] = attend
    try:
        yield
    finally:
        FUNCTIONS["sdpa"] = plain


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
