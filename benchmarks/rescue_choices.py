"""What matters in a rescue: start × loss × hidden states, several seeds, cliff and mild arm.

    python benchmarks/rescue_choices.py runs/choices --seeds 2

Every cell trains in this process and is graded by one forward per question (development questions
of `recipes.tiny.exams`: 21 needles, the answer must be right to the last digit), so that a cell
takes a minute or two. A seed changes text, rows, order and random starts; the questions stay.
Cells are kept in `cells.jsonl`; the same command goes on where it was cut short.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402

from distill.config.train import DistillConfig  # noqa: E402
from distill.setup import load_training_setup  # noqa: E402
from distill.training.trainer import Trainer  # noqa: E402
from evalkit.core.recipe import load  # noqa: E402
from recipes.tiny.curve import grade  # noqa: E402
from recipes.tiny.exams import make_paper  # noqa: E402


@dataclass(frozen=True)
class Cell:
    """One way to distil."""

    start: str
    loss: str = "KL"
    states: str = "on_policy"
    teacher: str = "indexer"
    first: str = "keep"

    @property
    def title(self) -> str:
        """Cells of the table."""
        notes = [] if self.teacher == "indexer" else [f"{self.teacher} teacher"]
        notes += [] if self.first == "keep" else ["first full layer trained too"]
        loss = ", ".join([self.loss, *notes])
        return f"{self.start.replace('_', ' ')} | {loss} | {self.states.replace('_', '-')}"


LOSSES = {
    "KL": [("kl", 1.0)],
    "KL + ListMLE": [("kl", 0.5), ("listmle", 0.5)],
    "ListMLE": [("listmle", 1.0)],
    "none": [("kl", 1.0)],
}
MAIN = (
    Cell("own", "none"),
    Cell("own", "KL + ListMLE"),
    Cell("closed_form", "none"),
    Cell("closed_form", "KL"),
)
CLIFF = (
    *MAIN,
    Cell("closed_form", "KL + ListMLE"),
    Cell("closed_form", "KL", "off_policy"),
    Cell("own", "KL"),
    Cell("random", "KL"),
    Cell("random", "KL + ListMLE"),
)
MORE = (
    Cell("closed_form", "ListMLE"),
    Cell("own", "KL", "off_policy"),
    Cell("closed_form", "KL", teacher="attention"),
    Cell("closed_form", "KL", first="train"),
)
ARMS = {
    "1/8": ({"retention": "1/8"}, (*CLIFF, *MORE)),
    "1/4 k=1": ({"retention": "1/4", "lag": 1}, MAIN),
}


def main() -> None:
    """Fill the table and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--arms", nargs="*", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--recipe", type=Path, default=ROOT / "recipes/distill/tiny-1-8.toml")
    parser.add_argument("--more", action="store_true", help="rarer choices at the cliff too")
    parser.add_argument("--table", action="store_true", help="print what is there")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "cells.jsonl"
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    torch.set_num_threads(1)
    for seed, arm in itertools.product(range(args.seeds), args.arms):
        for cell in () if args.table else ARMS[arm][1]:
            if cell in MORE and not args.more:
                continue
            wanted = {"arm": arm, "seed": seed, **asdict(cell)}
            if any(wanted.items() <= row.items() for row in known):
                continue
            row = {**wanted, **measure(args, arm, cell, seed)}
            known.append(row)
            with file.open("a") as out:
                out.write(json.dumps(row) + "\n")
            print(row, flush=True)
    print(table(known))


def measure(args: argparse.Namespace, arm: str, cell: Cell, seed: int) -> dict[str, Any]:
    """Train a cell, grade what its choice of the checkpoint kept."""
    started = time.process_time()
    base = args.out / arm.replace("/", "-").replace(" ", "-") / str(seed)
    out = base / "-".join(map(str, asdict(cell).values())).replace(" ", "")
    out.mkdir(parents=True, exist_ok=True)
    begun = base / f"start-{cell.start}-{cell.states}-{cell.first}.pt"
    earlier = torch.load(begun) if begun.exists() else None
    setup = load_training_setup(
        recipe(args, arm, cell, seed, "own" if earlier else cell.start),
        args.recipe.resolve().parent,
        base / "data",
    )
    if earlier:  # a start is made once per arm and seed; the loop takes it as if it were its own
        setup.students.load(earlier["state"])
        started -= earlier["seconds"]
    trainer = Trainer(setup, out, Accelerator())
    trainer.run()
    seconds = time.process_time() - started
    if cell.loss == "none":
        torch.save({"state": trainer.best, "seconds": seconds}, begun)
    paper = make_paper("needle21", args.questions, setup.config.data.length, 5)
    with setup.students.acting(setup.model):
        right = grade(setup.model, paper, setup.schedule)[0].float()
    after = trainer.state.after
    return {
        "said": round(right.mean().item(), 4),
        "recall": after["recall"],
        "logit_kl": after["logit_kl"],
        "step": trainer.state.best_step,
        "cpu_seconds": round(seconds, 1),
    }


def recipe(args: argparse.Namespace, arm: str, cell: Cell, seed: int, start: str) -> DistillConfig:
    """The recipe of a cell; text is shared over the cells of a seed."""
    config = load(args.recipe, DistillConfig)
    changes = {
        "arm": ARMS[arm][0],
        "data": {"source": {"kind": "tiny", "seed": 1000 + seed}, "held_out": 6, "calibration": 8},
        "student": {"start": start, "first_layer": cell.first},
        "teacher": {"kind": cell.teacher},
        "loss": [{"kind": kind, "weight": weight} for kind, weight in LOSSES[cell.loss]],
        "train": {
            "steps": 0 if cell.loss == "none" else args.steps,
            "states": cell.states,
            "seed": seed,
            "evaluate_every": args.steps // 2,
        },
    }
    plain = config.model_dump()
    for name, values in changes.items():
        plain[name] = values if name in ("arm", "loss") else {**plain[name], **values}
    return DistillConfig.model_validate(plain)


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: one line per arm and cell, values of the seeds side by side."""
    lines = [
        "| arm | start | loss | states | questions right, by seed | recall of top-k |"
        " logit KL | step kept | CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for arm, (_, cells) in ARMS.items():
        for cell in cells:
            wanted = {"arm": arm, **asdict(cell)}
            found = [row for row in rows if wanted.items() <= row.items()]
            if found:
                shown = [
                    " / ".join(form.format(row[key]) for row in found)
                    for key, form in (
                        ("said", "{:.3f}"),
                        ("recall", "{:.3f}"),
                        ("logit_kl", "{:.3f}"),
                        ("step", "{}"),
                        ("cpu_seconds", "{:.0f}"),
                    )
                ]
                lines.append(f"| {arm} | {cell.title} | {' | '.join(shown)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
