"""Drift and parity of quality: a baseline that differs from itself, builds that should agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from evalkit.core.records import ArmEntry
from evalkit.stats import MACRO, ArmScores, Comparison, Options, Row, compare
from evalkit.stats.verdict import UNDECIDED

DRIFTED = "no verdict: the baseline's repeat differs from it (A/A), so the run drifted"


def void_verdicts_on_drift(result: Comparison, twin: str | None) -> Comparison:
    """Void the verdicts of every task on which the A/A interval excludes 0.

    Args:
        result: arms against the baseline.
        twin: second run of the baseline (`compare.repeat_of_baseline`), or None.
    """
    off = {row.task for row in result.rows if row.arm == twin and _differs(row)}
    if not off:
        return result
    rows = [
        replace(row, verdict=UNDECIDED, notes=(*row.notes, DRIFTED))
        if row.task in off and row.arm != twin and row.result is not None
        else row
        for row in result.rows
    ]
    return replace(result, rows=tuple(rows))


def parity_lines(
    arms: Sequence[ArmEntry], scored: Mapping[str, ArmScores], options: Options
) -> Iterator[str]:
    """Arms beside the same configuration on the build that they name (`server.parity_of`).

    Args:
        arms: entries of run.json.
        scored: scores by arm.
        options: of the comparison.
    """
    for arm in arms:
        name, twin = arm.name, arm.parity_of
        if twin is None or name not in scored or twin not in scored:
            continue
        options = replace(options, noise_floors={})
        rows = compare({twin: scored[twin], name: scored[name]}, twin, options).rows
        row = next(r for r in rows if (r.arm, r.task) == (name, MACRO))
        if row.result is None:
            continue
        word = "the builds differ" if _differs(row) else "no difference between the builds shown"
        result = row.result
        yield (
            f"parity of {name} with {twin}: Δ {result.delta:+.3f}"
            f" [{result.low:+.3f}, {result.high:+.3f}]: {word}"
        )


def _differs(row: Row) -> bool:
    return row.result is not None and (row.result.low > 0 or row.result.high < 0)
