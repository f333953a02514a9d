"""The student: copies of the full layers' indexers, the only tensors that train.

The model itself is never written: students stand beside it and take their indexers' places while
a forward runs under the arm. What is frozen therefore has no gradient, no optimiser state, and
stays byte-identical.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from distill.models.forward import placed
from evalkit.dsa import IndexerCall, ScheduleError
from evalkit.dsa.families.sites import IndexerSites


class Students:
    """Trainable fp32 indexers by ordinal.

    Attributes:
        modules: the indexers, in fp32, by ordinal.
    """

    def __init__(
        self, where: IndexerSites, layers: Collection[int], dtype: torch.dtype = torch.float32
    ):
        self._where = where
        self._own: dict[int, nn.Module] = {}
        self.modules: dict[int, nn.Module] = {}
        for ordinal in sorted(layers):
            own: Any = where.owners[ordinal].indexer
            if own is None:
                raise ScheduleError(
                    f"layer {where.layout.layer_ids[ordinal]} has no indexer to train"
                )
            self._own[ordinal] = own
            self.modules[ordinal] = copy.deepcopy(own).to(dtype).requires_grad_(True)

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

    def freeze_except(self, names: Collection[str]) -> None:
        """Train only tensors whose module path starts with one of `names` (``wq_b``, ``wk`` …)."""
        for ordinal, module in self.modules.items():
            for name, parameter in module.named_parameters():
                parameter.requires_grad_(any(name.split(".")[0] == wanted for wanted in names))
            if not any(p.requires_grad for p in module.parameters()):
                layer = self._where.layout.layer_ids[ordinal]
                raise ScheduleError(f"layer {layer}: no indexer tensor is called {sorted(names)}")

    def state(self) -> dict[str, Tensor]:
        """Copies of all tensors as ``"<ordinal>.<name>"``."""
        return {
            f"{ordinal}.{name}": tensor.detach().clone()
            for ordinal, module in self.modules.items()
            for name, tensor in module.state_dict().items()
        }

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Put back what `state` gave."""
        for ordinal, module in self.modules.items():
            prefix = f"{ordinal}."
            module.load_state_dict(
                {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            )

    @contextmanager
    def acting(self) -> Iterator[None]:
        """The students in the model, in the model's own precision, while the block runs."""
        stand_ins: dict[int, nn.Module] = {}
        for ordinal, module in self.modules.items():
            own = self._own[ordinal]
            wanted = {name: p.dtype for name, p in own.named_parameters()}
            if all(p.dtype == wanted[name] for name, p in module.named_parameters()):
                stand_ins[ordinal] = module
                continue
            acting = copy.deepcopy(module).requires_grad_(False)
            for name, parameter in acting.named_parameters():
                parameter.data = parameter.data.to(wanted[name])
            stand_ins[ordinal] = acting
        with placed(self._where, stand_ins):
            yield


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
    """Every matrix normal with variance 1/fan-in, norms to one, biases to zero.

    Kept at the size of the layer's own matrices where those are larger or smaller, so that scores
    start at the scale that the model works at.
    """
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
