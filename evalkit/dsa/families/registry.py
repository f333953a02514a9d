"""One adapter per model family: where the indexer sits, how its call is read, how it scores.

The seam is the sub-module named ``indexer`` that every family calls to get top-k indices. Arguments
are bound by *position in the installed signature*, never by keyword name, because those are being
renamed between releases. Facts per family: docs/families.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from evalkit.dsa.families import deepseek_v4
from evalkit.dsa.families.base import Family, UnsupportedModelError
from evalkit.dsa.families.mla import _mla_features
from evalkit.dsa.features import (
    rotate_half_split,
    rotate_interleaved,
    rotate_pairs,
)

# -- MLA families: keys of single tokens ---------------------------------------------------------


# -- the registry --------------------------------------------------------------------------------

_MLA = (
    "hidden_states",
    "q_resid",
    "position_embeddings",
    "attention_mask",
    "position_ids",
    "cache",
)
_HALF_FIRST = Family(_MLA, _mla_features(rotate_half_split, "first"))
_INTERLEAVED_FIRST = Family(_MLA, _mla_features(rotate_interleaved, "first"))

FAMILIES: Mapping[str, Family] = {
    "deepseek_v32": _HALF_FIRST,
    "axk2": _HALF_FIRST,
    "glm_moe_dsa": _INTERLEAVED_FIRST,
    "dots3_note_text": _INTERLEAVED_FIRST,
    "hy_v4": Family(_MLA, _mla_features(rotate_half_split, "last")),
    "hy_v4_vl_text": Family(_MLA, _mla_features(rotate_pairs, "last")),
    "mistral_large4_text": Family(
        ("hidden_states", "position_embeddings", "attention_mask", "position_ids", "cache"),
        _mla_features(rotate_interleaved, "first"),
    ),
    "glm5_next_text": Family(
        ("hidden_states", "q_resid", "attention_mask", "cache"),
        None,
        note="glm5_next scores pools of tokens and always adds a tail",
    ),
    "deepseek_v4": Family(
        ("hidden_states", "q_resid", "position_ids", "cache", "layer_idx"),
        deepseek_v4.features,
        deepseek_v4.advance,
        padding=False,
        sentinel=True,
    ),
}

# Models whose attention has a module called `indexer` that is not a lightning indexer.
_REFUSED = {
    "qwen4_exp_text": "its QSA indexer returns a token mask over mean-pooled blocks, not top-k"
    " positions of a lightning indexer",
    "minimax_m3_vl_text": "its indexer selects blocks per key-value head, not positions",
}


def family_of(model_type: str) -> Family:
    """The adapter of a (text) model type.

    Raises:
        UnsupportedModelError: no adapter; the reason is given where one is known.
    """
    if model_type in _REFUSED:
        raise UnsupportedModelError(f"{model_type} is not supported: {_REFUSED[model_type]}")
    if model_type not in FAMILIES:
        raise UnsupportedModelError(
            f"{model_type} is not supported: it has no lightning indexer known here"
            f" (supported: {', '.join(sorted(FAMILIES))})"
        )
    return FAMILIES[model_type]
