"""Which label-free criterion picks a candidate of the closed form that answers?

    python benchmarks/choice.py runs/choice                                # everything
    python benchmarks/choice.py runs/choice --models tiny c --arms 1/8:0   # some, added to it
    python benchmarks/choice.py runs/choice --texts 24                     # more calibration text
    python benchmarks/choice.py runs/choice --table                        # print what is there

Per model, arm (retention:lag) and full layer that trains: every candidate's held-out answers beside
every criterion on calibration text, and what each criterion would have picked. The layer then goes
on with the pick of `gain`, the product's default. Models: the shipped one and the prototypes of
`../shared/models`, whose text and questions their own scripts make (`../shared/reference`).
Questions are drawn apart from the calibration text; one is right if every token of its answer is.
"off ±" is how far the pick of `gain` stays behind the best candidate, with the standard error of
that difference over the questions, which both answered. The best of several is the luckiest of them
too: it is expected to be ahead of its equals by about as much as one such error.

Criteria, lower is better (D: KL of final logits at each position, arm against original):

    mean        mean of D                                               (version 0.2.0)
    gain        weighted by what far keys are worth to the original     (`validation.long_range`)
    tail        mean over the quarter where the undistilled arm is worst
    worst       mean over texts of the mean over the worst twentieth of each
    attention   weighted by the attention beyond the latest top-k keys, mean over layers and heads
    probe       mean over the second half of random tokens said twice
    consumers   KL of the candidate's index distribution from those of the layers it serves
    ties        as gain; of candidates within a standard error over texts, the least `consumers`
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["NT"] = "1"  # threads of the prototypes' scripts

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from distill.config.train import DistillConfig  # noqa: E402
from distill.data.batch import Batch  # noqa: E402
from distill.data.tiny_corpus.text import DIGITS, example  # noqa: E402
from distill.data.tiny_corpus.tokenizer import PAD  # noqa: E402
from distill.init.candidates import closed_form  # noqa: E402
from distill.models.activation_cache import ActivationCache  # noqa: E402
from distill.models.early_exit import ForwardStoppedError  # noqa: E402
from distill.models.load import load_model  # noqa: E402
from distill.models.student import Students  # noqa: E402
from distill.objective.plan import make_plan  # noqa: E402
from distill.objective.teacher_assignment import trained_layers  # noqa: E402
from distill.validation.logit_kl import (  # noqa: E402
    Criterion,
    arm_divergence,
    reference,
)
from distill.validation.long_range import long_range_gain  # noqa: E402
from evalkit.dsa.families.sites import indexer_sites  # noqa: E402
from recipes.tiny.exams import make_paper  # noqa: E402
from recipes.tiny.forward import Layer, causal, forward  # noqa: E402

SHARED = ROOT.parent / "shared"
ARMS = [f"1/{full}:{lag}" for full in (4, 8, 16) for lag in (0, 1, 2)]
CRITERIA = ("mean", "gain", "tail", "worst", "attention", "probe", "consumers", "ties")
LENGTH = 256


@dataclass(frozen=True)
class Subject:
    """A model with its text and its questions.

    Attributes:
        path: checkpoint.
        texts: token ids of the calibration texts.
        ids: questions with their answers [N, T].
        asked: bool [N, T], the tokens of the answers.
    """

    path: Path
    texts: list[list[int]]
    ids: Tensor
    asked: Tensor


def tiny(texts: int, questions: int, seed: int) -> Subject:
    """The shipped model: its generator's text, development questions."""
    ids = [
        [token for token in example(1000 + seed, i, LENGTH).ids if token != PAD]
        for i in range(texts)
    ]
    paper = make_paper("needle21", questions, LENGTH, 5)
    place = torch.arange(LENGTH) - paper.prompt[:, None]
    return Subject(ROOT / "recipes/tiny/model", ids, paper.ids, (place > 0) & (place <= DIGITS))


