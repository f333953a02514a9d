"""Train the small model: `python -m recipes.tiny.train OUT`.

Two processes of one thread each, averaging gradients over gloo.  Every phase has a fixed number
of steps, and texts, patterns and sampled rows are pure functions of (seed, step, shard), so a
rerun, or a resumed run, gives the same model up to floating point.  OUT receives
`checkpoint.pt`, `log.jsonl` and at the end the model in `float32/`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torch.nn import functional as F

from distill.data.tiny_corpus import text
from evalkit.dsa.files import follow_umask
from recipes.tiny.architecture import LAYERS, TIE_BREAKERS
from recipes.tiny.forward import Layer, causal, forward, index_scores
from recipes.tiny.init import build_model
from recipes.tiny.patterns import draw_sources

SHARDS = 2
TEXT_WEIGHT = 0.1
NEIGHBOUR = 0.5
"""Weight of the next layer's attention in an indexer's target: smooths selections over depth."""
WARM_UP, DECAY, FLOOR = 30, 0.35, 0.03
SAVE_EVERY = 100


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of training; `lengths` are (tokens per text, texts per shard, share of steps)."""

    steps: int
    lengths: tuple[tuple[int, int, float], ...]
    rows: int
    """Query rows per text that train the indexers; 0: indexers do not train."""
    sparse: bool
    rate: float = 1.5e-3


PHASES = (
    Phase(120, ((96, 8, 1.0),), rows=0, sparse=False),
    Phase(180, ((256, 3, 1.0),), rows=24, sparse=False),
    Phase(1400, ((256, 3, 0.55), (512, 2, 0.35), (1024, 1, 0.1)), rows=24, sparse=True),
)


def learning_rate(step: int, phases: tuple[Phase, ...]) -> float:
    """Warm-up, the phase's rate, and a linear decay at the end of the last phase."""
    total = sum(phase.steps for phase in phases)
    left = max(0.0, 1.0 - step / total) / DECAY
    return phase_of(step, phases).rate * min(1.0, (step + 1) / WARM_UP) * min(1.0, left + FLOOR)


def phase_of(step: int, phases: tuple[Phase, ...]) -> Phase:
    """The phase that a step belongs to."""
    for phase in phases:
        if step < phase.steps:
            return phase
        step -= phase.steps
    return phases[-1]


def draw_batch(seed: int, step: int, shard: int, phase: Phase) -> tuple[Tensor, Tensor]:
    """Ids and kinds [texts, time] of one shard; all shards of a step have the same shape."""
    length, count = _shape(phase, torch.rand(1, generator=_generator(seed, step, 0)).item())
    first = (step * SHARDS + shard) * max(entry[1] for entry in phase.lengths)
    texts = [text.example(seed, first + i, length) for i in range(count)]
    return torch.tensor([t.ids for t in texts]), torch.tensor([t.kinds for t in texts])


def _shape(phase: Phase, place: float) -> tuple[int, int]:
    """Tokens per text and texts per shard at a place in [0, 1) of the cumulated shares."""
    for length, count, share in phase.lengths:
        place -= share
        if place < 0:
            return length, count
    return phase.lengths[-1][:2]


def _generator(seed: int, step: int, stream: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + step) * 17 + stream)


