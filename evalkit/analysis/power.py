"""Power of an evaluation: from a pilot run or an assumed share of samples that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evalkit.analysis.compare import RunComparison
from evalkit.core.errors import EvalkitError
from evalkit.core.grid import Grid
from evalkit.stats import MACRO, ArmScores, PowerRow, Spread, spread_of


def pilot_arm(comparison: RunComparison, arm: str | None = None) -> str:
    """The arm a pilot is read from: the one named, else the one that changes most and is not lost.

    An arm that is worse needs no more samples; the A/A twin shows noise only.

    Raises:
        EvalkitError: no such arm, or none besides the baseline has scores.
    """
    base, twin = comparison.result.baseline, comparison.options.repeat
    names = [name for name in comparison.scored if name != base]
    if arm is not None:
        if arm not in names:
            raise EvalkitError(f"arm {arm}: no scores of it to plan from ({', '.join(names)})")
        return arm
    if not names:
        raise EvalkitError("a pilot needs two arms with scores")
    rows = [
        row
        for row in comparison.result.rows
        if row.task == MACRO and row.result is not None and row.arm != twin
    ]
    open_ = [row for row in rows if row.verdict != "worse"] or rows
    if not open_:
        return names[0]
    return max(open_, key=lambda row: (row.result.n_differing or 0) if row.result else 0).arm


def pilot_spreads(comparison: RunComparison, arm: str) -> dict[str, Spread]:
    """Spread of the paired differences per task; tasks with fewer than two samples are left out."""
    ours, base = (_by_id(comparison.scored[n]) for n in (arm, comparison.result.baseline))
    tasks: dict[str, list[tuple[float, float, str]]] = {}
    for sample_id, (task, score, cluster) in ours.items():
        if sample_id in base:
            tasks.setdefault(task, []).append((score, base[sample_id][1], cluster))
    spreads = {}
    for task, rows in tasks.items():
        ours_, theirs, clusters = zip(*rows, strict=True)
        if len(set(clusters)) > 1:
            spreads[task] = spread_of(ours_, theirs, clusters=clusters)
    if not spreads:
        raise EvalkitError(f"arm {arm}: two samples of a task at least are needed to plan from")
    return spreads


def _by_id(scores: ArmScores) -> dict[str, tuple[str, float, str]]:
    clusters = [c or i for c, i in zip(scores.clusters, scores.ids, strict=True)]
    rows = zip(scores.ids, scores.tasks, scores.scores, clusters, strict=True)
    return {i: (task, score, cluster) for i, task, score, cluster in rows}


def planned_counts(texts: Sequence[str], tasks: Mapping[str, int]) -> dict[str, int]:
    """Planned samples per task from ``500`` (all tasks) and ``longbench-v2=503``.

    Args:
        texts: as given; a later one wins over an earlier one.
        tasks: tasks known so far with the number to take where none is planned.

    Raises:
        EvalkitError: not a whole number of one or more.
    """
    planned = dict(tasks)
    for text in texts:
        name, sign, count = text.rpartition("=")
        if not count.isdecimal() or int(count) < 1 or (sign and not name):
            raise EvalkitError(f"--planned {text}: write 500, or task=500")
        if name:
            planned[name] = int(count)
        else:
            planned |= dict.fromkeys(planned, int(count))
    return planned


def grid(
    plans: Sequence[PowerRow], spreads: Mapping[str, Spread], margin: float, power: float
) -> Grid:
    """The table: what is needed, and what the planned samples can show."""
    rows = [
        (
            plan.task,
            str(plan.planned),
            _differ(spreads.get(plan.task)),
            "–" if plan.needed is None else f"{plan.needed:,}",
            f"{100 * plan.power:.0f} %",
            *(_points(value) for value in (plan.margin, plan.effect, plan.noise, plan.step)),
        )
        for plan in plans
    ]
    return Grid(
        f"margin {100 * margin:.3g} points, power {100 * power:.0f} %; points of 100",
        (
            *("task", "planned", "change", "needed", "power", "least margin", "least loss"),
            *("noise ±", "step"),
        ),
        tuple(rows),
        tuple(range(1, 9)),
    )


def explanations(plans: Sequence[PowerRow], power: float) -> list[str]:
    """What the columns mean, and the step of every benchmark against its noise."""
    chance = f"{100 * power:.0f} %"
    lines = [
        "change: mean size of a sample's difference, in points (of right/wrong scores: the share"
        " that differs)",
        f"needed: samples that decide the margin with {chance} power if the arms are really equal",
        "power: chance that the planned samples decide it; least margin: the smallest they decide"
        f" with {chance}",
        f"least loss: the smallest true loss that they show to be one with {chance}",
    ]
    lines += [f"{plan.task}: {plan.sentence()}" for plan in plans if plan.task != MACRO]
    return lines + [f"{plan.task}: {plan.caution}" for plan in plans if plan.caution]


def _differ(spread: Spread | None) -> str:
    return "" if spread is None else _points(spread.gain + spread.loss)


def _points(value: float) -> str:
    return f"{100 * value:.2g}" if value < 0.01 else f"{100 * value:.1f}"
