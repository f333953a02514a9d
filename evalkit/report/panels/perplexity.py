"""Perplexity and logit KL on texts that arms read."""

from __future__ import annotations

import math

from evalkit.analysis.compare import RunComparison
from evalkit.analysis.perplexity import PerplexityRow
from evalkit.core.grid import Grid
from evalkit.report.panels.base import Panel, Section, Table
from evalkit.run.store import RunStore
from evalkit.stats.unbounded import UnboundedMean

WITHHELD = (
    "perplexity: no verdict, for a loss in nats has no upper end: no number of documents excludes"
    " that a few, none of them seen, lose without limit. Intervals are Student's, over documents"
)
READ = (
    "perplexity: the same tokens for every arm, all but the context as decode steps; KL from the"
    " baseline's predictions to the arm's over the likeliest tokens, a little below the whole"
)


def tables(comparison: RunComparison) -> list[Grid]:
    """One table per cell; lower is better in all columns."""
    grids = []
    for task in dict.fromkeys(row.task for row in comparison.perplexity):
        rows = [row for row in comparison.perplexity if row.task == task]
        percent = f"{100 * comparison.settings.confidence:g} %"
        interval = f"{percent} interval"
        head = (
            *("arm", "n", "perplexity", "Δ %", interval),
            *("KL nats/token", interval, "verdict"),
        )
        title = (
            f"perplexity of {task}, {rows[0].tokens:,} tokens scored; lower is better; against"
            f" {comparison.result.baseline}{comparison.left_out}"
        )
        grids.append(Grid(title, head, tuple(map(_cells, rows)), (1, 2, 3, 5)))
    return grids


def _cells(row: PerplexityRow) -> tuple[str, ...]:
    perplexity = "–" if row.perplexity is None else f"{row.perplexity:.2f}"
    return (
        row.arm,
        str(row.documents) + (f" ({row.failed} failed)" if row.failed else ""),
        perplexity,
        "" if row.delta is None else f"{relative(row.delta.mean):+.1f}",
        _relative(row.delta),
        "" if row.kl is None else f"{row.kl.mean:.4f}",
        _plain(row.kl),
        row.verdict,
    )


def relative(nats: float) -> float:
    """A loss in nats a token as a change of perplexity in percent."""
    return 100.0 * math.expm1(nats)


def _relative(delta: UnboundedMean | None) -> str:
    if delta is None:
        return ""
    if delta.low is None or delta.high is None:
        return "not known of one document"
    return f"[{relative(delta.low):+.1f}, {relative(delta.high):+.1f}]"


def _plain(kl: UnboundedMean | None) -> str:
    if kl is None or kl.low is None or kl.high is None:
        return ""
    return f"[{max(0.0, kl.low):.4f}, {kl.high:.4f}]"


def _section(_: RunStore, comparison: RunComparison) -> Section | None:
    if not comparison.perplexity:
        return None
    lead = " ".join(f"{line[0].upper()}{line[1:]}." for line in (READ, WITHHELD))
    return Section("Perplexity of held-out text", lead, tables=tuple(tables(comparison)))


def _text(comparison: RunComparison) -> list[Table]:
    grids = tables(comparison)
    notes = [() for _ in grids[:-1]] + [(READ, WITHHELD)]
    return [Table(grid, lines) for grid, lines in zip(grids, notes, strict=False)]


PANEL = Panel(_section, _text)
