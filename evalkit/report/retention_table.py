"""The table of the MLI paper (arXiv 2611.03768, Table 2): retentions down, benchmarks across.

Rows are retentions from high to low, under each IndexCache, then with MLI, then distilled ones; a
cell holds the score, the difference to the baseline in points and its interval.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from evalkit.analysis.compare import RunComparison
from evalkit.analysis.grouping import by_benchmark, place
from evalkit.core.records import ArmEntry
from evalkit.report.markdown import escape
from evalkit.report.own_samples import beside_baseline
from evalkit.report.verdict_text import signed
from evalkit.stats import MACRO, Row


@dataclass(frozen=True, slots=True)
class RetentionRow:
    """One arm.

    Attributes:
        retention: None where the schedule is not known.
        kind: ``baseline``, ``IndexCache``, ``+ MLI k=1``, ``IndexCache, distilled`` …
        arm: its name.
        cells: per benchmark, its macro row; None where the arm has none of it.
    """

    retention: Fraction | None
    kind: str
    arm: str
    cells: tuple[Row | None, ...]


@dataclass(frozen=True, slots=True)
class RetentionTable:
    """All arms and the benchmarks across."""

    benchmarks: tuple[str, ...]
    lines: tuple[RetentionRow, ...]
    confidence: float
    baseline: str
    left_out: str = ""


def retention_table(comparison: RunComparison) -> RetentionTable:
    """The table of a comparison; the second run of the baseline (A/A) is left out."""
    parts = by_benchmark(comparison)
    rows = {
        name: {row.arm: row for row in part.rows if row.task == MACRO}
        for name, part in parts.items()
    }
    base, twin = comparison.result.baseline, comparison.options.repeat
    lines = []
    for arm in comparison.arms:
        name = arm.name
        if name == twin or name not in comparison.scored:
            continue
        share, kind = _kind(comparison, arm)
        lines.append(RetentionRow(share, kind, name, tuple(rows[b].get(name) for b in parts)))
    lines.sort(key=lambda line: _order(line, base))
    confidence, without = comparison.settings.confidence, comparison.left_out
    return RetentionTable(tuple(parts), tuple(lines), confidence, base, without)


def _kind(comparison: RunComparison, arm: ArmEntry) -> tuple[Fraction | None, str]:
    at = place(arm)
    if arm.name == comparison.result.baseline:
        return at.retention, "baseline"
    if at.family is None:
        return None, arm.name
    if at.family.startswith("MLI") and at.retention != 1:
        return at.retention, f"IndexCache + {at.family}"
    return at.retention, at.family


def _order(line: RetentionRow, baseline: str) -> tuple[bool, bool, Fraction, bool, str]:
    share = line.retention
    return (
        line.arm != baseline,
        share is None,
        -share if share is not None else Fraction(0),
        "distilled" in line.kind,
        line.kind,
    )


def markdown(table: RetentionTable) -> str:
    """As Markdown, with a line that says how to read it."""
    from tabulate import tabulate

    head = ["retention", "arm", *table.benchmarks]
    rows = [
        [*_labels(table.lines, k), *(escape(_cell(*pair)) for pair in _beside(table, line))]
        for k, line in enumerate(table.lines)
    ]
    text = tabulate(rows, [escape(h) for h in head], "pipe", disable_numparse=True)
    return f"{text}\n\n{_legend(table)}\n"


def _labels(lines: Sequence[RetentionRow], k: int) -> list[str]:
    """Retention (once for its group) and kind."""
    share = _share(lines[k].retention)
    first = k < 2 or _share(lines[k - 1].retention) != share
    return [share if first else "", escape(lines[k].kind)]


def _beside(table: RetentionTable, line: RetentionRow) -> list[tuple[Row | None, Row | None]]:
    """The cells of an arm, each with the baseline's of the same benchmark."""
    base = next(other.cells for other in table.lines if other.arm == table.baseline)
    return list(zip(line.cells, base, strict=True))


def _legend(table: RetentionTable) -> str:
    return (
        f"Score, difference to {escape(table.baseline)} in points"
        f" [{100 * table.confidence:g} % interval, paired]{escape(table.left_out)}."
        " Verdicts rest on bounds, which allow losses that no sample shows: report.md, or this"
        " table as CSV."
    )


def _cell(row: Row | None, base: Row | None) -> str:
    if row is None or row.score is None:
        return "–"
    if row.result is None:
        return f"{row.score:.3f}"
    result, count = row.result, beside_baseline(row, base)
    interval = f"[{signed(result.low)}, {signed(result.high)}]"
    return f"{row.score:.3f} {signed(result.delta)} {interval}{count}"


def latex(table: RetentionTable) -> str:
    r"""As a LaTeX table; needs ``\usepackage{booktabs}``."""
    across = len(table.benchmarks)
    out = [
        rf"\begin{{tabular}}{{ll{'ll' * across}}}",
        r"\toprule",
        " & & "
        + " & ".join(rf"\multicolumn{{2}}{{c}}{{{_tex(name)}}}" for name in table.benchmarks)
        + r" \\",
        "".join(rf"\cmidrule(lr){{{2 * k + 3}-{2 * k + 4}}}" for k in range(across)),
        "retention & arm" + r" & score & $\Delta$" * across + r" \\",
        r"\midrule",
    ]
    for k, line in enumerate(table.lines):
        share, _ = _labels(table.lines, k)
        if k and share:
            out.append(r"\midrule" if k == 1 else r"\addlinespace")
        cells = " & ".join(_tex_cell(*pair) for pair in _beside(table, line))
        out.append(rf"{_tex(share)} & {_tex(line.kind)} & {cells} \\")
    out += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(out) + "\n"


def _tex_cell(row: Row | None, base: Row | None) -> str:
    if row is None or row.score is None:
        return "-- & "
    if row.result is None:
        return f"{row.score:.3f} & "
    low, high, delta = (
        signed(value).replace("−", "-")
        for value in (row.result.low, row.result.high, row.result.delta)
    )
    count = _tex(beside_baseline(row, base))
    return rf"{row.score:.3f} & ${delta}$ {{\small $[{low}, {high}]${count}}}"


def _tex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {character: f"\\{character}" for character in "&%$#_{}"}
    return "".join(special.get(c, c) for c in text)


def csv_text(table: RetentionTable) -> str:
    """As CSV: full precision, one row per arm and benchmark."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(
        [
            *("retention", "kind", "arm", "benchmark", "n", "score", "delta"),
            *("ci_low", "ci_high", "method", "bound_low", "bound_high", "verdict"),
        ]
    )
    for line in table.lines:
        for name, row in zip(table.benchmarks, line.cells, strict=True):
            if row is None:
                continue
            writer.writerow([_share(line.retention), line.kind, line.arm, name, *_numbers(row)])
    return buffer.getvalue()


def _numbers(row: Row) -> list[str]:
    """From n to the verdict; empty where there is nothing to compare."""
    values = [row.score]
    values += [row.result.delta, row.result.low, row.result.high] if row.result else [None] * 3
    method = row.result.method if row.result else ""
    bounds = map(_digits, row.bound or (None, None))
    return [str(row.n), *map(_digits, values), method, *bounds, str(row.verdict)]


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def _share(share: Fraction | None) -> str:
    return "?" if share is None else str(share)
