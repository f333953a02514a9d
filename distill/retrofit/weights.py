r"""Tensors of a dense layer, rewritten for an MLA layer that computes the same function.

Notation: hidden width D, residual stream x [D], W the target's hidden width, ε the norms' epsilon,
g a norm's gain, G key-value heads of width d, H query heads.

**Norm.** The target's stream is x' = [x, c, 0 …] with c = √(D·ε), written by the embedding and by
no later layer (the rows of `o_proj` and `down_proj` there are zero). With an epsilon of 0

    x'_D-part / rms(x') = x / √((‖x‖² + c²) / W) = √(W/D) · x / √(mean(x²) + ε),

the dense norm without its gain, times √(W/D). So a map A on the normed stream becomes
A·diag(g)·√(D/W), zero on the other channels; the norm before attention keeps a gain of one.

**Latents.** That normed stream n has a mean square of exactly one. Query and key-value latents are
n itself (`q_a_proj` and the latent rows of `kv_a_proj_with_mqa` are identities), and their norms,
whose epsilon is 1e-6 whatever the configuration says, do nothing with a gain of √(1 + 1e-6).

**Biases.** Latents get one more channel, which the bias of `q_a_proj` and `kv_a_proj_with_mqa` sets
to one: the mean square is one as before, and the column of that channel in `q_b_proj`, `kv_b_proj`
is the bias of queries and values. Keys and outputs have biases of their own.

**Heads.** MLA has one rotary key for all heads. It holds the G key-value heads side by side, in the
order of `rotary.pair_order`; a query head is zero outside its own. Logits are scaled by (G·d)^-½
instead of d^-½, so queries are multiplied by √G. Values are repeated per query head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from distill.retrofit.dense import DenseModel
from distill.retrofit.rotary import pair_order

LATENT_EPSILON = 1e-6  # default of the latents' norms, which no configuration reaches
ALIGNMENT = 8


def padded_width(hidden: int) -> int:
    """Width of the target's stream: the next multiple of 8 with room for the constant channel."""
    return (hidden // ALIGNMENT + 1) * ALIGNMENT


def latent_width(dense: DenseModel) -> int:
    """Width of the query and key-value latents."""
    return padded_width(dense.config.hidden_size) + int(dense.biased)


@dataclass(frozen=True, slots=True)
class LayerMaps:
    """Queries and keys of one dense layer as maps from the target's inputs, in fp64.

    Attributes:
        query: [H, G·d, latent], zero outside each head's key-value head; dims in dense order.
        key: [G·d, W]; dims in dense order.
        key_bias: [G·d], or None.
    """

    query: Tensor
    key: Tensor
    key_bias: Tensor | None


class Rewriter:
    """Rewrites the tensors of one dense model (math: see the module)."""

    def __init__(self, dense: DenseModel) -> None:
        self._dense, self._tensors = dense, dense.tensors
        self._hidden: int = dense.config.hidden_size
        self._width, self._latent = padded_width(self._hidden), latent_width(dense)
        self._constant = math.sqrt(self._hidden * dense.config.rms_norm_eps)
        self._norm_scale = math.sqrt(self._hidden / self._width)

    def outside(self) -> Iterator[tuple[str, Tensor]]:
        """Embedding, final norm and output projection of the target, by name."""
        table = self._widened(self._tensors["model.embed_tokens.weight"].double())
        table[:, self._hidden] = self._constant
        yield "model.embed_tokens.weight", table
        yield "model.norm.weight", self._gain("model.norm.weight")
        head = table
        if not self._dense.config.tie_word_embeddings:
            head = self._widened(self._tensors["lm_head.weight"].double())
        yield "lm_head.weight", head

    def layer(self, index: int) -> tuple[dict[str, Tensor], LayerMaps]:
        """Tensors of one layer under the target's names, without its indexer, and its maps."""
        prefix = f"model.layers.{index}."
        tensors = {
            name.removeprefix(prefix): tensor.double()
            for name, tensor in self._tensors.items()
            if name.startswith(prefix)
        }
        maps = self._maps(tensors)
        renamed = self._attention(tensors, maps) | self._feed_forward(tensors)
        renamed["input_layernorm.weight"] = torch.ones(self._width)
        renamed["post_attention_layernorm.weight"] = self._gain(
            f"{prefix}post_attention_layernorm.weight"
        )
        return {prefix + name: tensor for name, tensor in renamed.items()}, maps

    def _maps(self, layer: Mapping[str, Tensor]) -> LayerMaps:
        dense = self._dense
        share = dense.heads // dense.groups
        rows = self._on_latent(layer, "q_proj").view(dense.heads, dense.head_dim, self._latent)
        query = torch.zeros(
            dense.heads, dense.groups, dense.head_dim, self._latent, dtype=torch.float64
        )
        for head in range(dense.heads):
            query[head, head // share] = rows[head]
        return LayerMaps(
            query.flatten(1, 2), self._on_norm(layer, "k_proj"), layer.get("self_attn.k_proj.bias")
        )

    def _attention(self, layer: Mapping[str, Tensor], maps: LayerMaps) -> dict[str, Tensor]:
        dense, width = self._dense, self._width
        order = pair_order(dense.groups, dense.head_dim, interleaved=True)
        share = dense.heads // dense.groups
        identity = torch.eye(self._latent, width, dtype=torch.float64)
        latent_gain = torch.full((self._latent,), math.sqrt(1 + LATENT_EPSILON))
        value = self._on_latent(layer, "v_proj").view(dense.groups, dense.head_dim, self._latent)
        tensors = {
            "q_a_proj.weight": identity,
            "q_a_layernorm.weight": latent_gain,
            "q_b_proj.weight": (maps.query[:, order] * math.sqrt(dense.groups)).flatten(0, 1),
            "kv_a_proj_with_mqa.weight": torch.cat([identity, maps.key[order]]),
            "kv_a_layernorm.weight": latent_gain.clone(),
            "kv_b_proj.weight": value.repeat_interleave(share, 0).flatten(0, 1),
            "o_proj.weight": self._heightened(layer["self_attn.o_proj.weight"]),
        }
        if dense.biased:
            one = torch.zeros(self._latent, dtype=torch.float64)
            one[-1] = 1.0
            key = maps.key_bias if maps.key_bias is not None else torch.zeros(len(order)).double()
            tensors["q_a_proj.bias"] = one
            tensors["kv_a_proj_with_mqa.bias"] = torch.cat([one, key[order]])
            output = layer.get("self_attn.o_proj.bias", torch.zeros(self._hidden).double())
            tensors["o_proj.bias"] = self._heightened(output)
        return {f"self_attn.{name}": tensor for name, tensor in tensors.items()}

    def _feed_forward(self, layer: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            "mlp.gate_proj.weight": self._widened(layer["mlp.gate_proj.weight"]),
            "mlp.up_proj.weight": self._widened(layer["mlp.up_proj.weight"]),
            "mlp.down_proj.weight": self._heightened(layer["mlp.down_proj.weight"]),
        }

    def _on_norm(self, layer: Mapping[str, Tensor], name: str) -> Tensor:
        """A projection [o, D] with the gain before it, as a map [o, W] of the normed stream."""
        gain = layer["input_layernorm.weight"] * self._norm_scale
        return self._widened(layer[f"self_attn.{name}.weight"] * gain)

    def _on_latent(self, layer: Mapping[str, Tensor], name: str) -> Tensor:
        """The same as a map [o, latent], its bias in the column of the constant channel."""
        weight = self._on_norm(layer, name)
        if not self._dense.biased:
            return weight
        zero = torch.zeros(weight.shape[0], dtype=torch.float64)
        bias = layer.get(f"self_attn.{name}.bias", zero)
        return torch.cat([weight, bias[:, None]], dim=1)

    def _gain(self, name: str) -> Tensor:
        return self._widened(self._tensors[name].double() * self._norm_scale)

    def _widened(self, tensor: Tensor) -> Tensor:
        """[…, D] to […, W] with zeros."""
        return torch.nn.functional.pad(tensor, (0, self._width - self._hidden))

    def _heightened(self, tensor: Tensor) -> Tensor:
        """[D, …] to [W, …] with zeros."""
        return self._widened(tensor.movedim(0, -1)).movedim(-1, 0)
