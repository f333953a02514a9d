"""`distill oracle`: what perfect selections would give, in a minute, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from torch import Tensor

from distill.capture import Batch
from distill.logits import Reference, reference
from distill.oracle import given, oracle_selections
from distill.session import Session
from distill.start import Criterion, arm_divergence, decode_rows


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
    session: Session, tail: float, on_row: Callable[[Ceiling], None] = lambda _: None
) -> list[Ceiling]:
    """The undistilled arm, perfect selections behind the first full layer, and everywhere.

    Args:
        session: the students are not used.
        tail: share of positions that the second number is about.
        on_row: called as results come.
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
        ("perfect, first full layer as it is", full[1:]),
        ("perfect everywhere", full),
    ):
        if layers:
            found = _perfect(session, original, layers)
            rows.append(Ceiling(name, float(found.mean()), criterion(found)))
            on_row(rows[-1])
    return rows


def _perfect(session: Session, original: Reference, layers: tuple[int, ...]) -> Tensor:
    def within(batch: Batch) -> AbstractContextManager[None]:
        chosen = oracle_selections(
            session.model, session.schedule, batch, layers, decode_rows(session.plan, batch)
        )
        return given(session.where, chosen) if chosen else nullcontext()

    return original.divergence(
        session.model, session.schedule, lambda b: decode_rows(session.plan, b), within
    )
