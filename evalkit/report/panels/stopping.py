"""What `--until-decided` drew of every task, and the answers that it saved."""

from __future__ import annotations

from evalkit.analysis.compare import RunComparison
from evalkit.core.grid import Grid
from evalkit.core.records import StoppingRecord
from evalkit.report.panels.base import Panel, Section, Table
from evalkit.report.tables import difference, interval
from evalkit.run.store import RunStore
from evalkit.stats import QUESTIONS, Row


def _rows(comparison: RunComparison) -> list[Row]:
    """Those of single tasks that were drawn in an order and have a verdict."""
    record = comparison.until_decided
    drawn = {} if record is None else record.order
    return [r for r in comparison.result.rows if r.task in drawn and r.decision is not None]


def table(comparison: RunComparison, record: StoppingRecord) -> Grid:
    """Samples drawn, and what they say; the question is named."""
    if not record.finished:
        return Grid("stopped when decided: interrupted, the same command goes on", ("",), ())
    rows = tuple(
        (
            *(row.arm, row.task, f"{row.n} of {len(record.order[row.task])}"),
            *(difference(row), interval(row), str(row.verdict)),
        )
        for row in _rows(comparison)
    )
    head = ("arm", "task", "drawn", "Δ", "interval at any time", "verdict")
    question = QUESTIONS[record.question]
    return Grid(f"stopped when decided: {question}", head, rows, (2, 3))


def saved(comparison: RunComparison, record: StoppingRecord) -> str:
    """Samples spent by all arms but the baseline and its repeat, against all of them."""
    rows = _rows(comparison)
    drawn, size = sum(row.n for row in rows), sum(len(record.order[row.task]) for row in rows)
    if not size:
        return "nothing was drawn yet"
    share = 100 * (1 - drawn / size)
    return f"{drawn:,} of {size:,} answers were needed besides the baseline's: {share:.0f} % saved"


def _section(_: RunStore, comparison: RunComparison) -> Section | None:
    record = comparison.until_decided
    if record is None:
        return None
    lead = saved(comparison, record)
    return Section("Stopped when decided", lead, tables=(table(comparison, record),))


def _text(comparison: RunComparison) -> list[Table]:
    record = comparison.until_decided
    if record is None:
        return []
    return [Table(table(comparison, record), (saved(comparison, record),))]


PANEL = Panel(_section, _text)
