"""Structured ("mimetic") start of the small model.

Plain random starts learn short texts but not 24 layers at 256 tokens within minutes, so the
start already holds the outline of an induction circuit.  The residual stream is cut into four
orthogonal blocks of 24:

* OWN: a code of the token itself, and two flags: "is a key noun", "is a key adjective";
* KEY: what layer 0 gathers: the latest key noun, the latest key adjective, the token before
  the previous one;
* PREVIOUS: the previous token, and a constant;
* PREDICTION: what the output head reads.

Layer 0 has four look-back heads that fill KEY and PREVIOUS.  The match layers have two heads
each that compare KEY and PREVIOUS of a query with those of all positions and write the code of
the best match into PREDICTION.  Nothing else is set: indexers, MLPs, the remaining heads and
layers are random.  At this start the model answers no question right; all weights but those of
the tie-breaking index heads are trained.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DeepseekV32ForCausalLM

from distill.data.tiny_corpus import wording
from distill.data.tiny_corpus.tokenizer import vocabulary
from recipes.tiny.architecture import MATCH_LAYERS, TIE_BREAKERS, make_config

BLOCK = 24
CODE = 22
NOUN_FLAG, ADJECTIVE_FLAG = 22, 23
MATCH_GAIN = 2.0
TIE_SCALE = 1e-2


def build_model(seed: int) -> DeepseekV32ForCausalLM:
    """The untrained model in float32."""
    model = DeepseekV32ForCausalLM(make_config()).float()
    with torch.no_grad():
        _Init(model, seed).run()
    return model


class _Init:
    """Writes the start into a model; holds the random stream and the blocks."""

    def __init__(self, model: DeepseekV32ForCausalLM, seed: int) -> None:
        self.model = model
        self.config = model.config
        self.random = torch.Generator().manual_seed(seed)
        basis = self.orthogonal(self.config.hidden_size)
        self.own, self.key, self.previous, self.prediction = basis.split(BLOCK)
        self.constant = self.previous[-1]
        # Layer 0 writes three codes into KEY; each is turned so that they do not mix up.
        self.noun_turn, self.adjective_turn, self.second_turn = (
            self.orthogonal(CODE) for _ in range(3)
        )

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.random)

    def orthogonal(self, size: int) -> Tensor:
        return torch.linalg.qr(self.normal(size, size))[0]

    def run(self) -> None:
        self.background()
        self.embeddings()
        self.look_back_layer()
        for layer in MATCH_LAYERS:
            self.match_layer(layer)
        for layer in self.model.model.layers:
            set_tie_breakers(layer.self_attn.indexer, self.random)

    def background(self) -> None:
        """Every matrix random with variance 1/fan-in; what writes to the stream smaller."""
        depth = 2 * self.config.num_hidden_layers
        for name, weight in self.model.named_parameters():
            if weight.dim() != 2:
                continue
            weight.copy_(self.normal(*weight.shape) * weight.shape[1] ** -0.5)
            if "o_proj" in name or "down_proj" in name:
                weight.mul_(depth**-0.5)
            if "lm_head" in name:
                weight.mul_(0.3)

    def embeddings(self) -> None:
        """Spread codes for all tokens, orthogonal ones for the digits, flags for key words."""
        ids = vocabulary()
        code = nn.functional.normalize(self.normal(len(ids), CODE), dim=1)
        code[[ids[digit] for digit in "0123456789"]] = self.orthogonal(CODE)[:10]
        for _ in range(300):
            overlap = (code @ code.T).fill_diagonal_(0.0)
            code = nn.functional.normalize(code - 0.05 * overlap.pow(3) @ code, dim=1)
        own = torch.zeros(len(ids), BLOCK)
        own[:, :CODE] = 3.0 * code
        own[[ids[noun] for noun in wording.nouns()], NOUN_FLAG] = 2.0
        own[[ids[" " + word] for word in wording.adjectives()], ADJECTIVE_FLAG] = 2.0
        self.model.model.embed_tokens.weight.copy_(own @ self.own + 1.5 * self.constant)
        self.model.lm_head.weight.add_(code @ self.prediction[:CODE])

    def look_back_layer(self) -> None:
        """Layer 0: latest key noun, latest key adjective, previous token, the one before."""
        attention = self.model.model.layers[0].self_attn
        config = self.config
        q_rank, kv_rank, nope = config.q_lora_rank, config.kv_lora_rank, config.qk_nope_head_dim
        pairs = config.qk_rope_head_dim // 2
        theta = config.rope_parameters["rope_theta"]
        angle = [theta ** (-i / pairs) for i in range(pairs)]
        attention.q_a_proj.weight.mul_(0.3)
        attention.q_a_proj.weight[q_rank - 1] = 4.0 * self.constant
        down = attention.kv_a_proj_with_mqa.weight
        down.zero_()
        down[:BLOCK] = self.own
        down[BLOCK:kv_rank] = self.normal(kv_rank - BLOCK, config.hidden_size) * 0.02
        down[kv_rank::2] = self.constant
        near = [6.0] * 3 + [1.0] * (pairs - 3)
        recent = [0.0, 0.0, 1.0, 1.5, 1.5, 1.0, 0.0, 0.0]
        heads: list[tuple[int | None, int, Tensor, Tensor, list[float]]] = [
            (NOUN_FLAG, 0, self.key, self.noun_turn, recent),
            (ADJECTIVE_FLAG, 0, self.key, self.adjective_turn, recent),
            (None, 1, self.previous, torch.eye(CODE), near),
            (None, 2, self.key, self.second_turn, near),
        ]
        for head, (flag, back, target, turn, strength) in enumerate(heads):
            query, key_value, out = _head(attention, head, config)
            query.zero_()
            key_value.zero_()
            if flag is not None:
                key_value[0, flag] = 4.0
                query[0, q_rank - 1] = 4.0
            # A query rotated back by `back` positions agrees best with the key that far behind.
            for i in range(pairs):
                query[nope + 2 * i, q_rank - 1] = strength[i] * math.cos(-angle[i] * back)
                query[nope + 2 * i + 1, q_rank - 1] = strength[i] * math.sin(-angle[i] * back)
            key_value[nope : nope + CODE, :CODE] = torch.eye(CODE)
            out.mul_(0.1)
            out[:, :CODE] = target[:CODE].T @ turn

    def match_layer(self, layer: int) -> None:
        """Heads 0 and 1 find the position that follows the same key and the same two tokens."""
        attention = self.model.model.layers[layer].self_attn
        config = self.config
        kv_rank, nope = config.kv_lora_rank, config.qk_nope_head_dim
        # A position's KEY and PREVIOUS against the query's KEY, its previous token (where the
        # match has the token before the previous one) and its own token (there: the previous).
        found = self.key[:CODE] + self.previous[:CODE]
        wanted = self.key[:CODE] + self.second_turn @ self.previous[:CODE] + self.own[:CODE]
        attention.q_a_proj.weight[:CODE] = wanted
        attention.q_a_proj.weight[CODE:BLOCK] = 0.0
        attention.q_a_proj.weight[BLOCK:].mul_(0.3)
        down = attention.kv_a_proj_with_mqa.weight
        down[:BLOCK] = 0.0
        down[:CODE] = found
        down[BLOCK:kv_rank] = self.own
        down[kv_rank:].mul_(0.3)
        for head in (0, 1):
            query, key_value, out = _head(attention, head, config)
            probe = torch.zeros(nope, BLOCK)
            probe[:BLOCK] = MATCH_GAIN * self.orthogonal(BLOCK)
            query[:nope] = 0.0
            query[:nope, :BLOCK] = probe
            query[nope:].mul_(0.2)
            key_value[:nope] = 0.0
            key_value[:nope, :BLOCK] = probe
            key_value[nope:].mul_(0.1)
            key_value[nope : nope + CODE, BLOCK : BLOCK + CODE] = torch.eye(CODE)
            out.mul_(0.1)
            out[:, :CODE] += 0.3 * self.prediction[:CODE].T


def _head(attention: Any, head: int, config: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Views of one head's query rows, key and value rows, and output columns."""
    nope, rope, value = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
    query = attention.q_b_proj.weight[head * (nope + rope) : (head + 1) * (nope + rope)]
    key_value = attention.kv_b_proj.weight[head * (nope + value) : (head + 1) * (nope + value)]
    out = attention.o_proj.weight[:, head * value : (head + 1) * value]
    return query, key_value, out


def set_tie_breakers(indexer: Any, random: torch.Generator) -> None:
    """Make the last two index heads one antisymmetric pair (q, -q) of small equal weight.

    A ReLU score is exactly 0 where all heads are closed, and equal scores at the top-k border
    are cut differently by whole and by cached forwards.  Of q and -q one is always open, so no
    score is exactly 0.  The pair stays as it is: training leaves these rows alone.
    """
    queries: Tensor = indexer.wq_b.weight
    weights: Tensor = indexer.weights_proj.weight
    dim: int = indexer.head_dim
    rank, hidden = queries.shape[1], weights.shape[1]
    query = torch.randn(dim, rank, generator=random) * rank**-0.5
    queries[-2 * dim : -dim] = query
    queries[-dim:] = -query
    weight = torch.randn(hidden, generator=random) * hidden**-0.5 * TIE_SCALE
    weights[-TIE_BREAKERS:] = weight
