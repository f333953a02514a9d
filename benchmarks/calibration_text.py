"""Calibration text × rescue: on what text is an arm brought back from its cliff?

    python benchmarks/calibration_text.py runs/calibration
    python benchmarks/calibration_text.py runs/calibration --texts docs random --seeds 0
    python benchmarks/calibration_text.py runs/calibration --table    # print what is there

The small model at one arm (`--arm`), distilled by the trainer of `distill train` with each text;
the product makes every choice. A seed changes the text and every draw; the questions stay:
development questions of `recipes.tiny.exams`, one forward each, right if the whole answer is.
Intervals are Wilson's at 95 %. Cells are kept in `cells.jsonl`; the same command goes on where it
was cut short.

    generator       texts of the small model's generator: needles, haystack, questions with answers
    unasked         the same without its questions
    needles         needles alone, one a line
    docs            the prose of Python's manual (`data.source = {kind = "python_docs"}`)
    code            Python's standard library
    random          random tokens
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import sysconfig
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402

from distill.config.train import DistillConfig  # noqa: E402
from distill.data.tiny_corpus import text as corpus  # noqa: E402
from distill.data.tiny_corpus.tokenizer import build  # noqa: E402
from distill.setup import TrainingSetup, load_training_setup  # noqa: E402
from distill.training.trainer import Trainer  # noqa: E402
from evalkit.core.recipe import load  # noqa: E402
from recipes.tiny.curve import grade  # noqa: E402
from recipes.tiny.exams import make_paper  # noqa: E402

TEXTS = ("generator", "unasked", "needles", "docs", "code", "random")
EXAMS = ("multikey_full", "needle21")


def main() -> None:
    """Fill the table and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--texts", nargs="*", default=list(TEXTS), choices=TEXTS)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--arm", default="1/8", help="retention, or retention:lag")
    parser.add_argument("--length", type=int, default=256, help="of texts and questions")
    parser.add_argument("--questions", type=int, default=200, help="per cell, over both exams")
    parser.add_argument("--calibration", type=int, default=12)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--recipe", type=Path, default=ROOT / "recipes/distill/tiny-1-8.toml")
    parser.add_argument("--table", action="store_true", help="print what is there")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "cells.jsonl"
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    torch.set_num_threads(1)
    wanted = [(text, seed) for seed in args.seeds for text in args.texts]
    for text, seed in [] if args.table else [("undistilled", 0), *wanted]:
        cell = {
            "text": text,
            "seed": seed,
            "arm": args.arm,
            "length": args.length,
            "steps": args.steps,
        }
        if not any(cell.items() <= row.items() for row in known):
            known.append(cell | measure(args, text, seed))
            with file.open("a") as out:
                out.write(json.dumps(known[-1]) + "\n")
            print(known[-1], flush=True)
    print(table(known))


def measure(args: argparse.Namespace, text: str, seed: int) -> dict[str, Any]:
    """Distil with one text, grade what stays."""
    out = args.out / f"{args.arm.replace('/', '-').replace(':', '-lag-')}-{args.length}"
    out /= f"{text}-{seed}"
    out.mkdir(parents=True, exist_ok=True)
    started = time.process_time()
    setup = load_training_setup(recipe(args, text, seed, out), ROOT, out / "data")
    chosen, gains = "", True
    if text != "undistilled":
        trainer = Trainer(setup, out, Accelerator())
        trainer.run()
        chosen = ", ".join(f"{c.layer} from {c.chosen}" for c in trainer.state.choices)
        gains = trainer.state.gains("logit_kl")
    seconds = time.process_time() - started
    return {
        "chosen": chosen,
        "gains": gains,
        "cpu_seconds": round(seconds, 1),
        "questions": args.questions,
        "right": answers(setup, args.questions, args.length),
    }


