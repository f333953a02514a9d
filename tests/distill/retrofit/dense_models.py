"""Tiny random dense models on disk, with gains, biases and weights far from their defaults."""

from __future__ import annotations

import torch
from transformers import AutoConfig, AutoModelForCausalLM

SHAPE = {
    "vocab_size": 64,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def save_dense(directory, model_type="llama", seed=0, **config):
    """A seeded random dense model; returns it, in fp32 and eval mode."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(model_type, **(SHAPE | config))
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 1.0 if "norm" in name else 0.0
            parameter.normal_(around, 0.3)
    model.save_pretrained(directory)
    return model


def token_ids(length, rows=2, seed=1):
    """Random ids [rows, length]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, SHAPE["vocab_size"], (rows, length), generator=generator)
