"""Looks at the held-out text, shared over processes and put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from distill.setup import Session
from distill.validation.logit_kl import arm_divergence, reference
from distill.validation.metrics import NAMES, Probe, look


@dataclass(frozen=True, slots=True)
class Look:
    """The probes of all processes.

    Attributes:
        probe: tallies and losses, merged.
        weighted: divergence of the final logits at the positions that count (`choice.tail`).
        overall: the same at all positions.
        layer_ids: absolute id per ordinal.
    """

    probe: Probe
    weighted: float
    overall: float
    layer_ids: tuple[int, ...]

    def score(self, measure: Literal["logit_kl", "recall"]) -> float:
        """The number that a checkpoint is kept by; lower is better."""
        return self.weighted if measure == "logit_kl" else -self.probe.mean("recall")

    def summary(self) -> dict[str, Any]:
        """Means over layers and consumers."""
        means = {name: round(self.probe.mean(name), 4) for name in NAMES}
        return {"logit_kl": self.overall, "logit_kl_tail": self.weighted, **means}

    def record(self) -> dict[str, Any]:
        """Summary, losses per layer, and every pair."""
        layers = {
            str(self.layer_ids[layer]): {
                "kl": sums.kl / max(sums.rows, 1.0),
                "listmle": sums.listmle / sums.listed if sums.listed else None,
                **{name: self.probe.mean(name, layer) for name in NAMES},
            }
            for layer, sums in self.probe.losses.items()
        }
        pairs = [
            {
                "phase": phase,
                "layer": self.layer_ids[layer],
                "consumer": self.layer_ids[consumer],
                **{name: tally.mean(name) for name in NAMES if name in tally.counts},
            }
            for (phase, layer, consumer), tally in self.probe.tallies.items()
        ]
        return {**self.summary(), "layers": layers, "pairs": pairs}


class Looker:
    """Holds the held-out text of this process and the original's predictions on it."""

    def __init__(self, session: Session, accelerator: Any) -> None:
        self._session, self._accelerator = session, accelerator
        size = session.config.train.micro_batch
        batches = session.data.splits["held_out"].batches(size, accelerator.device)
        mine = batches[accelerator.process_index :: accelerator.num_processes]
        with accelerator.autocast():
            self._reference = reference(session.model, session.where.layout.native, mine)
        self._counts: Tensor | None = None

    def weigh(self) -> None:
        """Let what is in the model now decide which positions count: the undistilled arm."""
        share = self._session.config.choice.tail
        if share >= 1:
            return
        with self._accelerator.autocast():
            mine = arm_divergence(
                self._session.model, self._session.students, self._session.plan, self._reference
            )
        everything = torch.cat(self._gather(mine))
        border = everything.topk(max(1, round(share * len(everything)))).values[-1]
        self._counts = (mine >= border).float()

    def look(self) -> Look:
        """Probe the students."""
        session = self._session
        with self._accelerator.autocast():
            probe = look(session.model, session.students, session.plan, self._reference)
        divergence = torch.cat([torch.zeros(0), *probe.divergence])
        counts = torch.ones_like(divergence) if self._counts is None else self._counts
        share = (counts * divergence).sum().item(), counts.sum().item()
        whole = divergence.sum().item(), float(len(divergence))
        merged, sums = Probe(), [0.0] * 4
        for other, numbers in self._gather((probe, (*share, *whole))):
            _merge(merged, other)
            sums = [a + b for a, b in zip(sums, numbers, strict=True)]
        return Look(
            merged, sums[0] / max(sums[1], 1e-30), sums[2] / max(sums[3], 1.0),
            session.where.layout.layer_ids,
        )  # fmt: skip

    def _gather(self, item: Any) -> list[Any]:
        from accelerate.utils import gather_object

        return list(gather_object([item]))


def _merge(into: Probe, other: Probe) -> None:
    for key, tally in other.tallies.items():
        own = into.tallies.setdefault(key, type(tally)())
        for name, value in tally.sums.items():
            own.sums[name] = own.sums.get(name, 0.0) + value
            own.counts[name] = own.counts.get(name, 0.0) + tally.counts[name]
    for layer, sums in other.losses.items():
        into.losses.setdefault(layer, type(sums)()).add(sums)
