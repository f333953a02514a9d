"""Verdicts of sequential stopping (`--until-decided`), and the answers that it saved."""

from __future__ import annotations

from evalkit.analysis.compare import RunComparison
from evalkit.core.grid import Grid
from evalkit.core.records import StoppingRecord, StoppingState
from evalkit.report.panels.base import Panel, Section, Table
from evalkit.run.store import RunStore
from evalkit.stats import QUESTIONS


def table(record: StoppingRecord) -> Grid:
    """What was decided: both questions, named, and the samples spent."""
    if not record.verdicts:
        return Grid("stopped when decided: interrupted, the same command goes on", ("",), ())
    rows = []
    for arm, tasks in record.verdicts.items():
        for task, states in tasks.items():
            drawn = states["benchmark"]
            rows.append(
                (
                    *(arm, task, f"{drawn.n} of {drawn.size}", f"{drawn.delta:+.3f}"),
                    *(_state(states[question]) for question in QUESTIONS),
                )
            )
    head = ("arm", "task", "drawn", "Δ so far", *(QUESTIONS[q] for q in QUESTIONS))
    return Grid(
        f"stopped when decided ({record.question}: {QUESTIONS[record.question]}); verdict at"
        f" sample [anytime-valid {100 * record.confidence:g} % interval]",
        head,
        tuple(rows),
        (2, 3),
    )


def saved(record: StoppingRecord) -> str:
    """Samples spent by all arms but the baseline, against all of them."""
    states = [s["benchmark"] for tasks in record.verdicts.values() for s in tasks.values()]
    drawn, size = sum(s.n for s in states), sum(s.size for s in states)
    if not size:
        return "nothing was drawn yet"
    share = 100 * (1 - drawn / size)
    return f"{drawn:,} of {size:,} answers were needed besides the baseline's: {share:.0f} % saved"


def _state(state: StoppingState) -> str:
    at = "" if state.decided_at is None else f" at {state.decided_at}"
    return f"{state.verdict}{at} [{state.low:+.3f}, {state.high:+.3f}]"


def _section(_: RunStore, comparison: RunComparison) -> Section | None:
    record = comparison.until_decided
    if record is None:
        return None
    return Section("Stopped when decided", saved(record), tables=(table(record),))


def _text(comparison: RunComparison) -> list[Table]:
    record = comparison.until_decided
    return [] if record is None else [Table(table(record), (saved(record),))]


PANEL = Panel(_section, _text)
