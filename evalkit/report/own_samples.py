"""A number that stands beside another over other samples says over how many."""

from __future__ import annotations

from evalkit.core.grid import joined, number
from evalkit.stats import Comparison, Row

NOTE = (
    "a score with its own n is over fewer samples than the baseline's beside it; its difference and"
    " interval are on the samples that both have"
)


def has_own(row: Row, base: Row | None) -> bool:
    """Whether a row is over other samples than the baseline's of the same task.

    An arm is joined with the baseline on what both have: of equal n, the samples are the same.
    """
    return base is not None and row.score is not None and row.n != base.n


def score(row: Row, base: Row | None) -> str:
    """The score, with its own n where the baseline's cell has another one."""
    shown = number(row.score)
    return joined((shown, f"(n={row.n})")) if has_own(row, base) else shown


def beside_baseline(row: Row, base: Row | None) -> str:
    """What a cell over other samples adds: its n, and the baseline's score on the same samples."""
    if base is None or not has_own(row, base):
        return ""
    return f" (n={row.n} of {base.n}, where {base.arm} has {number(row.baseline_score)})"


def note(result: Comparison) -> list[str]:
    """The line under a table in which a score has its own n."""
    base = {row.task: row for row in result.rows if row.arm == result.baseline}
    return [NOTE] if any(has_own(row, base.get(row.task)) for row in result.rows) else []
