"""Parity of quality: builds that should agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from evalkit.core.grid import between, change, joined
from evalkit.core.records import ArmEntry
from evalkit.stats import MACRO, ArmScores, Options, Row, compare


def parity_lines(
    arms: Sequence[ArmEntry], scored: Mapping[str, ArmScores], options: Options
) -> Iterator[str]:
    """Arms beside the same configuration on the build that they name (`server.parity_of`).

    Args:
        arms: entries of run.json.
        scored: scores by arm.
        options: of the comparison.
    """
    plain = replace(options, repeat=None, withheld={}, drawing=None)
    for arm in arms:
        name, twin = arm.name, arm.parity_of
        if twin is None or name not in scored or twin not in scored:
            continue
        rows = compare({twin: scored[twin], name: scored[name]}, twin, plain).rows
        row = next(r for r in rows if (r.arm, r.task) == (name, MACRO))
        if row.result is None:
            continue
        word = "the builds differ" if _differs(row) else "no difference between the builds shown"
        result = row.result
        measured = (change(result.delta), " ", between(result.low, result.high))
        yield joined((f"parity of {name} with {twin}: Δ ", *measured, f": {word}"), "")


def _differs(row: Row) -> bool:
    return row.result is not None and (row.result.low > 0 or row.result.high < 0)
