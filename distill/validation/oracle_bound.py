"""`distill oracle`: upper bound with oracle selections, in a minute, before anything is trained.

The mean of the consumers is no strict bound (`distill.validation.oracle_selection`); on request
every consumer is tried alone too, layer by layer in depth order. Oracle selections know of no
policy: under one they say what a full layer could give if it selected freely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from torch import Tensor

from distill.data.batch import Batch
from distill.objective.teacher_assignment import TeacherAssignment
from distill.setup import TrainingSetup
from distill.validation.logit_kl import Criterion, Reference, arm_divergence, reference
from distill.validation.oracle_selection import oracle_selections


@dataclass(frozen=True, slots=True)
class OracleBound:
    """Divergence of the final logits from the original's, per way to select.

    Attributes:
        name: what selects.
        overall: mean over all positions.
        tail: mean over the positions where the undistilled arm is worst.
    """

    name: str
    overall: float
    tail: float


def oracle_bounds(
    setup: TrainingSetup,
    tail: float,
    on_bound: Callable[[OracleBound], None] = lambda _: None,
    *,
    each: bool = False,
) -> list[OracleBound]:
    """The undistilled arm, oracle selections after the first full layer, and everywhere.

    Args:
        setup: the students are not used.
        tail: share of positions that the second number is about.
        on_bound: called as results come.
        each: try every consumer alone too; one original and one arm's forward for each.
    """
    plan, model = setup.plan, setup.model
    batches = setup.data.splits["held_out"].batches(setup.config.train.micro_batch)
    batches = [batch.to(model.device) for batch in batches]
    original = reference(model, setup.native, batches)
    undistilled = arm_divergence(model, setup.students, plan, original)
    criterion = Criterion.of(undistilled, tail)
    full = setup.schedule.full_layers
    bounds: list[OracleBound] = []

    def add(name: str, divergence: Tensor) -> None:
        bounds.append(OracleBound(name, float(divergence.mean()), criterion(divergence)))
        on_bound(bounds[-1])

    add("undistilled", undistilled)
    for name, layers in (
        ("of all consumers, first full layer as it is", full[1:]),
        ("of all consumers, everywhere", full),
    ):
        if layers:
            add(name, _with_oracle(setup, original, layers))
    if each and full[1:]:
        only = _best_alone(setup, original, full[1:], criterion)
        ids = setup.schedule.layer_ids
        names = ", ".join(str(ids[only[f]]) if f in only else "all" for f in full[1:])
        name = f"of layers {names}, first full layer as it is"
        add(name, _with_oracle(setup, original, full[1:], only))
    return bounds


def _best_alone(
    setup: TrainingSetup, original: Reference, layers: tuple[int, ...], criterion: Criterion
) -> dict[int, int]:
    """Full layer to the consumer that it had better serve alone; a layer left out serves all."""
    assignment = TeacherAssignment.of(setup.native, setup.schedule, layers)
    only: dict[int, int] = {}
    best = criterion(_with_oracle(setup, original, layers))
    for layer in layers:
        scores = {
            consumer: criterion(_with_oracle(setup, original, layers, only | {layer: consumer}))
            for consumer in sorted(assignment.indexers_for(layer))
        }
        alone = min(scores, key=lambda c: scores[c])
        if scores[alone] < best:
            only[layer], best = alone, scores[alone]
    return only


def _with_oracle(
    setup: TrainingSetup,
    original: Reference,
    layers: tuple[int, ...],
    only: Mapping[int, int] | None = None,
) -> Tensor:
    """Divergence at every position with oracle selections in some full layers."""

    def chosen(batch: Batch) -> dict[int, Tensor]:
        rows = setup.plan.decode_rows(batch)
        return oracle_selections(setup.model, setup.schedule, batch, layers, rows, only)

    plan = setup.plan
    return original.divergence(
        setup.model, setup.schedule, plan.decode_rows, policy=plan.policy, given=chosen
    )


def oracle_table(bounds: Sequence[OracleBound], tail: float, schedule: str) -> Table:
    """KL of final logits under oracle selections, and how much of the damage they undo."""
    table = Table(title=f"oracle selections under {schedule}", title_justify="left")
    table.add_column("what the full layers select for")
    table.add_column("logit KL", justify="right")
    table.add_column(f"worst {tail:.0%} of positions", justify="right")
    table.add_column("of that undone", justify="right")
    undistilled = bounds[0].tail
    for bound in bounds:
        undone = f"{1 - bound.tail / undistilled:.0%}" if undistilled > 0 else "–"
        table.add_row(bound.name, f"{bound.overall:.4f}", f"{bound.tail:.4f}", undone)
    return table
