"""Tiny random models of every family that has an indexer, with index_topk far below the length."""

from __future__ import annotations

from typing import Any

import torch

LAYERS = 8
TOPK = 8

_MLA: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "q_lora_rank": 24,
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "index_topk": TOPK,
    "index_n_heads": 16,  # enough that no score is an exact 0, so no exact ties
    "index_head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


# family -> (configuration class, model class); text models of multimodal families have no head
CLASSES = {
    "deepseek_v32": ("DeepseekV32Config", "DeepseekV32ForCausalLM"),
    "glm_moe_dsa": ("GlmMoeDsaConfig", "GlmMoeDsaForCausalLM"),
    "deepseek_v4": ("DeepseekV4Config", "DeepseekV4ForCausalLM"),
    "axk2": ("AXK2Config", "AXK2ForCausalLM"),
    "hy_v4": ("HYV4Config", "HYV4ForCausalLM"),
    "hy_v4_vl_text": ("HYV4VLTextConfig", "HYV4VLTextModel"),
    "mistral_large4_text": ("MistralLarge4TextConfig", "MistralLarge4TextModel"),
    "dots3_note_text": ("Dots3NoteTextConfig", "Dots3NoteForCausalLM"),
    "glm5_next_text": ("Glm5NextTextConfig", "Glm5NextTextModel"),
}
EXTRA: dict[str, dict[str, Any]] = {
    "hy_v4": {"indexer_types": ["full"] * LAYERS},
    "hy_v4_vl_text": {
        "indexer_types": ["full"] * LAYERS,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [2, 1, 1],
        },
    },
    "dots3_note_text": {"use_sliding_window": False, "head_dim": 24},
    "glm5_next_text": {
        "qk_rope_head_dim": 0,
        "layer_types": ["indexed_attention"] * LAYERS,
        "index_kpool": 2,
        "linear_head_dim": 8,
        "linear_num_heads": 2,
    },
}


def build(family: str, *, seed: int = 0, **overrides: Any) -> Any:
    """A seeded model in eval mode, fp32."""
    import transformers as tf

    torch.manual_seed(seed)
    options = dict(v4_options(LAYERS)) if family == "deepseek_v4" else dict(_MLA)
    if family != "deepseek_v4":
        options["mlp_layer_types"] = ["dense"] * LAYERS
    options |= EXTRA.get(family, {}) | overrides
    config_name, model_name = CLASSES[family]
    return _settle(getattr(tf, model_name)(getattr(tf, config_name)(**options)))


def output(model: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Logits, or the last hidden state of a model without a head."""
    result = model(*args, **kwargs)
    return result.logits if "logits" in result else result.last_hidden_state


def v4_options(layers: int) -> dict[str, Any]:
    return {
        "vocab_size": 96,
        "hidden_size": 32,
        "moe_intermediate_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "head_dim": 16,
        "qk_rope_head_dim": 8,
        "q_lora_rank": 16,
        "o_groups": 2,
        "o_lora_rank": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 8,
        "index_topk": 4,
        "index_n_heads": 16,  # enough that no score is an exact 0, so no exact ties
        "index_head_dim": 16,
        "num_hash_layers": 0,
        "layer_types": ["sliding_attention", "sliding_attention"]
        + ["compressed_sparse_attention", "heavily_compressed_attention"] * (layers // 2 - 1),
        "experts_implementation": "eager",  # the grouped kernel has no fp64
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _settle(model: Any) -> Any:
    """Fill what the library leaves uninitialised and give every weight some size."""
    generator = torch.Generator().manual_seed(1234)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.copy_(
                    torch.randn(parameter.shape, generator=generator)
                    * (1.5 / parameter.shape[-1] ** 0.5)
                )
            elif not torch.isfinite(parameter).all():
                parameter.fill_(0.0)
    return model.eval()


def tokens(batch: int, length: int, seed: int = 0) -> torch.Tensor:
    """Random token ids without specials."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 96, (batch, length), generator=generator)