def answers(setup: TrainingSetup, questions: int, length: int) -> dict[str, int]:
    """Right answers by exam."""
    right = {}
    for exam in EXAMS:
        paper = make_paper(exam, questions // len(EXAMS), length, 5)
        with setup.students.acting(setup.model):
            right[exam] = int(grade(setup.model, paper, setup.schedule)[0].sum())
    return right


def recipe(args: argparse.Namespace, text: str, seed: int, out: Path) -> DistillConfig:
    """The recipe of a cell."""
    plain = load(args.recipe, DistillConfig).model_dump()
    retention, _, lag = args.arm.partition(":")
    plain["model"] = str(ROOT / "recipes/tiny/model")
    plain["evaluation"] = None
    plain["arm"] = {"retention": retention, "lag": int(lag or 0)}
    plain["data"] |= {"source": source(text, seed, args.length, out), "length": args.length}
    plain["data"] |= {"train": 64 if args.steps else 1, "held_out": 4}
    plain["data"]["calibration"] = args.calibration
    plain["train"] |= {"steps": args.steps, "seed": seed}
    return DistillConfig.model_validate(plain)


def source(text: str, seed: int, length: int, out: Path) -> dict[str, Any]:
    """`data.source` of a cell; what the product does not make itself is written to a file."""
    if text in ("generator", "undistilled"):
        return {"kind": "tiny", "seed": 1000 + seed}
    if text == "docs":
        return {"kind": "python_docs", "seed": seed}
    makers = {"unasked": unasked, "needles": needles, "code": code, "random": random_tokens}
    made = makers[text](random.Random(f"{text}-{seed}"), length)
    rows = [json.dumps({"text": next(made)}) for _ in range(200)]
    (out / "text.jsonl").write_text("\n".join(rows) + "\n")
    return {"kind": "text", "paths": [str((out / "text.jsonl").resolve())]}


def unasked(rng: random.Random, length: int) -> Iterator[str]:
    """The generator's texts of needles and haystack, its questions left out."""
    tokenizer = build()
    while True:
        plan = corpus.draw_plan(rng, length)
        room = length - 1 - len(corpus.encode(plan.intro))
        size = len(corpus.fill(plan.stack.joint + plan.needle.needle, "lazy-apple", "1234"))
        keys = corpus.draw_keys(rng, max(1, int(rng.choice((0.25, 0.5, 0.8)) * room / size)))
        lines = [plan.needle.needle.format(key=k, value=corpus.draw_value(rng)) for k in keys]
        room -= size * len(lines)
        while plan.stack.units:
            unit = rng.choice(plan.stack.units)
            room -= len(tokenizer.encode(plan.stack.joint + unit, add_special_tokens=False))
            if room < 0:
                break
            lines.insert(rng.randrange(len(lines) + 1), unit)
        yield plan.intro + plan.stack.joint.join(lines)


def needles(rng: random.Random, length: int) -> Iterator[str]:
    """Lines that say a number of a key, in the wordings of the generator."""
    wordings = list(corpus.wording.wordings().values())
    while True:
        needle = rng.choice(wordings).needle
        keys = corpus.draw_keys(rng, length // 20)
        yield "\n".join(needle.format(key=k, value=corpus.draw_value(rng)) for k in keys)


def code(rng: random.Random, length: int) -> Iterator[str]:
    """Files of Python's standard library from a random line on."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    while True:
        lines = rng.choice(files).read_text(encoding="utf-8").splitlines()
        few = length // 8
        if len(lines) > few:
            first = rng.randrange(len(lines) - few)
            yield "\n".join(lines[first : first + few])


def random_tokens(rng: random.Random, length: int) -> Iterator[str]:
    """Words of the vocabulary, evenly drawn."""
    tokenizer = build()
    ids = [i for t, i in tokenizer.get_vocab().items() if not t.startswith("<")]
    for _ in count():
        yield tokenizer.decode(rng.choices(ids, k=length - 1))


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        f"| arm, tokens | text | seed | {' | '.join(EXAMS)} | all [95 %] | chosen | gain | CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        n = row["questions"] // len(EXAMS)
        low, high = wilson(sum(row["right"].values()), n * len(EXAMS))
        share = sum(row["right"].values()) / (n * len(EXAMS))
        each = " | ".join(f"{row['right'][exam] / n:.2f}" for exam in EXAMS)
        lines.append(
            f"| {row['arm']}, {row['length']} | {row['text']} | {row['seed']} | {each} |"
            f" {share:.3f} [{low:.3f}, {high:.3f}] | {row['chosen'] or '–'} |"
            f" {'yes' if row['gains'] else 'no'} | {row['cpu_seconds']:.0f} |"
        )
    return "\n".join(lines)


def wilson(right: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's interval of a proportion."""
    share, spread = right / n, z * z / n
    middle = share + spread / 2
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return (middle - half) / (1 + spread), (middle + half) / (1 + spread)


if __name__ == "__main__":
    main()
