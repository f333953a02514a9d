"""Oracle ceiling of the arms: what perfect selections could bring back.

For every full layer, the oracle takes the top-k of the mean of its consumers' own index
distributions, as the untouched model computes them.  Layer 0 keeps its real selection: it sees
embeddings only, so no training of its indexer can make it an oracle (`--all` gives it one too).
A low ceiling means that the arm cannot be recovered by any indexer.

`python -m recipes.tiny.ceiling MODEL [--length 512] [--count 200]`
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evalkit.dsa import ReuseSchedule
from recipes.tiny.curve import grade, load, parse_arm
from recipes.tiny.exams import Paper, make_paper
from recipes.tiny.forward import Layer, causal, forward, select

ARMS = ["1/2:0", "1/4:0", "1/8:0", "1/16:0", "1:1", "1:2", "1/2:1", "1/4:1"]
EXAMS = ["single", "multikey_full", "needle21"]


@dataclass(frozen=True, slots=True)
class Teacher:
    """What the untouched model's indexers say about one batch.

    Attributes:
        shares: per layer, softmax of its own index scores [batch, time, time].
        first: layer 0's own selection [batch, time, time].
    """

    shares: list[Tensor]
    first: Tensor


@torch.no_grad()
def teach(model: Any, ids: Tensor) -> Teacher:
    """Run the untouched model once."""
    visible = causal(ids.shape[1])
    shares: list[Tensor] = []
    first: list[Tensor] = []

    def keep(layer: Layer) -> None:
        if layer.scores is None:
            raise ValueError("every layer must compute")
        shares.append(layer.scores.masked_fill(~visible, -1e9).softmax(-1))
        first.append(layer.chosen)

    forward(model, ids, tap=keep)
    return Teacher(shares, first[0])


def oracle_masks(
    teacher: Teacher, schedule: ReuseSchedule, prompt: Tensor, topk: int, keep_first: bool = True
) -> list[Tensor]:
    """Mask [batch, time, time] of every layer: the top-k of what its fellow consumers want."""
    layers, time = len(schedule), teacher.first.shape[1]
    visible = causal(time)

    def perfect(sources: tuple[int, ...]) -> dict[int, Tensor]:
        out = {}
        for source in set(sources):
            if source == 0 and keep_first:
                out[source] = teacher.first
                continue
            served = [teacher.shares[i] for i in range(layers) if sources[i] == source]
            out[source] = select(torch.stack(served).mean(0), visible, topk)
        return out

    prefill, decode = schedule.sources("prefill"), schedule.sources("decode")
    early, late = perfect(prefill), perfect(decode)
    decoding = torch.arange(time)[None, :, None] >= prompt[:, None, None]
    return [torch.where(decoding, late[decode[i]], early[prefill[i]]) for i in range(layers)]


def ceilings(
    model: Any,
    paper: Paper,
    schedules: Sequence[ReuseSchedule],
    keep_first: bool = True,
    batch: int = 8,
) -> list[Tensor]:
    """Per schedule and question: value said under the oracle's selections."""
    said: list[list[Tensor]] = [[] for _ in schedules]
    for start in range(0, len(paper.ids), batch):
        part = Paper(paper.ids[start : start + batch], paper.prompt[start : start + batch], [], [])
        teacher = teach(model, part.ids)
        for schedule, found in zip(schedules, said, strict=True):
            topk = model.config.index_topk
            masks = oracle_masks(teacher, schedule, part.prompt, topk, keep_first)
            found.append(grade(model, part, masks=[masks], batch=batch)[0])
    return [torch.cat(found) for found in said]


def main() -> None:
    """Print plain score and ceiling of every arm."""
    parser = argparse.ArgumentParser(description="oracle ceilings of the arms")
    parser.add_argument("model", type=Path)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--exams", nargs="*", default=EXAMS)
    parser.add_argument("--arms", nargs="*", default=ARMS)
    parser.add_argument("--all", action="store_true", help="an oracle for layer 0 too")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = load(args.model)
    schedules = [parse_arm(arm, model.config.num_hidden_layers) for arm in args.arms]
    print(f"length {args.length}, {args.count} questions per cell; plain -> ceiling")
    print("| exam | " + " | ".join(args.arms) + " |")
    print("|---" * (len(args.arms) + 1) + "|")
    for name in args.exams:
        paper = make_paper(name, args.count, args.length, args.seed)
        best = ceilings(model, paper, schedules, not args.all)
        cells = []
        for schedule, said in zip(schedules, best, strict=True):
            plain = grade(model, paper, schedule)[0].float().mean()
            cells.append(f"{plain:.3f} -> {said.float().mean():.3f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
