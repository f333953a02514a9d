"""The tables of a comparison as plain cells; the terminal and Markdown only dress them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evalkit.compare import FLAGS, RunComparison
from evalkit.stats import MACRO, Row


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        title: one line above it.
        head: column names.
        rows: cells, as many as columns.
        right: columns that are aligned to the right.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()


def summary(comparison: RunComparison) -> Grid:
    """One row per arm: the macro average against the baseline, and the verdict."""
    rows = []
    for arm in comparison.arms:
        row = _find(comparison, arm["name"], MACRO)
        if row is None:
            continue
        rows.append(
            (
                arm["name"],
                *_schedule(arm),
                number(row.score),
                difference(row),
                interval(row),
                p_value(row.p_adjusted),
                row.verdict or "baseline",
            )
        )
    tasks = [task["name"] for task in comparison.tasks]
    name = "macro" if len(tasks) > 1 else tasks[0]
    percent = f"{comparison.settings.confidence:.0%}".replace("%", " %")
    return Grid(
        f"{name} over {', '.join(tasks)}; baseline: {comparison.result.baseline},"
        f" margin {comparison.settings.margin:g}",
        ("arm", "full", "lag", "score", "Δ", f"{percent} interval", "p (Holm)", "verdict"),
        tuple(rows),
        (1, 2, 3, 4, 6),
    )


def by_task(comparison: RunComparison) -> Grid:
    """One row per arm, one column per task: score, difference and interval."""
    tasks = [task["name"] for task in comparison.tasks]
    rows = []
    for arm in comparison.arms:
        cells = [arm["name"]]
        for task in tasks:
            row = _find(comparison, arm["name"], task)
            cells.append("–" if row is None else _cell(row))
        if any(cell != "–" for cell in cells[1:]):
            rows.append(tuple(cells))
    n = {
        task: row.n
        for task in tasks
        if (row := _find(comparison, comparison.result.baseline, task))
    }
    head = ("arm", *(f"{task} (n={n.get(task, 0)})" for task in tasks))
    return Grid("by task: score, Δ [interval]", head, tuple(rows))


def notes(comparison: RunComparison) -> list[str]:
    """What must be known beside the numbers, one line each."""
    lines = []
    for name, (answered, planned) in comparison.unfinished.items():
        lines.append(f"unfinished: {name} has {answered} of {planned} answers")
    for name, counts in comparison.flags.items():
        seen = [f"{counts[flag]} {flag}" for flag in FLAGS if counts[flag]]
        if seen:
            lines.append(f"{name}: {', '.join(seen)}")
    for task in comparison.tasks:
        if task.get("deviations"):
            changed = ", ".join(f"{k} {_short(v)}" for k, v in task["deviations"].items())
            lines.append(f"{task['name']} departs from the official parameters: {changed}")
    for arm in comparison.arms:
        verdict = arm.get("engagement", {}).get("verdict", "")
        if verdict and not verdict.startswith(("engaged", "not applicable")):
            lines.append(f"{arm['name']}: schedule {verdict}")
    grouped: dict[str, list[str]] = {}
    for row in comparison.result.rows:
        for note in row.notes:
            where = row.arm if row.task == MACRO else f"{row.arm} on {row.task}"
            grouped.setdefault(note, []).append(where)
    for note, places in grouped.items():
        shown = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
        lines.append(f"{note} ({shown})")
    return lines


def _schedule(arm: dict[str, Any] | Any) -> tuple[str, str]:
    facts = arm.get("schedule")
    if not facts:
        return "–", "–"
    full = f"{len(facts['full_layer_ids'])}/{len(facts['layer_ids'])}"
    lag = facts["lag"]
    return full, str(lag) if isinstance(lag, int) else "by layer"


def _find(comparison: RunComparison, arm: str, task: str) -> Row | None:
    for row in comparison.result.rows:
        if (row.arm, row.task) == (arm, task):
            return row
    return None


def _cell(row: Row) -> str:
    if row.result is None:
        return number(row.score)
    return f"{number(row.score)} {difference(row)} {interval(row)}"


def number(value: float | None) -> str:
    """0.957, or a dash."""
    return "–" if value is None else f"{value:.3f}"


def difference(row: Row) -> str:
    """Signed difference to the baseline."""
    return "" if row.result is None else f"{row.result.delta:+.3f}"


def interval(row: Row) -> str:
    """[low, high] of the difference."""
    return "" if row.result is None else f"[{row.result.low:+.3f}, {row.result.high:+.3f}]"


def p_value(value: float | None) -> str:
    """Three decimals, or < 0.001."""
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _short(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 4:
        return f"{len(value)} entries"
    return str(value)
