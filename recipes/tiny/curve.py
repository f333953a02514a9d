"""Development curve: accuracy of every arm, adjacent overlap, target recall.

`python -m recipes.tiny.curve MODEL [--length 512] [--count 200] [--exams single ...]`
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from evalkit.dsa import ReuseSchedule
from evalkit.dsa.indexer_checkpoint import apply_indexer, read_schedule
from recipes.tiny.exams import EXAMS, Paper, answer_rows, make_paper, score
from recipes.tiny.forward import Layer, Tap, forward

ARMS = ("1:0", "1/2:0", "1/4:0", "1/8:0", "1/16:0", "1:1", "1:2", "1/2:1", "1/4:1")
"""Retention and lag, as the command line takes them."""


def parse_arm(text: str, layers: int) -> ReuseSchedule:
    """`1/4:1` is retention 1/4 with lag 1 in decode; letters F and S are a pattern."""
    first, _, lag = text.partition(":")
    if set(first) <= {"F", "S"}:
        return ReuseSchedule.from_pattern(first, int(lag or 0))
    return ReuseSchedule.uniform(layers, first, int(lag or 0))


def load(folder: Path) -> Any:
    """A saved model in float32, ready for evaluation."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.no_grad()
def grade(
    model: Any,
    paper: Paper,
    schedule: ReuseSchedule | None = None,
    *,
    masks: Sequence[Sequence[Tensor]] | None = None,
    dense: bool = False,
    batch: int = 8,
    tap: Tap | None = None,
) -> tuple[Tensor, Tensor]:
    """Per question: value said, and stopped after it.  `masks` holds one list per batch."""
    said, ended = [], []
    for number, start in enumerate(range(0, len(paper.ids), batch)):
        ids, prompt = paper.ids[start : start + batch], paper.prompt[start : start + batch]
        hidden = forward(
            model,
            ids,
            schedule=schedule,
            prompt=prompt,
            masks=None if masks is None else masks[number],
            dense=dense,
            tap=tap,
        )
        rows = answer_rows(prompt)[..., None].expand(-1, -1, hidden.shape[-1])
        value, stop = score(model.lm_head(hidden.gather(1, rows)), ids, prompt)
        said.append(value)
        ended.append(stop)
    return torch.cat(said), torch.cat(ended)


@torch.no_grad()
def overlap(model: Any, paper: Paper, first: int) -> tuple[Tensor, Tensor]:
    """Mean Jaccard of the own selections of layers i and i+1: [layers-1], all and answer rows.

    Rows before `first` are left out: where everything is selected, everything overlaps.
    """
    own: dict[int, Tensor] = {}
    sums: list[list[tuple[float, float]]] = []
    for ids, prompt in zip(paper.ids.split(8), paper.prompt.split(8), strict=True):

        def keep(layer: Layer) -> None:
            own[layer.number] = layer.chosen

        forward(model, ids, tap=keep)
        position = torch.arange(ids.shape[1])
        real = (position >= first) & (position < prompt[:, None] + 4)
        asks = real & (position >= prompt[:, None] - 1)
        values = []
        for number in range(len(own) - 1):
            both = (own[number] & own[number + 1]).sum(-1)
            jaccard = both / (own[number] | own[number + 1]).sum(-1)
            values.append((jaccard[real].mean().item(), jaccard[asks].mean().item()))
        sums.append(values)
    mean = torch.tensor(sums).mean(0)
    return mean[:, 0], mean[:, 1]


@torch.no_grad()
def target_recall(model: Any, paper: Paper, schedule: ReuseSchedule) -> Tensor:
    """[layers]: share of answer digits whose needle position the layer's mask holds."""
    layers = len(model.model.layers)
    hits, total = torch.zeros(layers), 0
    for start in range(0, len(paper.ids), 8):
        ids, prompt = paper.ids[start : start + 8], paper.prompt[start : start + 8]
        masks: dict[int, Tensor] = {}

        def keep(layer: Layer, masks: dict[int, Tensor] = masks) -> None:
            masks[layer.number] = layer.chosen

        forward(model, ids, schedule=schedule, prompt=prompt, tap=keep)
        for b in range(len(ids)):
            end = int(prompt[b])
            digits = ids[b, end + 1 : end + 5]
            windows = ids[b, :end].unfold(0, 4, 1)
            found = int((windows == digits).all(-1).nonzero()[0])
            for i in range(4):
                total += 1
                for number in range(layers):
                    hits[number] += masks[number][b, end + i, found + i]
    return hits / total


def row(model: Any, name: str, schedule: ReuseSchedule, papers: dict[str, Paper]) -> str:
    """One line of the table: value said (and stopped after it) per exam, seconds."""
    start, cells = time.perf_counter(), []
    for paper in papers.values():
        said, ended = grade(model, paper, schedule)
        cells.append(f"{said.float().mean():.3f} ({ended.float().mean():.3f})")
    return f"| {name} | {' | '.join(cells)} | {time.perf_counter() - start:.0f} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="development curve of the arms")
    parser.add_argument("model", type=Path)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--exams", nargs="*", default=list(EXAMS), choices=list(EXAMS))
    parser.add_argument("--arms", nargs="*", default=list(ARMS))
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument(
        "--indexers", nargs="*", type=Path, default=[], help="distilled ones, a row each"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = load(args.model)
    papers = {name: make_paper(name, args.count, args.length, args.seed) for name in args.exams}
    print(f"length {args.length}, {args.count} questions per cell; value said (and stopped)")
    print("| arm | " + " | ".join(args.exams) + " | s |")
    print("|---" * (len(args.exams) + 2) + "|")
    for arm in args.arms:
        print(row(model, arm, parse_arm(arm, model.config.num_hidden_layers), papers), flush=True)
    for directory in args.indexers:
        trained_for = read_schedule(directory)
        with apply_indexer(model, directory, trained_for):
            print(row(model, f"{trained_for} distilled", trained_for, papers), flush=True)
    if args.overlap:
        paper = make_paper(args.exams[0], 24, args.length, args.seed)
        rows, answers = overlap(model, paper, 2 * model.config.index_topk)
        print("adjacent Jaccard", [round(v, 2) for v in rows.tolist()], f"mean {rows.mean():.3f}")
        print(
            "  answer rows   ",
            [round(v, 2) for v in answers.tolist()],
            f"mean {answers.mean():.3f}",
        )
        for arm in args.arms:
            recall = target_recall(model, paper, parse_arm(arm, model.config.num_hidden_layers))
            print("target recall", arm, [round(v, 2) for v in recall.tolist()])


if __name__ == "__main__":
    main()
