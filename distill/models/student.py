"""The students: copies of the full layers' indexers, the only tensors that train.

The model itself is never written: students stand beside it and take their indexers' places while
a forward runs under the arm. What is frozen therefore has no gradient, no optimiser state, and
stays byte-identical.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from distill.errors import at, require_finite
from distill.models.causal_lm import CausalLM
from distill.models.forward import swap_indexers
from distill.models.indexers import indexer_at
from evalkit.dsa import IndexerCall, ScheduleError
from evalkit.dsa.families.sites import IndexerSites, indexer_sites

State = dict[str, Tensor]


class Students:
    """Trainable fp32 copies of indexers, by ordinal.

    Attributes:
        modules: the copies, by ordinal.
    """

    def __init__(self, originals: Mapping[int, nn.Module], tensors: Collection[str] = ()) -> None:
        """Copy some indexers.

        Args:
            originals: the model's own indexers by ordinal.
            tensors: train only those whose first name is one of these (``wq_b``, ``wk`` …); the
                others are frozen. Empty: train all.

        Raises:
            ScheduleError: an indexer has no tensor of these names.
        """
        self._originals = {ordinal: originals[ordinal] for ordinal in sorted(originals)}
        self.modules: dict[int, nn.Module] = {
            ordinal: copy.deepcopy(original).to(torch.float32).requires_grad_(True)
            for ordinal, original in self._originals.items()
        }
        for module in self.modules.values() if tensors else ():
            for name, parameter in module.named_parameters():
                parameter.requires_grad_(trains(name, tensors))
            if not any(p.requires_grad for p in module.parameters()):
                raise ScheduleError(f"no indexer tensor is called {sorted(tensors)}")

    @classmethod
    def of_model(
        cls, sites: IndexerSites, layers: Collection[int], tensors: Collection[str] = ()
    ) -> Students:
        """Copies of the indexers of some layers (ordinals) of a live model.

        Raises:
            ScheduleError: a layer has no indexer, or no tensor of these names.
        """
        return cls({layer: indexer_at(sites, layer) for layer in layers}, tensors)

    @property
    def layers(self) -> tuple[int, ...]:
        """Ordinals that train."""
        return tuple(self.modules)

    def named(self) -> dict[str, nn.Parameter]:
        """Trainable parameters as ``"<ordinal>.<name>"``, in a fixed order."""
        return {
            f"{ordinal}.{name}": parameter
            for ordinal, module in self.modules.items()
            for name, parameter in module.named_parameters()
            if parameter.requires_grad
        }

    def state(self) -> State:
        """Copies of all tensors as ``"<ordinal>.<name>"``."""
        return {
            f"{ordinal}.{name}": tensor
            for ordinal in self.modules
            for name, tensor in self.state_of(ordinal).items()
        }

    def state_of(self, layer: int) -> State:
        """Copies of one student's tensors, by name."""
        return {k: v.detach().clone() for k, v in self.modules[layer].state_dict().items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Put back what `state` gave."""
        for ordinal in self.modules:
            prefix = f"{ordinal}."
            tensors = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            self.load_of(ordinal, tensors)

    @torch.no_grad()
    def load_of(self, layer: int, state: Mapping[str, Tensor]) -> None:
        """Put back what `state_of` gave."""
        self.modules[layer].load_state_dict(state)

    @contextmanager
    def acting(self, model: CausalLM) -> Iterator[None]:
        """The students in the model, in the model's own precision, while the block runs.

        Raises:
            NonFiniteError: a tensor is NaN or infinite in that precision; names the layer.
        """
        sites, stand_ins = indexer_sites(model), self._in_model_precision()
        for ordinal, module in stand_ins.items():
            with at(f"layer {sites.layout.layer_ids[ordinal]}"):
                for name, parameter in module.named_parameters():
                    require_finite(parameter, f"{name} of the student as {parameter.dtype}")
        with swap_indexers(sites, stand_ins):
            yield

    def _in_model_precision(self) -> dict[int, nn.Module]:
        stand_ins: dict[int, nn.Module] = {}
        for ordinal, module in self.modules.items():
            wanted = {n: p.dtype for n, p in self._originals[ordinal].named_parameters()}
            if all(p.dtype == wanted[name] for name, p in module.named_parameters()):
                stand_ins[ordinal] = module
                continue
            cast = copy.deepcopy(module).requires_grad_(False)
            for name, parameter in cast.named_parameters():
                parameter.data = parameter.data.to(wanted[name])
            stand_ins[ordinal] = cast
        return stand_ins


def trains(name: str, tensors: Collection[str]) -> bool:
    """Whether a tensor of an indexer trains: by the first part of its name; without names, all."""
    return not tensors or name.partition(".")[0] in tensors


def in_precision(call: IndexerCall, module: nn.Module) -> IndexerCall:
    """A call's inputs in the precision of a module's weights."""
    dtype = next(module.parameters()).dtype
    latent = call.q_resid
    return replace(
        call,
        hidden=call.hidden.to(dtype),
        q_resid=None if latent is None else latent.to(dtype),
    )


@torch.no_grad()
def reinitialise(students: Students, seed: int) -> None:
    """Random start: every matrix normal with variance 1/fan-in, norms to one, biases to zero."""
    for ordinal, module in students.modules.items():
        generator = torch.Generator().manual_seed(seed * 1_000_003 + ordinal)
        for name, parameter in module.named_parameters():
            if parameter.dim() >= 2:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(noise.to(parameter) * parameter.shape[-1] ** -0.5)
            elif name.endswith("bias"):
                parameter.zero_()
            else:
                parameter.fill_(1.0)
