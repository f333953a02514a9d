"""report.md: the comparison as Markdown."""

from __future__ import annotations

from evalkit.analysis.compare import RunComparison
from evalkit.core.files import write_atomic
from evalkit.core.grid import Grid
from evalkit.core.printable import printable
from evalkit.report.panels import PANELS
from evalkit.report.tables import notes, summary
from evalkit.run.store import RunStore


def markdown(comparison: RunComparison) -> str:
    """The whole report."""
    parts = ["# Comparison"]
    parts += ["", *table_lines(summary(comparison))] if comparison.tasks else []
    for panel in PANELS.usable():
        for table in panel.text(comparison):
            parts += ["", *table_lines(table.grid)]
            parts += ["", *(f"- {escape(line)}" for line in table.notes)] if table.notes else []
    lines = notes(comparison, every_task=True)
    if lines:
        parts += ["", "Notes:", ""] + [f"- {escape(line)}" for line in lines]
    parts += ["", "Schedules:", ""]
    for arm in comparison.arms:
        unknown = "not known (imported)" if arm.imported else "the model has no indexers"
        text = f"`{printable(arm.acts_text)}`" if arm.acts_text else unknown
        parts.append(f"- {escape(arm.name)}: {text}")
    parts += ["", f"Signature: `{printable(comparison.result.signature)}`"]
    return "\n".join(parts) + "\n"


def write(store: RunStore, comparison: RunComparison) -> None:
    """Write report.md beside the run."""
    write_atomic(store.path / "report.md", markdown(comparison))


def table_lines(grid: Grid) -> list[str]:
    """A table as lines of Markdown."""
    from tabulate import tabulate

    align = ["right" if i in grid.right else "left" for i in range(len(grid.head))]
    rows = [[escape(cell) for cell in row] for row in grid.rows]
    text = tabulate(
        rows, [escape(h) for h in grid.head], "pipe", colalign=align, disable_numparse=True
    )
    return [f"{escape(grid.title)}", "", *text.splitlines()]


def escape(text: str) -> str:
    """Neutralise what Markdown or HTML would interpret, and control characters."""
    text = printable(" ".join(text.splitlines()))
    for character in "\\`*_|<>[]":
        text = text.replace(character, "\\" + character)
    return text
