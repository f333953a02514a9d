"""`evalkit power`: how many samples decide a margin, and what a planned number can show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evalkit.core.console import echo
from evalkit.core.errors import EvalkitError

if TYPE_CHECKING:
    from evalkit.stats import Spread


def power(
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Run directory of a pilot.")
    ] = None,
    discordance: Annotated[
        float | None,
        typer.Option(help="Without a pilot: assumed share of samples whose score differs."),
    ] = None,
    planned: Annotated[
        list[str] | None,
        typer.Option(help="Samples planned: 500, or longbench-v2=503; default: the pilot's."),
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="Largest tolerable loss (0.01 = one point).")
    ] = None,
    arm: Annotated[
        str | None, typer.Option(help="Arm of the pilot; default: the one that changes most.")
    ] = None,
    chance: Annotated[float, typer.Option("--power", help="Chance of a decision.")] = 0.8,
) -> None:
    """Before spending: samples needed per benchmark, and the smallest effect a plan can show."""
    from evalkit.analysis.power import explanations, grid, planned_counts
    from evalkit.core.console import open_console
    from evalkit.report.terminal import show_grid
    from evalkit.stats import assumed_spread, power_table

    if (directory is None) == (discordance is None):
        raise EvalkitError("give a pilot run directory or --discordance, one of them")
    if directory is not None:
        spreads, counts, pilot_margin, confidence = _pilot(directory, arm)
        counts = planned_counts(planned or (), counts)
        unknown = [task for task in counts if task not in spreads]
        if unknown:
            raise EvalkitError(f"--planned {unknown[0]}: not a task of the pilot")
        margin = pilot_margin if margin is None else margin
    else:
        counts = planned_counts(planned or (), {})
        if not counts:
            raise EvalkitError("--discordance needs the benchmarks: --planned longbench-v2=503 …")
        spreads = dict.fromkeys(counts, assumed_spread(discordance or 0.0))
        confidence = 0.95
        margin = 0.01 if margin is None else margin
    counts = {task: counts[task] for task in spreads}
    plans = power_table(spreads, counts, margin, power=chance, confidence=confidence)
    shown = plans if len(spreads) > 1 else plans[:1]
    console = open_console()
    show_grid(grid(shown, spreads, margin, chance), console)
    for line in explanations(shown, chance):
        console.print(f"· {line}", style="dim", markup=False)


def _pilot(
    directory: Path, arm: str | None
) -> tuple[dict[str, Spread], dict[str, int], float, float]:
    """Spreads, samples, margin and confidence of a pilot."""
    from evalkit.analysis.compare import compare_run
    from evalkit.analysis.power import pilot_arm, pilot_spreads
    from evalkit.run.store import RunStore

    comparison = compare_run(RunStore(directory))
    name = pilot_arm(comparison, arm)
    echo(f"pilot: {name} against {comparison.result.baseline}, {directory}")
    spreads = pilot_spreads(comparison, name)
    counts = {task: spread.pilot for task, spread in spreads.items()}
    return spreads, counts, comparison.settings.margin, comparison.settings.confidence
