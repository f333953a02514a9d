"""Ridge regression of a consumer's indexer on the inputs of the full layer that serves it.

For every linear map W_c of the indexer of consumer c (queries, keys, head weights; before RoPE and
before the key norm), ridge regression finds the map from the full layer's own input:

    W = argmin Σ_t ‖W x_t − W_c x^c_t‖² + ρ·tr(XᵀX)/n·‖W‖²  =  YᵀX (XᵀX + ρ·tr(XᵀX)/n·I)⁻¹

x_t is the input at the full layer as the arm computes it (on-policy), x^c_t the consumer's input in
the original model. XᵀX and YᵀX are sums over tokens: no activation outlives its batch. What is not
a linear map (norms, position biases) is copied from the consumer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from distill.errors import NonFiniteError, at, require_finite
from distill.models.causal_lm import CausalLM
from distill.models.student import in_precision
from evalkit.dsa import IndexerCall, index_features


@contextmanager
def linear_maps(indexer: nn.Module) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """Collects (input, output) of every linear map that runs inside the block, by name."""
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    handles = []
    for name, module in indexer.named_modules():
        if isinstance(module, nn.Linear):

            def keep(
                _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor, name: str = name
            ) -> None:
                seen[name] = (inputs[0], output)

            handles.append(module.register_forward_hook(keep))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


@dataclass(slots=True)
class Gram:
    """Sums over tokens for one input and any number of outputs, in fp64.

    Attributes:
        xx: Σ x xᵀ [n, n].
        xy: Σ x yᵀ per output name [n, m].
        tokens: how many.
    """

    xx: Tensor | None = None
    xy: dict[str, Tensor] = field(default_factory=dict)
    tokens: int = 0

    def add_input(self, x: Tensor) -> None:
        """Add tokens [N, n]."""
        wide = x.double()
        product = wide.T @ wide
        self.xx = product if self.xx is None else self.xx.add_(product)
        self.tokens += x.shape[0]

    def add_output(self, name: str, x: Tensor, y: Tensor) -> None:
        """Add what the tokens [N, n] are to give [N, m]."""
        product = x.double().T @ y.double()
        self.xy[name] = self.xy[name].add_(product) if name in self.xy else product

    def solve(self, name: str, ridge: float) -> Tensor:
        """The map [m, n] in fp64.

        Raises:
            NonFiniteError: there is none.
        """
        if self.xx is None:
            raise ValueError("no tokens")
        size = self.xx.shape[0]
        shift = ridge * self.xx.diagonal().mean()
        regular = self.xx + shift * torch.eye(size, dtype=self.xx.dtype, device=self.xx.device)
        try:
            solved: Tensor = torch.linalg.solve(regular, self.xy[name])
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            raise NonFiniteError("no solution: the inputs are 0, or closed_form.ridge") from None
        require_finite(solved, "solution")
        return solved.T


class Regression:
    """Sums of one full layer's inputs against the maps of its consumers' indexers.

    Per batch: `inputs` with the call of the full layer, then `outputs` with each consumer's.
    """

    def __init__(self, model: CausalLM, indexer: nn.Module) -> None:
        self._model, self._indexer = model, indexer
        self._grams: dict[str, Gram] = {}
        self._group: dict[str, str] = {}  # maps with one and the same input share its Gram matrix
        self._inputs: dict[str, Tensor] = {}

    @torch.no_grad()
    def inputs(self, call: IndexerCall, valid: Tensor) -> None:
        """Remember the full layer's inputs of this batch; valid is [B, S]."""
        seen = self._maps(self._indexer, in_precision(call, self._indexer))
        self._inputs = {name: x[valid] for name, (x, _) in seen.items()}
        if not self._group:
            first: dict[int, str] = {}
            for name, (x, _) in seen.items():
                self._group[name] = first.setdefault(x.data_ptr(), name)
            self._grams = {name: Gram() for name in set(self._group.values())}
        for name, gram in self._grams.items():
            gram.add_input(self._inputs[name])

    @torch.no_grad()
    def outputs(self, consumer: int, indexer: nn.Module, call: IndexerCall, valid: Tensor) -> None:
        """Add what a consumer's own indexer makes of the same tokens in the original model."""
        for name, (_, y) in self._maps(indexer, call).items():
            gram = self._grams[self._group[name]]
            gram.add_output(f"{consumer}.{name}", self._inputs[name], y[valid])

    def candidate(self, consumer: int, indexer: nn.Module, ridge: float) -> dict[str, Tensor]:
        """A state for the full layer's indexer: maps solved for, everything else the consumer's."""
        state = {name: _whole(tensor).clone() for name, tensor in indexer.state_dict().items()}
        for name, group in self._group.items():
            with at(f"ridge regression of {name}"):
                solved = self._grams[group].solve(f"{consumer}.{name}", ridge)
            state[f"{name}.weight"] = solved.to(state[f"{name}.weight"].device)
        wanted = {n: t.dtype for n, t in self._indexer.state_dict().items()}
        return {name: tensor.to(wanted[name]) for name, tensor in state.items()}

    def _maps(self, indexer: nn.Module, call: IndexerCall) -> Mapping[str, tuple[Tensor, Tensor]]:
        with linear_maps(indexer) as seen:
            index_features(self._model, indexer, call)
        return seen


def _whole(tensor: Tensor) -> Tensor:
    """A tensor that may be sharded over processes, as every process needs it."""
    gather = getattr(tensor, "full_tensor", None)
    whole: Tensor = tensor if gather is None else gather()
    return whole.detach()
