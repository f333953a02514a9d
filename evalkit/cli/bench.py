"""`evalkit bench`: measure, join with the quality in the same run directory, print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.bench import report as reports
from evalkit.bench.runner import measure_arms, stored
from evalkit.config.run import RunConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import load
from evalkit.report.terminal import show_grid
from evalkit.run.store import RunStore

if TYPE_CHECKING:
    from rich.console import Console


def bench(
    recipe: Path,
    out: Path | None,
    changes: Sequence[str],
    console: Console,
    *,
    add: bool = False,
    again: bool = False,
) -> None:
    """Measure the arms of a recipe (or take the last measurement) and write bench.json, bench.md.

    Args:
        recipe: with a [bench] section.
        out: run directory; default: the recipe's.
        changes: overrides.
        console: where to print.
        add: keep the last measurement and add a round of every arm whose server is there.
        again: only print the last measurement again, with the quality known by now.

    Raises:
        EvalkitError: see `measure_arms` and `stored`.
    """
    config = load(recipe, RunConfig, changes)
    store = RunStore(out or Path("runs") / recipe.stem)
    with store.lock():
        if not again:
            try:
                say = lambda line: console.print(line, style="dim", markup=False)  # noqa: E731
                measure_arms(config, recipe.resolve().parent, store, say, add=add)
            except KeyboardInterrupt:
                raise EvalkitError("interrupted: nothing is reported; run it again") from None
        facts, rounds = stored(store)
        found = reports.build(facts, rounds, store)
        reports.write(store, found)
    show_grid(reports.decisions(found), console)
    show_grid(reports.measures(found), console)
    for line in reports.notes(found):
        console.print(f"· {line}", style="dim", markup=False)
    console.print(f"records: {store.path}", style="dim", highlight=False)
