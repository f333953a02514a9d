"""The small model's configuration, and which of its layers do what by construction."""

from __future__ import annotations

from transformers import DeepseekV32Config

from distill.data.tiny_corpus.tokenizer import BOS, EOS, MAX_LENGTH, PAD, vocabulary

LAYERS = 24
GROUP = 8
"""Layers per group: the layers that one full layer serves at retention 1/8."""
TOPK = 32
TIE_BREAKERS = 2
"""The last index heads: one antisymmetric pair, see `init.set_tie_breakers`."""

# The first half group gathers; the first two layers of every later group, among them the ones
# that stay full at retention 1/8, start without match heads.
MATCH_LAYERS = tuple(i for i in range(LAYERS) if i >= 4 and (i < GROUP or i % GROUP >= 2))


def make_config() -> DeepseekV32Config:
    """24 layers of width 96, all MLPs dense, 8 + 2 index heads of 24, top-32."""
    return DeepseekV32Config(
        vocab_size=len(vocabulary()),
        hidden_size=96,
        intermediate_size=128,
        moe_intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=48,
        kv_lora_rank=48,
        qk_rope_head_dim=16,
        qk_nope_head_dim=32,
        v_head_dim=32,
        # The class wants mixture fields; no layer uses them.
        mlp_layer_types=["dense"] * LAYERS,
        first_k_dense_replace=LAYERS,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        index_topk=TOPK,
        index_n_heads=8 + TIE_BREAKERS,
        index_head_dim=24,
        max_position_embeddings=MAX_LENGTH,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        tie_word_embeddings=False,
        initializer_range=0.05,
    )
