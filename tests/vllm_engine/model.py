"""A tiny random DeepSeek-V4, saved in the released layout: one checkpoint, two libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

# Five layers with an indexer among seven; 0: sliding window alone, 128: heavily compressed.
RATIOS = (0, 4, 4, 128, 4, 4, 4)
C4 = tuple(i for i, ratio in enumerate(RATIOS) if ratio == 4)
TOPK = 512  # vLLM's CPU path takes no other number: selection matters above 4 × 512 tokens
SHAPE: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 128,
    "moe_intermediate_size": 32,
    "num_hidden_layers": len(RATIOS),
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 64,
    "o_groups": 2,
    "o_lora_rank": 32,
    "num_experts_per_tok": 6,
    "n_routed_experts": 256,  # as vLLM's CPU router has them
    "n_shared_experts": 1,
    "scoring_func": "sqrtsoftplus",
    "routed_scaling_factor": 1.5,
    "sliding_window": 128,
    "index_topk": TOPK,
    "index_n_heads": 8,
    "index_head_dim": 128,
    "num_hash_layers": 0,
    "num_nextn_predict_layers": 0,
    "max_position_embeddings": 4096,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "swiglu_limit": 10.0,
    "rms_norm_eps": 1e-6,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "model_type": "deepseek_v4",
    "architectures": ["DeepseekV4ForCausalLM"],
    "compress_ratios": list(RATIOS),
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "hidden_act": "silu",
    "partial_rotary_factor": 0.125,
    "rope_theta": 10000.0,
    "compress_rope_theta": 160000.0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 16,
        "original_max_position_embeddings": 65536,
        "beta_fast": 32,
        "beta_slow": 1,
    },
}


def save(directory: Path) -> Path:
    """Weights by transformers, which writes them under their released names; config as released."""
    import transformers as tf

    model = tf.DeepseekV4ForCausalLM(tf.DeepseekV4Config(**SHAPE))
    settle(model)
    model.to(torch.bfloat16).save_pretrained(directory)
    weights = load_file(directory / "model.safetensors")
    save_file(
        {released_name(name): tensor for name, tensor in weights.items()},
        directory / "model.safetensors",
        {"format": "pt"},
    )
    (directory / "config.json").write_text(json.dumps(SHAPE | {"torch_dtype": "bfloat16"}))
    return directory


def released_name(name: str) -> str:
    """What transformers' way back to the released names leaves undone."""
    name = name.removeprefix("model.").replace("embed_tokens.", "embed.")
    return name.replace("hc_head.hc_", "hc_head_").replace(".attn.norm.", ".attn.kv_norm.")


def settle(model: Any) -> None:
    """Give every weight some size, from one seed."""
    generator = torch.Generator().manual_seed(1234)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                drawn = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(drawn * (1.0 / parameter.shape[-1] ** 0.5))
            elif not torch.isfinite(parameter).all():
                parameter.fill_(0.0)


def prompt(length: int, seed: int = 0) -> list[int]:
    """Random token ids without specials."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, SHAPE["vocab_size"], (length,), generator=generator).tolist()
