"""Head weights of a candidate, fitted to what all the layers served say together.

Ridge regression repeats one consumer: how much each index head counts is what that consumer would
have it count. Queries and keys left as they are, the scores are linear in the weights' map W,

    I[t,s] = Σ_h (W x_t)_h · ReLU(q[t,h]·k[s]),

so that the KL from the consumers' mean distribution to softmax(I), each query counted by what the
criterion counts its position, is convex in W: there is one answer, found by L-BFGS in a few looks
at a few hundred queries. No teacher is asked twice, no position needs a label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from distill.config.train import LOOKS
from distill.data.batch import Batch
from distill.errors import at, require_finite
from distill.losses.base import Needs
from distill.losses.kl import KL
from distill.models.causal_lm import CausalLM
from distill.models.forward import visit_indexer_calls
from distill.models.student import State, Students, in_precision
from distill.objective.loss import Objective, WeightedLoss, student_loss
from distill.objective.plan import DistillPlan
from distill.objective.query_sampling import PHASES, QueryGroup, has_two_phases
from distill.objective.teacher_assignment import TeacherAssignment, teachers_of_batch
from distill.objective.teachers import AttentionTeacher, Teacher, consumer_targets
from evalkit.dsa import IndexerCall, index_features
from evalkit.dsa.families.sites import indexer_sites

RIDGE = 1e-4  # on the change of W x, against nats


@dataclass(frozen=True, slots=True)
class _Asked:
    """Some queries of one batch and the consumers' mean distribution at them."""

    call: IndexerCall
    group: QueryGroup
    teacher: Teacher


class HeadWeights:
    """Fits the head weights of one full layer's candidates."""

    def __init__(
        self,
        model: CausalLM,
        students: Students,
        plan: DistillPlan,
        batches: Sequence[Batch],
        weight: Tensor,
        layer: int,
    ) -> None:
        """Ask the consumers.

        Args:
            model: the original.
            students: in the arm whose inputs the layer sees.
            plan: arm and teachers.
            batches: calibration text.
            weight: of every valid position of it, in order.
            layer: the full layer (ordinal).
        """
        self._model, self._student, self._layer = model, students.modules[layer], layer
        losses = (WeightedLoss("kl", 1.0, KL()),)
        self._objective: Objective = replace(plan.objective, losses=losses)
        counts = [int(batch.valid.sum()) for batch in batches]
        self._asked: list[_Asked] = []
        for batch, part in zip(batches, torch.split(weight, counts), strict=True):
            groups = _heaviest(batch, part, plan)
            call = _inputs(model, students, plan, batch, layer)
            self._asked += self._teachers(batch, groups, plan, call)
        self._total = sum(float(asked.group.weight.sum()) for asked in self._asked)

    def _teachers(
        self, batch: Batch, groups: Sequence[QueryGroup], plan: DistillPlan, call: IndexerCall
    ) -> list[_Asked]:
        of_layer = {k: v for k, v in plan.assignment.consumers.items() if k[1] == self._layer}
        assignment = TeacherAssignment(of_layer, plan.assignment.indexer_of)
        with plan.original(self._model):
            said = teachers_of_batch(self._model, batch, groups, assignment, (plan.kind,))
        asked = []
        for group in groups:
            layers = assignment.teachers(group.phase, self._layer, plan.kind)
            if not layers:
                continue
            consumers = [said[plan.kind, group.phase, layer] for layer in layers]
            keys = consumers[0].keys
            every = torch.ones(*group.positions.shape, keys, dtype=torch.bool)
            targets = consumer_targets(
                consumers, slice(None), every.to(call.hidden.device), Needs(mean=True, order=0)
            )
            mean = AttentionTeacher(targets.mean.log())  # its softmax is the mean again
            asked.append(_Asked(call, group.to(call.hidden.device), mean))
        return asked

    def fit(self, state: State) -> State:
        """A candidate with its head weights fitted; everything else as it was.

        Raises:
            NonFiniteError: the weights, or scores on the way, are.
        """
        self._student.load_state_dict(state)
        maps = [p for n, p in self._student.named_parameters() if "weights_proj" in n.split(".")]
        came = [parameter.detach().clone() for parameter in maps]
        trained = {p: p.requires_grad for p in self._student.parameters()}
        search = torch.optim.LBFGS(maps, max_iter=LOOKS, line_search_fn="strong_wolfe")

        def look() -> Tensor:
            search.zero_grad()
            return self._loss(maps, came)

        try:
            for parameter in trained:
                parameter.requires_grad_(any(parameter is p for p in maps))
            search.step(look)  # type: ignore[no-untyped-call]
            with at("head weights"):
                for parameter in maps:
                    require_finite(parameter.detach(), "fitted head weights")
            return {k: v.detach().clone() for k, v in self._student.state_dict().items()}
        finally:
            for parameter, before in trained.items():
                parameter.requires_grad_(before)
                parameter.grad = None

    def _loss(self, maps: Sequence[nn.Parameter], came: Sequence[Tensor]) -> Tensor:
        """Weighted mean KL and ridge; their gradient is left in the maps."""
        value = torch.zeros(())
        for asked in self._asked:
            with torch.enable_grad():
                call = in_precision(asked.call, self._student)
                features = index_features(self._model, self._student, call, asked.group.positions)
                sums = student_loss(
                    features,
                    [asked.teacher],
                    self._objective,
                    weight=asked.group.weight,
                    scale=1 / self._total,
                )
            value += sums.of("kl").total / self._total
        size = self._asked[0].call.hidden.float().square().mean()
        for parameter, before in zip(maps, came, strict=True):
            change = parameter.detach() - before
            value = value + RIDGE * size.cpu() * change.square().sum().cpu()
            if parameter.grad is not None:
                parameter.grad.add_(2 * RIDGE * size * change)
        return value


def _heaviest(batch: Batch, weight: Tensor, plan: DistillPlan) -> list[QueryGroup]:
    """Per phase the positions that count most, as many per sequence as a step draws.

    Args:
        batch: text.
        weight: of its valid positions, in order.
        plan: for the phases.
    """
    spread = torch.zeros(batch.valid.shape, device=batch.valid.device)
    spread[batch.valid] = weight.to(spread)
    rows = plan.decode_rows(batch)
    if rows is None or not has_two_phases(plan.schedule):
        shares = {"prefill": spread}
    else:
        shares = {"prefill": spread.masked_fill(rows, 0), "decode": spread.masked_fill(~rows, 0)}
    groups = []
    for phase in PHASES:
        if phase in shares:
            count = min(plan.queries, spread.shape[1])
            positions = shares[phase].topk(count).indices.sort().values
            groups.append(QueryGroup(phase, positions, shares[phase].gather(1, positions)))
    return groups


def _inputs(
    model: CausalLM, students: Students, plan: DistillPlan, batch: Batch, layer: int
) -> IndexerCall:
    """What the full layer's indexer reads."""
    calls: list[IndexerCall] = []

    def keep(_: int, call: IndexerCall) -> None:
        calls.append(call)

    if plan.on_policy:
        with students.acting(model):
            visit_indexer_calls(
                model,
                plan.schedule,
                batch,
                keep,
                layers=(layer,),
                policy=plan.policy,
                decode_rows=plan.decode_rows(batch),
            )
    else:
        visit_indexer_calls(model, indexer_sites(model).layout.native, batch, keep, layers=(layer,))
    return calls[0]
