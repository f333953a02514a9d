"""Final logits without the whole model in memory: one more pass over the layers.

To compare states of one full layer's indexer, the arm goes on from that layer to the last with each
of them, all through one layer before the next is opened. What they are compared with, the original
and the undistilled arm, goes from the first layer to the last once.

    final/original/…, final/plain/…     courses, whose ends are kept
    try/<state>/…                       a course per state, gone at its end
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from distill.data.batch import Batch
from distill.layerwise.hidden_states import Course, State
from distill.layerwise.setup import Job
from distill.validation.logit_kl import Criterion, divergence


class Judge:
    """Compares states of indexers by the KL of final logits to the original's.

    Attributes:
        at: layer that the original and the undistilled arm stand in front of.
    """

    def __init__(self, job: Job, arm: Course, at: int = 0) -> None:
        self.at = at
        self._job, self._arm = job, arm
        self._end = len(job.layers)
        self._original = Course(job, "final/original", job.layers.layout.native)
        self._plain = Course(job, "final/plain", job.schedule)
        self._known: dict[str, Tensor] = {}  # divergence of the undistilled arm, by split

    def begin(self, on_layer: Callable[[], None]) -> None:
        """Run the original and the undistilled arm to the end; `on_layer` is called behind each."""
        job = self._job
        if self.at == 0:
            embedding = job.layers.embed()
            for course in (self._original, self._plain):
                course.begin(job.judged, embedding)
        while job.judged and self.at < self._end:
            number = self.at
            layer = job.layers.open(number)
            for course in (self._original, self._plain):
                course.through(layer, job.judged)
            del layer
            self.at = number + 1
            on_layer()
            for course in (self._original, self._plain):
                course.leave(number)

    def undistilled(self, split: str) -> dict[str, float]:
        """The arm before anything trained; see `scores`."""
        plain = self._undistilled(split)
        return self._scored(plain, plain)

    def scores(self, layer: int, states: Sequence[State], split: str) -> list[dict[str, float]]:
        """Per state of a full layer's indexer: ``logit_kl`` (mean over positions) and
        ``logit_kl_tail`` (over those that count, `choice.tail`), on one split of the text.

        The arm must stand in front of the layer, with the indexers that trained so far in it.
        """
        job, courses = self._job, list[Course]()
        for number, state in enumerate(states):
            name = f"try/{number}"
            courses.append(Course(job, name, job.schedule, {layer: state}, self._arm, layer))
        batches = self._batches(split)
        for number in range(layer, self._end):
            opened = job.layers.open(number)
            for course in courses:
                course.through(opened, batches)
                course.leave(number)
            del opened
        plain, found = self._undistilled(split), self._divergences(courses, split)
        for course in courses:
            course.end()
        return [self._scored(one, plain) for one in found]

    def _batches(self, split: str) -> dict[str, Batch]:
        return {n: b for n, b in self._job.judged.items() if n.startswith(f"{split}/")}

    def _undistilled(self, split: str) -> Tensor:
        if split not in self._known:
            (self._known[split],) = self._divergences([self._plain], split)
        return self._known[split]

    def _divergences(self, courses: Sequence[Course], split: str) -> list[Tensor]:
        """Per course, at every valid position of a split, fp32 [positions]."""
        norm, head = self._job.layers.top(self._job.meta)
        parts: list[list[Tensor]] = [[] for _ in courses]
        for name, batch in self._batches(split).items():
            valid = batch.valid.to(self._job.device)
            with torch.no_grad():
                before = norm(self._original.hidden(self._end, name))[valid]
                for course, found in zip(courses, parts, strict=True):
                    after = norm(course.hidden(self._end, name))[valid]
                    found.append(divergence(head, before, after))
        return [torch.cat(found) for found in parts]

    def _scored(self, found: Tensor, plain: Tensor) -> dict[str, float]:
        criterion = Criterion.of(plain, self._job.config.choice.tail)
        return {"logit_kl": float(found.mean()), "logit_kl_tail": criterion(found)}