def sample_rows(kinds: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Random query rows [texts, count]; half of the rows that predict an answer come first."""
    weight = torch.rand(kinds.shape, generator=generator)
    predicts = torch.zeros_like(weight)
    predicts[:, :-1] = (kinds[:, 1:] == text.ANSWER).float()
    weight += predicts * (torch.rand(kinds.shape, generator=generator) < 0.5)
    return weight.topk(min(count, kinds.shape[1]), 1).indices


class IndexerLoss:
    """Tap that sums KL(attention of own and next layer || own index softmax) over layers."""

    def __init__(self, rows: Tensor, length: int) -> None:
        self.rows, self.visible = rows, causal(length)[rows]
        self.waiting: tuple[Layer, Tensor] | None = None
        self.total = torch.zeros(())

    def __call__(self, layer: Layer) -> None:
        """Take the layer's attention; it completes the target of the layer before."""
        with torch.no_grad():
            rows = self.rows[:, None, :, None]
            query = layer.query.gather(
                2, rows.expand(-1, layer.query.shape[1], -1, layer.query.shape[3])
            )
            score = query @ layer.key.transpose(-1, -2) * layer.attention.scaling
            score = score.masked_fill(~self.visible.unsqueeze(1), float("-inf"))
            attended = score.softmax(-1).mean(1)
        self.finish(attended)
        layer.hidden, layer.latent = layer.hidden.detach(), layer.latent.detach()
        self.waiting = (layer, attended)

    def finish(self, following: Tensor | None = None) -> Tensor:
        """Add the waiting layer's loss and return the sum so far."""
        if self.waiting is not None:
            layer, target = self.waiting
            if following is not None and layer.number > 0:
                target = (target + NEIGHBOUR * following) / (1 + NEIGHBOUR)
            scores = index_scores(layer, self.rows).masked_fill(~self.visible, -1e9)
            ratio = (target + 1e-9).log() - scores.log_softmax(-1)
            self.total = self.total + (target * ratio).sum(-1).mean()
            self.waiting = None
        return self.total


def shard_loss(
    model: Any, seed: int, step: int, shard: int, phase: Phase
) -> tuple[Tensor, dict[str, float]]:
    """Loss of one shard of one step, and what to log."""
    ids, kinds = draw_batch(seed, step, shard, phase)
    sources = draw_sources(seed, step, shard) if phase.sparse else None
    tap = None
    if phase.rows:
        rows = sample_rows(kinds, phase.rows, _generator(seed, step, 1 + shard))
        tap = IndexerLoss(rows, ids.shape[1])
    hidden = forward(model, ids, sources=sources, dense=not phase.sparse, tap=tap)
    wanted = kinds[:, 1:] != text.RANDOM
    logits, target, kind = (
        model.lm_head(hidden[:, :-1][wanted]),
        ids[:, 1:][wanted],
        kinds[:, 1:][wanted],
    )
    loss = F.cross_entropy(logits, target, reduction="none")
    answer, rest = loss[kind == text.ANSWER].mean(), loss[kind == text.TEXT].mean()
    stop = loss[kind == text.STOP].mean()
    total = answer + TEXT_WEIGHT * (rest + stop)
    right = (logits.argmax(-1) == target)[kind == text.ANSWER].float().mean()
    note = {
        "answer": answer.item(),
        "text": rest.item(),
        "stop": stop.item(),
        "right": right.item(),
    }
    if tap is not None:
        indexer = tap.finish()
        total = total + indexer
        note["indexer"] = indexer.item() / LAYERS
    return total, note


class Trainer:
    """Model, optimiser and step counter of one process."""

    def __init__(
        self, out: Path, seed: int, phases: tuple[Phase, ...], rank: int, world: int
    ) -> None:
        self.out, self.seed, self.phases, self.rank, self.world = out, seed, phases, rank, world
        self.model: Any = build_model(seed)
        named = list(self.model.named_parameters())
        self.indexers = [p for name, p in named if "indexer" in name]
        self.others = [p for name, p in named if "indexer" not in name]
        groups = [
            {"params": self.others, "weight_decay": 0.01},
            {"params": self.indexers, "weight_decay": 0.0},
        ]
        self.optimiser = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98))
        self.step, self.tokens, self.seconds = 0, 0, 0.0
        checkpoint = out / "checkpoint.pt"
        if checkpoint.exists():
            state = torch.load(checkpoint, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.step, self.tokens, self.seconds = state["step"], state["tokens"], state["seconds"]

    def save(self) -> None:
        """Write the checkpoint so that a crash leaves the old one or the new one."""
        state = {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
            "tokens": self.tokens,
            "seconds": self.seconds,
        }
        torch.save(state, self.out / "checkpoint.tmp")
        (self.out / "checkpoint.tmp").replace(self.out / "checkpoint.pt")

    def average_gradients(self) -> None:
        """Mean over all shards; zero for what must not move."""
        params = self.others + self.indexers
        for weight in params:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        flat = torch.cat([p.grad.reshape(-1) for p in params])
        if self.world > 1:
            dist.all_reduce(flat)
        flat /= SHARDS
        parts = flat.split([p.numel() for p in params])
        for weight, part in zip(params, parts, strict=True):
            weight.grad.copy_(part.view_as(weight))
        for block in self.model.model.layers:
            indexer = block.self_attn.indexer
            indexer.wq_b.weight.grad[-TIE_BREAKERS * indexer.head_dim :] = 0.0
            indexer.weights_proj.weight.grad[-TIE_BREAKERS:] = 0.0

    def run_step(self) -> dict[str, float]:
        """One optimiser step; returns the notes of this process's last shard."""
        phase = phase_of(self.step, self.phases)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.step, self.phases)
        self.optimiser.zero_grad()
        note: dict[str, float] = {}
        for shard in range(self.rank, SHARDS, self.world):
            loss, note = shard_loss(self.model, self.seed, self.step, shard, phase)
            loss.backward()
        self.average_gradients()
        torch.nn.utils.clip_grad_norm_(self.others, 1.0)
        torch.nn.utils.clip_grad_norm_(self.indexers, 1.0)
        self.optimiser.step()
        self.step += 1
        ids, _ = draw_batch(self.seed, self.step - 1, 0, phase)
        self.tokens += ids.numel() * SHARDS
        return note

    def run(self) -> None:
        """Train to the end of the last phase."""
        total = sum(phase.steps for phase in self.phases)
        mean: dict[str, float] = {}
        with (self.out / "log.jsonl").open("a", encoding="utf-8") as log:
            while self.step < total:
                start = time.perf_counter()
                for name, value in self.run_step().items():
                    mean[name] = 0.95 * mean.get(name, value) + 0.05 * value
                self.seconds += time.perf_counter() - start
                if self.rank == 0 and self.step % 25 == 0:
                    head = {
                        "step": self.step,
                        "seconds": round(self.seconds),
                        "tokens": self.tokens,
                    }
                    log.write(json.dumps(head | {k: round(v, 4) for k, v in mean.items()}) + "\n")
                    log.flush()
                if self.rank == 0 and (self.step % SAVE_EVERY == 0 or self.step == total):
                    self.save()
        if self.rank == 0:
            self.model.save_pretrained(self.out / "float32")
            follow_umask(self.out / "float32")


def work(
    rank: int, world: int, meeting: str, out: Path, seed: int, phases: tuple[Phase, ...]
) -> None:
    """Body of one process."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if world > 1:
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    Trainer(out, seed, phases, rank, world).run()
    if world > 1:
        dist.destroy_process_group()


def main() -> None:
    """Start the processes."""
    parser = argparse.ArgumentParser(description="train the small model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, choices=[1, SHARDS], default=SHARDS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    # Keep big buffers in the heap: returning them to the system at every step costs a third.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "1000000000")
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", "1000000000")
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        shared = (args.processes, meeting, args.out, args.seed, PHASES)
        mp.spawn(work, args=shared, nprocs=args.processes)


if __name__ == "__main__":
    main()