def prototype(name: str) -> Callable[[int, int, int], Subject]:
    """A prototype with the text of its own script."""

    def make(texts: int, questions: int, seed: int) -> Subject:
        real = name == "c"
        script = importlib.import_module(_on_path("_2", "c2") if real else _on_path("", "common"))
        rng, exam = random.Random(f"text-{seed}"), random.Random("questions")
        task = script.TASKS["needles" if real else "multikey20"] | {"nq": 1}
        options = {} if real else {"p_alias": 0.1, "fill": (0, 0.8)}
        drawn = [script.gen_train(rng, LENGTH, **options)[0] for _ in range(texts)]
        asked = [script.gen_eval(exam, LENGTH, **task) for _ in range(questions)]
        return Subject(
            SHARED / f"models/prototype_{name}",
            [[token for token in ids if token != script.PAD] for ids in drawn],
            torch.tensor([ids for ids, _ in asked]),
            torch.tensor([kinds for _, kinds in asked]) == 1,
        )

    return make


def _on_path(suffix: str, module: str) -> str:
    sys.path.insert(0, str(SHARED / f"reference/tiny_model_prototype{suffix}"))
    return module


MODELS = {"tiny": tiny, "a": prototype("a"), "b": prototype("b"), "c": prototype("c")}


class Bench:
    """One model, and everything about it that no arm changes."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.model = subject, load_model(str(subject.path), "float32")
        self.sites = indexer_sites(self.model)
        self.native = self.sites.layout.native
        self.topk = int(self.model.config.index_topk)
        self.batches = list(_batches(subject.texts))
        self.original = reference(self.model, self.native, self.batches)
        self.gain = long_range_gain(self.model, self.original)
        self.text = torch.cat(
            [
                (torch.arange(len(b.ids))[:, None] + b.first).expand_as(b.ids)[b.valid]
                for b in self.batches
            ]
        )
        self.wanted: list[list[Tensor]] = []
        self.attention = torch.cat([self._read(batch) for batch in self.batches])
        draw = torch.Generator().manual_seed(0)
        vocabulary = int(self.model.config.vocab_size)
        half = torch.randint(3, vocabulary, (4, LENGTH // 2), generator=draw)
        said = torch.cat([half, half], 1)
        random_text = Batch(said, torch.ones_like(said, dtype=torch.bool))
        self.probe = reference(self.model, self.native, [random_text])

    @torch.no_grad()
    def _read(self, batch: Batch) -> Tensor:
        """Attention beyond the latest keys [positions]; every layer's index distribution aside."""
        far, visible = [], causal(batch.ids.shape[1])
        age = torch.arange(batch.ids.shape[1])[:, None] - torch.arange(batch.ids.shape[1])
        said: list[Tensor] = []

        def tap(layer: Layer) -> None:
            products = layer.query @ layer.key.transpose(-1, -2) * layer.attention.scaling
            shares = products.masked_fill(~layer.chosen.unsqueeze(1), -1e9).softmax(-1)
            far.append((shares * (age >= self.topk)).sum(-1).mean(1)[batch.valid])
            said.append(_log_share(layer, visible)[batch.valid])

        forward(self.model, batch.ids, tap=tap)
        self.wanted.append(said)
        return torch.stack(far).mean(0)

    def exam(self, schedule: Any) -> Exam:
        """The questions, under an arm."""
        return Exam(self.model, self.subject, schedule)

    @torch.no_grad()
    def consumers(self, schedule: Any, students: Students, layer: int) -> float:
        """Mean KL from the index distributions of the layers served to the candidate's."""
        served = {*schedule.consumers(layer, "prefill"), *schedule.consumers(layer, "decode")}
        found = []
        for batch, wanted in zip(self.batches, self.wanted, strict=True):
            own: list[Tensor] = []
            visible, valid = causal(batch.ids.shape[1]), batch.valid

            def tap(at: Layer, own: Any = own, visible: Any = visible, valid: Any = valid) -> None:
                if at.number == layer:
                    own.append(_log_share(at, visible)[valid])
                    raise ForwardStoppedError

            with students.acting(self.model), suppress(ForwardStoppedError):
                forward(self.model, batch.ids, schedule=schedule, tap=tap)
            for log_p in (wanted[c] for c in served):
                kl = log_p.exp() * (log_p.clamp(min=-50) - own[0].clamp(min=-50))
                found.append(kl.sum(-1).mean())
        return float(torch.stack(found).mean())

    def arm(self, arm: str) -> Iterator[dict[str, Any]]:
        """One row per full layer that trains and candidate."""
        retention, lag = arm.split(":")
        config = DistillConfig.model_validate(
            {"model": "x", "arm": {"retention": retention, "lag": int(lag)}}
        )
        schedule = config.arm.schedule(self.native)
        layers = trained_layers(schedule, "keep")
        if not layers:
            return
        students = Students.of_model(self.sites, layers)
        plan = make_plan(self.model, schedule, layers, config)
        undistilled = arm_divergence(self.model, students, plan, self.original)
        rows: list[dict[str, Any]] = []
        exam = self.exam(schedule)

        def watch(layer: int, name: str, found: Tensor) -> None:
            with students.acting(self.model):
                twice = self.probe.divergence(self.model, schedule)
                right = exam.right(schedule.layer_ids[layer], first=name == "own")
            rows.append(
                {
                    "layer": schedule.layer_ids[layer],
                    "candidate": name,
                    "answers": sum(right) / len(right),
                    "right": right,
                    "probe": float(twice.view(-1, LENGTH)[:, LENGTH // 2 :].mean()),
                    "consumers": self.consumers(schedule, students, layer),
                    **self._means(found, undistilled),
                }
            )

        criterion = Criterion.of(undistilled, 1.0, self.gain)
        closed_form(
            self.model, students, plan, self.original, criterion, config.closed_form, watch=watch
        )
        yield from rows

    def _means(self, found: Tensor, undistilled: Tensor) -> dict[str, Any]:
        texts = [self.text == i for i in range(int(self.text.max()) + 1)]
        worst = [found[own].topk(max(1, int(own.sum()) // 20)).values.mean() for own in texts]
        share = self.gain / self.gain.sum()
        return {
            "mean": float(found.mean()),
            "gain": float((share * found).sum()),
            "tail": Criterion.of(undistilled, 0.25)(found),
            "worst": float(torch.stack(worst).mean()),
            "attention": float((self.attention * found).sum() / self.attention.sum()),
            "by_text": [float((share * found)[own].sum()) for own in texts],
        }


class Exam:
    """A subject's questions under an arm; layers before the one that changes run once."""

    def __init__(self, model: Any, subject: Subject, schedule: Any) -> None:
        self.model, self.schedule = model, schedule
        self.asked = subject.asked.split(8)
        self.batches = [
            Batch(ids, torch.ones_like(ids, dtype=torch.bool)) for ids in subject.ids.split(8)
        ]
        place = torch.arange(subject.ids.shape[1])
        decoding = [place >= asked.int().argmax(1)[:, None] for asked in self.asked]
        self.cache = ActivationCache(model, self.batches, decoding)

    @torch.no_grad()
    def right(self, layer: int, *, first: bool) -> list[int]:
        """1 or 0 of every question; `first`: what lies before this layer has changed."""
        if first:
            self.cache.commit(self.schedule, start=0, only=layer - 1)
        answers: list[int] = []
        for number, (batch, asked) in enumerate(zip(self.batches, self.asked, strict=True)):
            hidden = self.cache.final_hidden_states(self.schedule, number, start=layer)
            said = self.model.lm_head(hidden[:, :-1]).argmax(-1)
            answers += ((said == batch.ids[:, 1:]) | ~asked[:, 1:]).all(1).int().tolist()
        return answers


def _batches(texts: list[list[int]], size: int = 4) -> Iterator[Batch]:
    for first in range(0, len(texts), size):
        part = texts[first : first + size]
        longest = max(map(len, part))
        ids = torch.tensor([text + [0] * (longest - len(text)) for text in part])
        yield Batch(
            ids, torch.arange(longest) < torch.tensor([[len(text)] for text in part]), first
        )


def _log_share(layer: Layer, visible: Tensor) -> Tensor:
    if layer.scores is None:
        raise ValueError("the layer computed no scores")
    return layer.scores.masked_fill(~visible, -1e9).log_softmax(-1)


def tied(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Candidates that the best by `gain` does not beat by a standard error over the texts."""
    best = min(rows, key=lambda row: row["gain"])
    out = []
    for row in rows:
        apart = torch.tensor(row["by_text"]) - torch.tensor(best["by_text"])
        if float(apart.sum()) <= float(apart.std() * len(apart) ** 0.5):
            out.append(row)
    return out


def pick(rows: list[dict[str, Any]], criterion: str) -> dict[str, Any]:
    """The candidate of a layer that a criterion chooses."""
    if criterion == "ties":
        return min(tied(rows), key=lambda row: row["consumers"])
    return min(rows, key=lambda row: row[criterion])


def paired(best: dict[str, Any], other: dict[str, Any]) -> tuple[float, float]:
    """Difference of two candidates on the same questions, and its standard error."""
    apart = torch.tensor(best["right"]).float() - torch.tensor(other["right"]).float()
    return float(apart.mean()), float(apart.std() / len(apart) ** 0.5)


def table(cells: list[dict[str, Any]]) -> str:
    """Markdown: candidates of every layer, the picks, and how far each criterion stays off."""
    layers: dict[tuple[str, str, int, int], list[dict[str, Any]]] = {}
    for cell in cells:
        key = cell["model"], f"{cell['arm']}, {cell['texts']} texts", cell["seed"], cell["layer"]
        layers.setdefault(key, []).append(cell)
    lines, off = [], {name: list[float]() for name in CRITERIA}
    shown = CRITERIA[:-1]
    lines += ["| model, arm, seed, layer | candidate | answers | " + " | ".join(shown) + " |"]
    lines += ["|---" * (len(shown) + 3) + "|"]
    for (model, arm, seed, layer), rows in layers.items():
        for row in rows:
            values = " | ".join(f"{row[name]:.3f}" for name in shown)
            lines.append(
                f"| {model}, {arm}, {seed}, {layer} | {row['candidate']} |"
                f" {row['answers']:.3f} | {values} |"
            )
    heads = ("model, arm, seed, layer", "best", "own", *CRITERIA, "tied", "off ±")
    lines += ["", "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for (model, arm, seed, layer), rows in layers.items():
        best = max(rows, key=lambda row: row["answers"])
        picks = [pick(rows, name) for name in CRITERIA]
        behind, error = paired(best, picks[CRITERIA.index("gain")])
        for name, chosen in zip(CRITERIA, picks, strict=True):
            off[name].append(best["answers"] - chosen["answers"])
        cells_ = " | ".join(f"{row['candidate']} {row['answers']:.2f}" for row in picks)
        lines.append(
            f"| {model}, {arm}, {seed}, {layer} | {best['candidate']} {best['answers']:.2f} |"
            f" {rows[0]['answers']:.2f} | {cells_} | {len(tied(rows))} |"
            f" {behind:.3f} ± {error:.3f} |"
        )
    lines += [
        "",
        "| criterion | within .05 of the best | mean off | most off |",
        "|---|---|---|---|",
    ]
    for name, values in off.items():
        near = sum(value <= 0.05 for value in values)
        lines.append(
            f"| {name} | {near} of {len(values)} | {sum(values) / len(values):.3f} |"
            f" {max(values):.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Fill the table and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--arms", nargs="*", default=ARMS, choices=ARMS)
    parser.add_argument("--texts", type=int, default=12)
    parser.add_argument("--questions", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0, help="of the calibration text")
    parser.add_argument("--table", action="store_true", help="print what is there")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "candidates.jsonl"
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    torch.set_num_threads(1)
    for name in () if args.table else args.models:
        bench = Bench(MODELS[name](args.texts, args.questions, args.seed))
        right = bench.exam(bench.native).right(0, first=True)
        print(f"{name}: {sum(right)} of {args.questions} questions", flush=True)
        for arm in args.arms:
            place = {
                "model": name,
                "arm": arm,
                "seed": args.seed,
                "texts": args.texts,
                "questions": args.questions,
            }
            if any(place.items() <= row.items() for row in known):
                continue
            rows = [place | row for row in bench.arm(arm)]
            known += rows
            with file.open("a") as out:
                out.writelines(json.dumps(row) + "\n" for row in rows)
            print(f"{name} {arm}: {len(rows)} candidates", flush=True)
    print(table(known))


if __name__ == "__main__":
    main()
