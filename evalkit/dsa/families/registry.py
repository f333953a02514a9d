"""The model families, one record each, by (text) model type.

What has to be known of a family is known here and nowhere else: layout, index features, engine
settings, export and checks read these records. All families call a sub-module named ``indexer``
that returns top-k positions; its arguments are bound by *position in the installed signature*,
because keyword names change between releases. Proofs per family: docs/schedules.md.
"""

from __future__ import annotations

from evalkit.dsa.families.base import Family, UnsupportedModelError
from evalkit.dsa.families.layer_rules import (
    deepseek_v41_layers,
    glm_types,
    hy_v4_types,
    longcat_layers,
)

_HIDDEN, _QUERY = "hidden_states", "q_resid"
_ROPE, _MASK, _POSITIONS = "position_embeddings", "attention_mask", "position_ids"
_MLA = (_HIDDEN, _QUERY, _ROPE, _MASK, _POSITIONS, "cache")

FAMILIES: dict[str, Family] = {
    "deepseek_v32": Family(
        parameters=_MLA, adapter="mla", sparse=True, rope="half_split", dialect="transformers-v32"
    ),
    "axk2": Family(
        parameters=_MLA, adapter="mla", sparse=True, rope="half_split", dialect="transformers-v32"
    ),
    "glm_moe_dsa": Family(
        config_class="GlmMoeDsaConfig",
        class_types=glm_types,
        parameters=_MLA,
        adapter="mla",
        sparse=True,
        rope="interleaved",
        dialect="transformers",
    ),
    "dots3_note_text": Family(
        layer_type="indexed_attention",
        parameters=_MLA,
        adapter="mla",
        sparse=True,
        rope="interleaved",
        dialect="transformers-v32",
    ),
    "hy_v4": Family(
        config_class="the hy_v4 class",
        class_types=hy_v4_types,
        parameters=_MLA,
        adapter="mla",
        sparse=True,
        rope="half_split",
        rope_slice="last",
        dialect="transformers-hy-v4",
    ),
    "hy_v4_vl_text": Family(
        layer_type="indexed_attention",
        parameters=_MLA,
        adapter="mla",
        sparse=True,
        rope="interleaved_in_place",
        rope_slice="last",
        dialect="transformers-hy-v4",
    ),
    "mistral_large4_text": Family(
        parameters=(_HIDDEN, _ROPE, _MASK, _POSITIONS, "cache"),
        adapter="mla",
        sparse=True,
        rope="interleaved",
        dialect="transformers",
    ),
    "glm5_next_text": Family(
        layer_type="indexed_attention",
        parameters=(_HIDDEN, _QUERY, _MASK, "cache"),
        no_features="glm5_next scores pools of tokens and always adds a tail",
        dialect="transformers",
    ),
    "deepseek_v4": Family(
        layer_type="compressed_sparse_attention",
        ratio=4,
        parameters=(_HIDDEN, _QUERY, _POSITIONS, "cache", "layer_idx"),
        adapter="deepseek_v4",
        rope="interleaved_in_place",
        rope_slice="last",
        padding=False,
        sentinel=True,
        static_cache=False,
        dialect="transformers-v4",
    ),
    # Served by SGLang and vLLM; transformers has no such models.
    "deepseek_v41": Family(layers=deepseek_v41_layers),
    "deepseek_v41_text": Family(layers=deepseek_v41_layers),
    "longcat_flash": Family(layers=longcat_layers),
    # Models whose module called `indexer` is no lightning indexer.
    "qwen4_exp_text": Family(
        refused="its QSA indexer returns a token mask over mean-pooled blocks, not top-k positions"
        " of a lightning indexer"
    ),
    "minimax_m3_vl_text": Family(
        refused="its indexer selects blocks per key-value head, not positions; MiniMax-M3 shares"
        " selections of key blocks (use_index_cache and index_topk_freq of its text_config, vLLM"
        " on ROCm), which schedules of positions do not describe"
    ),
}


def family_of(model_type: str) -> Family:
    """The record of a (text) model type.

    Raises:
        UnsupportedModelError: none, or one that says why no schedule can act on the family.
    """
    family = FAMILIES.get(model_type)
    if family is None:
        supported = sorted(name for name, known in FAMILIES.items() if not known.refused)
        raise UnsupportedModelError(
            f"{model_type} is not supported: it has no lightning indexer known here"
            f" (supported: {', '.join(supported)})"
        )
    if family.refused:
        raise UnsupportedModelError(f"{model_type} is not supported: {family.refused}")
    return family
