"""Greedy search for the layers that keep their indexer (IndexCache, arXiv 2603.12201, App. B).

Begin with the full schedule; in every round try each change on fixed calibration text, and commit
the one with the least loss. The committed schedules are nested, so one run gives a pattern at every
retention on the way. Beyond the paper: layers before a changed one are not computed again
(`distill.models.activation_cache`), the same loop raises a lag per layer, and a proposal may leave
candidates out.

Every number is written to search.jsonl as it comes; the same command goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from distill.config.search import SearchConfig
from distill.data.batch import Batch
from distill.errors import DistillError, at
from distill.models.causal_lm import CausalLM
from distill.search.log import SearchLog
from distill.search.neighbors import Neighbors, blocks, evaluations, full_layers_at
from distill.search.recall_ranking import predicted_cost, recalls
from distill.search.schedule_loss import ScheduleLoss
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.families.sites import indexer_sites


@dataclass(frozen=True, slots=True)
class SearchStep:
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


class GreedySearch:
    """A search over one model.

    Attributes:
        config: the recipe.
        steps: committed changes, the beginning first.
    """

    def __init__(
        self,
        model: CausalLM,
        config: SearchConfig,
        texts: Mapping[str, Sequence[Batch]],
        log: SearchLog,
        *,
        on_step: Callable[[SearchStep], None] = lambda _: None,
    ) -> None:
        """`texts`: ``calibration`` decides, ``held_out`` is only reported."""
        self.config, self.steps = config, list[SearchStep]()
        self._model, self._calibration = model, texts["calibration"]
        self._log, self._on_step = log, on_step
        begin = config.begin.schedule(indexer_sites(model).layout.native)
        self._blocks = blocks(begin.layer_ids, config.stages)
        heads = {block[0] for block in self._blocks}
        missing = [h for h in heads if not begin.computes[h]]
        if missing:
            raise DistillError(
                f"stage head {begin.layer_ids[missing[0]]} is shared at the beginning"
            )
        self._neighbors = Neighbors(
            self.config.kind, frozenset(heads), self.config.max_lag, self.config.lag_phase
        )
        self._begin = begin
        policy = config.begin.selection
        self._loss, self._held_out_loss = (
            ScheduleLoss(model, texts[split], config.criterion, policy)
            for split in ("calibration", "held_out")
        )
        self._recall: Tensor | None = None
        self._last_increase: dict[int, float] = {}

    # -- cost -----------------------------------------------------------------------------------

    @property
    def flips(self) -> int:
        """Changes to be committed."""
        if self.config.kind == "lag":
            return sum(max(self._reach(i)) for i in range(len(self._begin)))
        least = max(full_layers_at(self.config.retention, len(self._begin)), len(self._blocks))
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

    @property
    def layer_runs(self) -> int:
        """Decoder layers run, times batches."""
        return self._loss.cache.layer_runs + self._held_out_loss.cache.layer_runs

    def _reach(self, ordinal: int) -> list[int]:
        """Lags that a layer can take on top of its own."""
        rank = sum(self._begin.computes[: ordinal + 1]) - 1
        current = self._begin.lags[ordinal]
        return [
            k - current for k in range(current, min(self.config.max_lag, max(rank, current)) + 1)
        ]

    # -- the search -----------------------------------------------------------------------------

    def run(self) -> list[SearchStep]:
        """Commit changes until the retention is reached, or no layer can lag further."""
        schedule = self._begin
        loss = self._measure(schedule)
        self._commit(SearchStep(-1, schedule, loss, self._measure_held_out(schedule), 0))
        turn = 0
        while len(self.steps) <= self.flips:
            among = self._blocks[turn % len(self._blocks)] if self.config.blockwise else None
            turn += 1
            candidates = self._neighbors.candidates(schedule, among)
            if not candidates:
                if not self._neighbors.candidates(schedule):
                    break
                continue
            before = self._log.evaluated
            ordinal, loss = self._best(schedule, candidates)
            schedule = self._neighbors.apply(schedule, ordinal)
            layer = schedule.layer_ids[ordinal]
            self._last_increase.pop(ordinal, None)
            measured = self._log.evaluated - before
            held_out = self._measure_held_out(schedule)
            self._commit(SearchStep(layer, schedule, loss, held_out, measured))
        return self.steps

    def _best(self, schedule: ReuseSchedule, candidates: list[int]) -> tuple[int, float]:
        """The change with the least loss among those that the proposal measures."""
        now, losses = self.steps[-1].loss, dict[int, float]()
        lazy, never = self.config.proposal == "lazy", float("-inf")
        if self.config.proposal == "recall":
            candidates = self._by_recall(schedule, candidates)[: self.config.top]
        elif lazy:
            candidates = sorted(candidates, key=lambda i: (self._last_increase.get(i, never), i))
        for ordinal in candidates:
            least = min(losses.values(), default=float("inf"))
            if lazy and least - now <= self._last_increase.get(ordinal, never):
                break  # every one that follows cost more than that when it was last measured
            losses[ordinal] = self._measure(self._neighbors.apply(schedule, ordinal))
            self._last_increase[ordinal] = losses[ordinal] - now
        best = min(losses, key=lambda i: (losses[i], i))
        return best, losses[best]

    def _by_recall(self, schedule: ReuseSchedule, candidates: list[int]) -> list[int]:
        if self._recall is None:
            policy = self.config.begin.selection
            self._recall = recalls(self._model, self._calibration, policy=policy)
        costs = {
            i: predicted_cost(self._recall, schedule, self._neighbors.apply(schedule, i))
            for i in candidates
        }
        return sorted(candidates, key=lambda i: (costs[i], i))

    def _measure(self, schedule: ReuseSchedule) -> float:
        """Calibration loss."""
        known = self._log.find("loss", schedule)
        if known is not None:
            self._log.evaluated += 1
            return known
        return self._log.write("loss", schedule, self._mean(self._loss, schedule))

    def _measure_held_out(self, schedule: ReuseSchedule) -> float:
        known = self._log.find("held_out", schedule)
        if known is not None:
            return known
        return self._log.write("held_out", schedule, self._mean(self._held_out_loss, schedule))

    def _mean(self, loss: ScheduleLoss, schedule: ReuseSchedule) -> float:
        """The loss of a schedule, from the activations of the one committed last."""
        with at(f"schedule {schedule}"):
            loss.cache.commit(self.steps[-1].schedule if self.steps else self._begin)
        return loss.mean(schedule)

    def _commit(self, step: SearchStep) -> None:
        self.steps.append(step)
        self._log.commit(step.layer, step.schedule, step.loss, step.held_out, step.evaluated)
        self._on_step(step)
