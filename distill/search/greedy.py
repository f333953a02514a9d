"""Greedy search for the layers that keep their indexer (IndexCache, arXiv 2603.12201, App. B).

Begin with the full schedule; in every round try each change on fixed calibration text, and commit
the one with the least loss. The committed schedules are nested, so one run gives a pattern at every
retention on the way. Beyond the paper: nothing in front of a changed layer is computed again
(`distill.models.activation_cache`), the same loop raises a lag per layer, and a proposal may leave
candidates out.

Every number is written to search.jsonl as it comes; the same command goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from distill.config.search import SearchConfig
from distill.data.batch import Batch
from distill.errors import DistillError
from distill.models.activation_cache import Prefix
from distill.search.log import SearchLog
from distill.search.neighbors import Moves, blocks, evaluations, full_at
from distill.search.recall_ranking import predicted_cost, recalls
from distill.validation.logit_kl import CHUNK_LOGITS, divergence
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.families.sites import indexer_sites


@dataclass(frozen=True, slots=True)
class Step:
    """One committed change.

    Attributes:
        layer: absolute id of the changed layer; -1 for the beginning.
        schedule: after it.
        loss: on the calibration text.
        held_out: on the held-out text.
        evaluated: candidates that this step measured.
    """

    layer: int
    schedule: ReuseSchedule
    loss: float
    held_out: float
    evaluated: int


class Search:
    """A search over one model.

    Attributes:
        config: the recipe.
        steps: committed changes, the beginning first.
    """

    def __init__(
        self,
        model: Any,
        config: SearchConfig,
        texts: Mapping[str, Sequence[Batch]],
        log: SearchLog,
        *,
        on_step: Callable[[Step], None] = lambda _: None,
        on_evaluation: Callable[[], None] = lambda: None,
    ) -> None:
        """`texts`: ``calibration`` decides, ``held_out`` is only looked at."""
        self.config, self.steps = config, list[Step]()
        self._model, self._calibration, self._log = model, texts["calibration"], log
        self._on_step, self._on_evaluation = on_step, on_evaluation
        begin = config.begin.schedule(indexer_sites(model).layout.native)
        self._blocks = blocks(begin.layer_ids, config.stages)
        heads = {block[0] for block in self._blocks}
        missing = [h for h in heads if not begin.computes[h]]
        if missing:
            raise DistillError(
                f"stage head {begin.layer_ids[missing[0]]} is shared at the beginning"
            )
        self._moves = Moves(
            self.config.kind, frozenset(heads), self.config.max_lag, self.config.lag_phase
        )
        self._begin = begin
        self._text = Text(model, texts["calibration"], config.criterion)
        self._check = Text(model, texts["held_out"], config.criterion)
        self._recall: Tensor | None = None
        self._last: dict[int, float] = {}

    # -- cost -----------------------------------------------------------------------------------

    @property
    def flips(self) -> int:
        """Changes to be committed."""
        if self.config.kind == "lag":
            return sum(max(self._reach(i)) for i in range(len(self._begin)))
        least = max(full_at(self.config.retention, len(self._begin)), len(self._blocks))
        return max(0, sum(self._begin.computes) - least)

    @property
    def most_evaluations(self) -> int:
        """Evaluations if every candidate of every round is measured."""
        if self.config.kind == "lag":
            movable = sum(max(self._reach(i)) > 0 for i in range(len(self._begin)))
            return sum(min(movable, self.flips - done) for done in range(self.flips))
        candidates = sum(self._begin.computes)
        whole = evaluations(candidates, self.flips, len(self._blocks))
        return -(-whole // len(self._blocks)) if self.config.blockwise else whole

    def _reach(self, ordinal: int) -> list[int]:
        """Lags that a layer can take on top of its own."""
        rank = sum(self._begin.computes[: ordinal + 1]) - 1
        own = self._begin.lags[ordinal]
        return [k - own for k in range(own, min(self.config.max_lag, max(rank, own)) + 1)]

    # -- the search -----------------------------------------------------------------------------

    def run(self) -> list[Step]:
        """Commit changes until the retention is reached, or no layer can lag further."""
        schedule = self._begin
        loss, _ = self._measure(schedule)
        self._commit(Step(-1, schedule, loss, self._look(schedule), 0))
        turn = 0
        while len(self.steps) <= self.flips:
            among = self._blocks[turn % len(self._blocks)] if self.config.blockwise else None
            turn += 1
            found = self._moves.of(schedule, among)
            if not found:
                if not self._moves.of(schedule):
                    break
                continue
            before = self._log.evaluated
            ordinal, loss = self._best(schedule, found)
            schedule = self._moves.made(schedule, ordinal)
            layer = schedule.layer_ids[ordinal]
            self._last.pop(ordinal, None)
            measured = self._log.evaluated - before
            self._commit(Step(layer, schedule, loss, self._look(schedule), measured))
        return self.steps

    def _best(self, schedule: ReuseSchedule, found: list[int]) -> tuple[int, float]:
        """The change with the least loss among those that the proposal measures."""
        now, losses = self.steps[-1].loss, dict[int, float]()
        if self.config.proposal == "recall":
            found = self._by_recall(schedule, found)[: self.config.top]
        elif self.config.proposal == "lazy":
            found = sorted(found, key=lambda i: (self._last.get(i, float("-inf")), i))
        for ordinal in found:
            least = min(losses.values(), default=float("inf"))
            if self.config.proposal == "lazy" and least - now <= self._last.get(
                ordinal, float("-inf")
            ):
                break  # every one that follows cost more than that when it was last measured
            losses[ordinal], fresh = self._measure(self._moves.made(schedule, ordinal))
            self._last[ordinal] = losses[ordinal] - now
            if fresh:
                self._on_evaluation()
        best = min(losses, key=lambda i: (losses[i], i))
        return best, losses[best]

    def _by_recall(self, schedule: ReuseSchedule, found: list[int]) -> list[int]:
        if self._recall is None:
            self._recall = recalls(self._model, self._calibration)
        recall = self._recall
        costs = {i: predicted_cost(recall, schedule, self._moves.made(schedule, i)) for i in found}
        return sorted(found, key=lambda i: (costs[i], i))

    def _measure(self, schedule: ReuseSchedule) -> tuple[float, bool]:
        """Calibration loss, and whether it had to be computed."""
        known = self._log.find("loss", schedule)
        if known is not None:
            self._log.evaluated += 1
            return known, False
        self._hold(self._text)
        return self._log.write("loss", schedule, self._text.loss(schedule)), True

    def _look(self, schedule: ReuseSchedule) -> float:
        known = self._log.find("held_out", schedule)
        if known is not None:
            return known
        self._hold(self._check)
        return self._log.write("held_out", schedule, self._check.loss(schedule))

    def _hold(self, text: Text) -> None:
        """Put the schedule committed last in force, where it is not yet."""
        text.prefix.hold(self.steps[-1].schedule if self.steps else self._begin)

    def _commit(self, step: Step) -> None:
        self.steps.append(step)
        self._log.commit(step.layer, step.schedule, step.loss, step.held_out, step.evaluated)
        self._on_step(step)

    @property
    def layer_runs(self) -> int:
        """Decoder layers run, times batches."""
        return self._text.prefix.layer_runs + self._check.prefix.layer_runs


class Text:
    """Fixed batches and their loss under a schedule.

    Attributes:
        prefix: what the model does on them under the schedule in force.
    """

    def __init__(self, model: Any, batches: Sequence[Batch], criterion: str) -> None:
        self._model, self._batches = model, list(batches)
        rows = [_behind_the_middle(batch) for batch in self._batches]
        self.prefix = Prefix(model, self._batches, rows)
        self._original: list[Tensor] | None = None
        if criterion == "logit_kl":
            native = indexer_sites(model).layout.native
            self.prefix.hold(native)
            self._original = [
                self.prefix.final(native, n)[b.valid].cpu() for n, b in enumerate(self._batches)
            ]

    def loss(self, schedule: ReuseSchedule) -> float:
        """Mean over predicted tokens."""
        total, count = 0.0, 0
        for number, batch in enumerate(self._batches):
            hidden = self.prefix.final(schedule, number)
            if self._original is None:
                some = next_token_loss(self._model, hidden, batch)
            else:
                after = hidden[batch.valid]
                head = self._model.get_output_embeddings()
                some = divergence(head, self._original[number].to(after), after)
            total += float(some.double().sum())
            count += len(some)
        return total / max(count, 1)


@torch.no_grad()
def next_token_loss(model: Any, hidden: Tensor, batch: Batch) -> Tensor:
    """Cross entropy of every predicted token, from final hidden states [B, S, hidden]: fp32 [N]."""
    head = model.get_output_embeddings()
    predicts = batch.valid[:, 1:]
    states, goal = hidden[:, :-1][predicts], batch.ids[:, 1:][predicts]
    size = max(1, CHUNK_LOGITS // int(model.config.get_text_config().vocab_size))
    parts = [
        torch.nn.functional.cross_entropy(head(some).float(), wanted, reduction="none").cpu()
        for some, wanted in zip(torch.split(states, size), torch.split(goal, size), strict=True)
    ]
    return torch.cat(parts)


def _behind_the_middle(batch: Batch) -> Tensor:
    """bool [B, S]: which rows count as decode rows."""
    middle = batch.valid.sum(1, keepdim=True) // 2
    return torch.arange(batch.ids.shape[1], device=batch.ids.device)[None] >= middle
