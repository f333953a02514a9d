"""Which label-free number says which arms will answer?

    python benchmarks/predictors.py recipes/smollm2/512.toml runs/smollm2-512 \\
        --task niah_single_1@512 --text runs/smollm2/calibration.jsonl

For the arms of an evaluation with a checkpoint of its own schedule as baseline: what the arm
answered (compare.json) beside what `distill` can measure without any question, and per number the
rank correlation with the answers over the arms (Spearman). Numbers:

    kl          mean KL of the final logits from the baseline's, on plain text
    far         the same, weighted by what far keys are worth (`validation.long_range`)
    worst       the same over the twentieth of positions where it is largest
    twice       the same over the second half of random tokens that are said twice
    pairs       the same where random pairs of tokens are asked: at the second naming of a first one
    recall      of the consumers' own top-k, on the text
    mass        share of the consumers' attention that is selected, on the text
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from scipy.stats import spearmanr  # noqa: E402
from torch import Tensor  # noqa: E402

from distill.config.train import DistillConfig  # noqa: E402
from distill.data.batch import Batch  # noqa: E402
from distill.models.load import load_model, load_tokenizer  # noqa: E402
from distill.models.student import Students  # noqa: E402
from distill.objective.plan import make_plan  # noqa: E402
from distill.objective.teacher_assignment import trained_layers  # noqa: E402
from distill.validation.logit_kl import reference  # noqa: E402
from distill.validation.long_range import long_range_gain  # noqa: E402
from distill.validation.metrics import evaluate  # noqa: E402
from evalkit.config.run import RunConfig  # noqa: E402
from evalkit.core.recipe import load  # noqa: E402
from evalkit.dsa import ReuseSchedule  # noqa: E402
from evalkit.dsa.families.sites import indexer_sites  # noqa: E402
from evalkit.dsa.indexer_checkpoint import apply_indexer  # noqa: E402

NUMBERS = ("kl", "far", "worst", "twice", "pairs", "recall", "mass")


def whole(ids: list[list[int]]) -> list[Batch]:
    """One batch a text."""
    return [
        Batch(torch.tensor([text]), torch.ones(1, len(text), dtype=torch.bool), i)
        for i, text in enumerate(ids)
    ]


def twice(vocabulary: int, length: int, count: int) -> tuple[list[Batch], Tensor]:
    """Random tokens said twice, and the positions of the second time."""
    draw = torch.Generator().manual_seed(0)
    half = torch.randint(3, vocabulary, (count, length // 2), generator=draw)
    said = torch.cat([half, half], 1)
    place = torch.arange(said.shape[1]) >= half.shape[1]
    return whole(said.tolist()), place.repeat(count)


def pairs(vocabulary: int, length: int, count: int) -> tuple[list[Batch], Tensor]:
    """Random pairs of tokens, an eighth of them named again; the positions of these names."""
    draw = torch.Generator().manual_seed(1)
    asked = max(1, length // 18)
    texts, place = [], torch.zeros(0, dtype=torch.bool)
    for _ in range(count):
        known = torch.randint(3, vocabulary, (8 * asked, 2), generator=draw)
        again = known[torch.randperm(len(known), generator=draw)[:asked]]
        texts.append(torch.cat([known.flatten(), again.flatten()]).tolist())
        names = torch.zeros(len(texts[-1]), dtype=torch.bool)
        names[len(known) * 2 :: 2] = True
        place = torch.cat([place, names])
    return whole(texts), place


class Bench:
    """A model with the text, and what of both no arm changes."""

    def __init__(self, model: str, texts: list[str], length: int, probes: int) -> None:
        self.path, self.model = model, load_model(model, "float32")
        tokenizer = load_tokenizer(model)
        self.native = indexer_sites(self.model).layout.native
        ids = [tokenizer.encode(text)[:length] for text in texts]
        self.text = reference(self.model, self.native, whole(ids))
        self.gain = long_range_gain(self.model, self.text)
        vocabulary = int(self.model.config.vocab_size)
        self.probes = {}
        for name, make in (("twice", twice), ("pairs", pairs)):
            batches, place = make(vocabulary, length, probes)
            self.probes[name] = reference(self.model, self.native, batches), place

    def numbers(self, schedule: ReuseSchedule, indexer: str | None) -> dict[str, float]:
        """Of one arm with trained indexers, or with the model's."""
        config = DistillConfig.model_validate({"model": self.path, "arm": {}})
        layers = trained_layers(schedule, "train")
        sites = indexer_sites(self.model)
        if indexer is None:
            students = Students.of_model(sites, layers)
        else:
            with apply_indexer(self.model, Path(indexer)):
                students = Students.of_model(sites, layers)
        plan = make_plan(self.model, schedule, layers, config)
        with torch.no_grad():
            sums = evaluate(self.model, students, plan, self.text)
            apart = torch.cat(sums.divergence)
            said = {}
            with students.acting(self.model):
                for name, (known, place) in self.probes.items():
                    decode = place.view(len(known.batches), -1)
                    found = known.divergence(
                        self.model, schedule, lambda b, rows=decode: rows[b.first : b.first + 1]
                    )
                    said[name] = float(found[place].mean())
        return {
            "kl": float(apart.mean()),
            "far": float((self.gain * apart).sum() / self.gain.sum()),
            "worst": float(apart.topk(max(1, len(apart) // 20)).values.mean()),
            **said,
            "recall": sums.mean("recall"),
            "mass": sums.mean("mass_recall"),
        }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--task", required=True)
    parser.add_argument("--text", type=Path, required=True, help="JSON lines with a field text")
    parser.add_argument("--texts", type=int, default=4, help="the last so many of the file")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--probes", type=int, default=2)
    args = parser.parse_args()
    config = load(args.recipe, RunConfig)
    compared = json.loads((args.run / "compare.json").read_text())
    answers = {r["arm"]: r["score"] for r in compared["rows"] if r["task"] == args.task}
    lines = args.text.read_text().splitlines()[-args.texts :]
    base = str((args.recipe.parent / str(config.model)).resolve())
    bench = Bench(base, [json.loads(line)["text"] for line in lines], args.length, args.probes)
    print(f"| arm | {args.task} |", " | ".join(NUMBERS), "|")
    print("|---" * (len(NUMBERS) + 2) + "|", flush=True)
    rows: list[dict[str, float]] = []
    for arm in config.arms:
        indexer = arm.indexer and str((args.recipe.parent / arm.indexer).resolve())
        schedule = arm.model_copy(update={"indexer": indexer}).schedule(bench.native)
        if arm.model or arm.selection or arm.name not in answers or schedule == bench.native:
            continue
        rows.append({"answers": answers[arm.name], **bench.numbers(schedule, indexer)})
        cells = [f"{rows[-1][name]:.3f}" for name in ("answers", *NUMBERS)]
        print(f"| {arm.name} |", " | ".join(cells), "|", flush=True)
    ranks = []
    for name in NUMBERS:
        sign = 1 if name in ("recall", "mass") else -1
        found = spearmanr([r["answers"] for r in rows], [sign * r[name] for r in rows])
        ranks.append(f"{found.statistic:+.2f}")
    print("| rank correlation with the answers | |", " | ".join(ranks), "|")


if __name__ == "__main__":
    main()
