"""The training of one full layer from the shelf: start, gradient, looks, the best ones kept.

Same losses, rows, order of the text, rate, clipping and choice as the trainer that holds the whole
model. What needs final logits (candidates of the closed form; checkpoints, unless recall chooses
them) is asked of `Judge`, one pass over the layers for all candidates, one for all checkpoints.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from distill.config.train import TrainConfig
from distill.errors import DistillError
from distill.init.ridge_regression import Regression
from distill.layerwise.batches import Lesson, call_from, drawn_lesson, whole_lesson
from distill.layerwise.logit_evaluator import Judge
from distill.layerwise.setup import Job
from distill.layerwise.streams import looked_at
from distill.models.student import Students, in_precision
from distill.objective.loss import Objective, Sums, student_loss
from distill.training.state import clip, learning_rate
from evalkit.dsa import select
from evalkit.dsa.families.registry import family_of
from evalkit.dsa.families.sites import IndexerSites, features_of
from evalkit.dsa.overlap import common, size

State = dict[str, Tensor]


@dataclass(slots=True)
class Trained:
    """What became of one full layer.

    Attributes:
        layer: its ordinal.
        state: of the indexer that was kept.
        last: of the indexer after the last step.
        before: look at the undistilled indexer, and at the undistilled arm's logits.
        after: look at the one that was kept, the layers behind it still undistilled.
        best_step: where that was.
        chosen: candidate of the closed form, or the start's name.
        scores: logit KL by candidate.
    """

    layer: int
    state: State
    last: State
    before: dict[str, float]
    after: dict[str, float]
    best_step: int
    chosen: str
    scores: dict[str, float] = field(default_factory=dict)


class LayerTrainer:
    """Trains the indexer of one full layer.

    Attributes:
        students: the indexer in training, alone.
    """

    def __init__(
        self, job: Job, layer: int, indexer: nn.Module, judge: Judge,
        on_event: Callable[[str, dict[str, Any]], None],
    ) -> None:  # fmt: skip
        self._job, self._layer, self._judge, self._on_event = job, layer, judge, on_event
        self._by_logits = job.config.choice.checkpoint == "logit_kl"
        self._family = family_of(job.layers.config.get_text_config().model_type)
        self._features = features_of(self._family)
        self._own = indexer
        self._scale = float(getattr(indexer, "softmax_scale", 1.0))
        holder = nn.Module()
        holder.indexer = indexer
        places = (holder,) * len(job.layers.layout.layer_ids)
        sites = IndexerSites(self._family, job.layers.layout, places, holder)
        self.students = Students(sites, (layer,))
        if job.config.student.tensors:
            self.students.freeze_except(job.config.student.tensors)

    @property
    def _module(self) -> Any:
        return self.students.modules[self._layer]

    def run(self) -> Trained:
        """Start, train, keep the best.

        Raises:
            DistillError: the loss is no number.
        """
        train = self._job.config.train
        before = self._look("held_out")
        if self._by_logits:
            before |= self._judge.undistilled("held_out")
        chosen, scores = self._start()
        looks = [(0, self._look("held_out"), self._state())]
        named = self.students.named()
        optimizer = torch.optim.AdamW(
            named.values(), lr=train.lr, betas=(0.9, 0.98), weight_decay=train.weight_decay
        )
        for step in range(train.steps):
            self._step(step, optimizer, train)
            done = step + 1 == train.steps
            if done or (step + 1) % train.evaluate_every == 0:
                look = self._look("held_out")
                self._on_event("look", {"layer": self._layer, "step": step + 1, **look})
                looks.append((step + 1, look, self._state()))
                best = max(range(len(looks)), key=lambda i: looks[i][1]["recall"])
                if 0 < train.patience < len(looks) - best:
                    break
        last = self._state()
        best_step, after, state = self._best(looks)
        return Trained(self._layer, state, last, before, after, best_step, chosen, scores)

    def _best(
        self, looks: list[tuple[int, dict[str, float], State]]
    ) -> tuple[int, dict[str, float], State]:
        """The look to keep; the first of equals."""
        if not self._by_logits:
            return max(looks, key=lambda look: look[1]["recall"])
        scores = self._judge.scores(self._layer, [state for _, _, state in looks], "held_out")
        judged = [(s, look | score, t) for (s, look, t), score in zip(looks, scores, strict=True)]
        for step, look, _ in judged:
            self._on_event("judged", {"layer": self._layer, "step": step, **look})
        return min(judged, key=lambda look: look[1]["logit_kl_tail"])

    def _state(self) -> State:
        return {k: v.detach().clone() for k, v in self._module.state_dict().items()}

    # -- start ----------------------------------------------------------------------------------

    def _start(self) -> tuple[str, dict[str, float]]:
        start = self._job.config.student.start
        if start == "random":
            from distill.models.student import reinitialise

            reinitialise(self.students, self._job.config.train.seed)
        if start != "closed_form":
            return start, {}
        states = {"own": self._state()} | self._candidates()
        found = self._judge.scores(self._layer, list(states.values()), "calibration")
        scores = {n: one["logit_kl_tail"] for n, one in zip(states, found, strict=True)}
        chosen = min(scores, key=lambda name: scores[name])
        self._module.load_state_dict(states[chosen])
        self._on_event("choice", {"layer": self._layer, "chosen": chosen, "scores": scores})
        return chosen, scores

    def _candidates(self) -> dict[str, State]:
        """One state per teacher other than the layer itself, from the calibration text."""
        job = self._job
        regression = Regression(job.meta, self._module)
        speakers = {}
        for teacher in sorted(job.teachers(self._layer) - {self._layer}):
            speakers[teacher] = copy.deepcopy(self._own)
            speakers[teacher].load_state_dict(job.layers.indexer_state(teacher))
        for name, batch in self._batches("calibration"):
            valid = batch.valid.to(job.device)
            own = job.shelf.get(f"input/{self._layer}/{name}", job.device)
            regression.inputs(call_from(job, own, name), valid)
            for teacher, speaker in speakers.items():
                seen = job.shelf.get(f"teach/{teacher}/call/{name}", job.device)
                regression.outputs(teacher, speaker, call_from(job, seen, name), valid)
        ridge = job.config.closed_form.ridge
        return {
            str(job.layers.layout.layer_ids[teacher]): regression.candidate(teacher, speaker, ridge)
            for teacher, speaker in speakers.items()
        }

    def _batches(self, split: str) -> list[tuple[str, Any]]:
        return [(n, b) for n, b in self._job.batches.items() if n.startswith(f"{split}/")]

    # -- gradient -------------------------------------------------------------------------------

    def _step(self, step: int, optimizer: torch.optim.Optimizer, train: TrainConfig) -> None:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, train)
        optimizer.zero_grad(set_to_none=True)
        sums = Sums()
        draws = range(step * train.batch, (step + 1) * train.batch)
        for start in range(0, len(draws), train.micro_batch):
            some = draws[start : start + train.micro_batch]
            lesson = drawn_lesson(self._job, self._layer, some, self._scale)
            sums.add(self._losses(lesson, self._job.plan.objective))
        if not math.isfinite(sums.kl + sums.listmle):
            raise DistillError(
                f"layer {self._layer}, step {step + 1}: the loss is no number; lower train.lr"
            )
        parameters = [p for p in self.students.named().values() if p.grad is not None]
        for parameter in parameters:
            grad: Any = parameter.grad
            grad /= max(sums.rows, 1.0)
        norm = clip(parameters, train.clip)
        optimizer.step()
        row = {"layer": self._layer, "step": step + 1, "kl": sums.kl / max(sums.rows, 1.0)}
        self._on_event("train", {**row, "grad_norm": norm})

    def _losses(self, lesson: Lesson, objective: Objective) -> Sums:
        total = Sums()
        call = in_precision(lesson.call, self._module)
        for group, teachers in lesson.groups:
            features = self._features(self._module, call, group.rows.to(call.hidden.device))
            weight = group.weight.to(call.hidden.device)
            total.add(student_loss(features, teachers, objective, weight=weight))
        return total

    # -- looks ----------------------------------------------------------------------------------

    @torch.no_grad()
    def _look(self, split: str) -> dict[str, float]:
        """KL, mean over rows and consumers; recall of their top-k, consumers counted alike."""
        losses, recall = Sums(), dict[tuple[str, int], list[float]]()
        for name, batch in self._batches(split):
            lesson = whole_lesson(
                self._job, self._layer, name, batch, looked_at(self._job, batch), self._scale
            )
            losses.add(self._losses(lesson, Objective()))
            call = in_precision(lesson.call, self._module)
            for group, teachers in lesson.groups:
                at, weight = group.rows.to(call.hidden.device), group.weight.to(call.hidden.device)
                topk = self._module.index_topk
                given = select(self._features(self._module, call, at), topk)
                for i, teacher in enumerate(teachers):
                    wanted = select(teacher.features, topk)
                    real = weight * (size(wanted) > 0)
                    share = common(given, wanted, teacher.keys) / size(wanted).clamp(min=1)
                    tally = recall.setdefault((group.phase, i), [0.0, 0.0])
                    tally[0] += float((share * real).sum())
                    tally[1] += float(real.sum())
        means = [found / rows for found, rows in recall.values() if rows]
        mean = sum(means) / len(means) if means else float("nan")
        return {"kl": losses.kl / max(losses.rows, 1.0), "recall": mean}
