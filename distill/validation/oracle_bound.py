"""`distill oracle`: what oracle selections would give, in a minute, before anything is trained.

The mean of the consumers is no strict bound (`distill.validation.oracle_selection`); on request
every consumer is tried alone too, layer by layer in depth order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from rich.table import Table
from torch import Tensor

from distill.data.batch import Batch
from distill.objective.plan import decode_rows
from distill.objective.teacher_assignment import Lessons
from distill.setup import Session
from distill.validation.logit_kl import Criterion, Reference, arm_divergence, reference
from distill.validation.oracle_selection import given, oracle_selections


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Divergence of the final logits from the original's, per way to select.

    Attributes:
        name: what selects.
        overall: mean over all positions.
        tail: mean over the positions where the undistilled arm is worst.
    """

    name: str
    overall: float
    tail: float


def ceilings(
    session: Session,
    tail: float,
    on_row: Callable[[Ceiling], None] = lambda _: None,
    *,
    each: bool = False,
) -> list[Ceiling]:
    """The undistilled arm, oracle selections behind the first full layer, and everywhere.

    Args:
        session: the students are not used.
        tail: share of positions that the second number is about.
        on_row: called as results come.
        each: try every consumer alone too; one original and one arm's forward for each.
    """
    plan, model = session.plan, session.model
    batches = session.data.splits["held_out"].batches(session.config.train.micro_batch)
    batches = [batch.to(model.device) for batch in batches]
    original = reference(model, session.where.layout.native, batches)
    plain = arm_divergence(model, session.students, plan, original)
    criterion = Criterion.of(plain, tail)
    full = session.schedule.full_layers
    rows = [Ceiling("undistilled", float(plain.mean()), criterion(plain))]
    on_row(rows[-1])
    for name, layers in (
        ("of all consumers, first full layer as it is", full[1:]),
        ("of all consumers, everywhere", full),
    ):
        if layers:
            found = _perfect(session, original, layers)
            rows.append(Ceiling(name, float(found.mean()), criterion(found)))
            on_row(rows[-1])
    if each and full[1:]:
        only = _best_alone(session, original, full[1:], criterion)
        found = _perfect(session, original, full[1:], only)
        ids = session.where.layout.layer_ids
        names = ", ".join(str(ids[only[f]]) if f in only else "all" for f in full[1:])
        name = f"of layers {names}, first full layer as it is"
        rows.append(Ceiling(name, float(found.mean()), criterion(found)))
        on_row(rows[-1])
    return rows


def _best_alone(
    session: Session, original: Reference, layers: tuple[int, ...], criterion: Criterion
) -> dict[int, int]:
    """Full layer to the consumer that it had better serve alone; a layer left out serves all."""
    lessons = Lessons.of(session.model, session.schedule, layers)
    only: dict[int, int] = {}
    best = criterion(_perfect(session, original, layers))
    for layer in layers:
        scores = {
            consumer: criterion(_perfect(session, original, layers, only | {layer: consumer}))
            for consumer in sorted(lessons.of_layer(layer))
        }
        found = min(scores, key=lambda c: scores[c])
        if scores[found] < best:
            only[layer], best = found, scores[found]
    return only


def _perfect(
    session: Session,
    original: Reference,
    layers: tuple[int, ...],
    only: Mapping[int, int] | None = None,
) -> Tensor:
    def within(batch: Batch) -> AbstractContextManager[None]:
        chosen = oracle_selections(
            session.model, session.schedule, batch, layers, decode_rows(session.plan, batch), only
        )
        return given(session.where, chosen) if chosen else nullcontext()

    return original.divergence(
        session.model, session.schedule, lambda b: decode_rows(session.plan, b), within
    )


def ceiling_table(rows: Sequence[Ceiling], tail: float, schedule: str) -> Table:
    """KL of final logits under oracle selections, and how much of the damage they undo."""
    table = Table(title=f"oracle selections under {schedule}", title_justify="left")
    table.add_column("what the full layers select for")
    table.add_column("logit KL", justify="right")
    table.add_column(f"worst {tail:.0%} of positions", justify="right")
    table.add_column("of that undone", justify="right")
    plain = rows[0].tail
    for row in rows:
        undone = f"{1 - row.tail / plain:.0%}" if plain > 0 else "–"
        table.add_row(row.name, f"{row.overall:.4f}", f"{row.tail:.4f}", undone)
    return table
