"""Verdicts of a comparison: every arm on every task and on the macro average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from evalkit.stats.comparison import MACRO, Options
from evalkit.stats.decision import Decision, Repeat, Views, as_family, decide
from evalkit.stats.headroom import nothing_to_lose
from evalkit.stats.inputs import Stratum
from evalkit.stats.join import Table
from evalkit.stats.multiplicity import holm
from evalkit.stats.one_sided import OneSidedTest, is_right_wrong, score_test, valid_test
from evalkit.stats.requirements import what_decides
from evalkit.stats.scopes import BEST, BEST_TO_REPEAT, WORST, WORST_TO_REPEAT, Scope, scopes
from evalkit.stats.verdict import (
    NotEngaged,
    NothingToLose,
    RareLossesExcluded,
    TasksWithoutHeadroom,
    Verdict,
)

DRIFT_LEVEL = 0.05  # at which the baseline's two runs are shown to differ, corrected over tasks


def arm_decisions(
    base: Table, arms: Mapping[str, Table], options: Options
) -> dict[tuple[str, str], Decision]:
    """Decisions by (arm, task), the macro average included; the repeat of the baseline has none.

    A task that only one of two arms has is left out; samples of a shared task that one of them
    lacks count as unusable.

    Args:
        base: the baseline.
        arms: the other arms.
        options: margins, level, family and the rest.
    """
    repeat = arms.get(options.repeat) if options.repeat is not None else None
    drift = {} if repeat is None else _drift(base, repeat)
    floors = _nothing_to_lose(base, options)
    found: dict[tuple[str, str], Decision] = {}
    for name, arm in arms.items():
        if arm is repeat:
            continue
        plain: dict[str, Decision] = {}
        for scope in scopes(base, arm, repeat):
            alone = plain.get(scope.tasks[0])
            if len(scope.tasks) == 1 and alone is not None and _same_margin(scope, alone, options):
                plain[scope.name] = alone  # the macro average of one task is that task
            else:
                twice = drift.get(scope.name) if set(scope.tasks) <= set(drift) else None
                plain[scope.name] = _decision(scope, twice, options)
            decision = _without_headroom(plain[scope.name], scope, floors)
            if name in options.not_engaged:
                decision = decision.withheld(NotEngaged(options.not_engaged[name]))
            found[name, scope.name] = decision
    return _families(found) if options.family == "all" else found


def _same_margin(scope: Scope, decision: Decision, options: Options) -> bool:
    return decision.margin == options.margin_of(scope.name)


def _decision(scope: Scope, drift: tuple[float, bool] | None, options: Options) -> Decision:
    margin, alpha, parts = options.margin_of(scope.name), options.alpha, scope.parts
    repeat = None
    if drift is not None:
        ends = (_test(parts, row, options) for row in (WORST_TO_REPEAT, BEST_TO_REPEAT))
        repeat = Repeat(Views(*ends), *drift)
    found = decide(
        Views(_test(parts, WORST, options), _test(parts, BEST, options)),
        margin,
        alpha=alpha,
        unusable=scope.unusable if scope.unusable.arm + scope.unusable.baseline else None,
        repeat=repeat,
    )
    if found.verdict is Verdict.UNDECIDED:
        wanted = what_decides(parts, WORST, margin, alpha)
        found = replace(found, reasons=(*found.reasons, *wanted))
    if options.rare_losses_excluded and not is_right_wrong(parts, WORST):
        excluded = RareLossesExcluded(options.rare_losses_excluded)
        found = replace(found, reasons=(*found.reasons, excluded))
    return found


def _test(parts: Sequence[Stratum], row: int, options: Options) -> OneSidedTest:
    if options.rare_losses_excluded and not is_right_wrong(parts, row):
        return score_test(parts, row)
    return valid_test(parts, row)


def _without_headroom(
    decision: Decision, scope: Scope, floors: Mapping[str, NothingToLose]
) -> Decision:
    """The decision, withheld where the tasks can show nothing; a macro average names those."""
    empty = tuple(task for task in scope.tasks if task in floors)
    if not empty:
        return decision
    if scope.name != MACRO:
        return decision.withheld(floors[scope.name])
    reason = TasksWithoutHeadroom(empty, len(scope.tasks))
    if len(empty) == len(scope.tasks):
        return decision.withheld(reason)
    return replace(decision, reasons=(*decision.reasons, reason))


def _families(found: Mapping[tuple[str, str], Decision]) -> dict[tuple[str, str], Decision]:
    """Decisions of all arms on a task held together."""
    together: dict[tuple[str, str], Decision] = {}
    for task in dict.fromkeys(task for _, task in found):
        keys = [key for key in found if key[1] == task]
        together |= zip(keys, as_family([found[key] for key in keys]), strict=True)
    return {key: together[key] for key in found}


def _drift(base: Table, repeat: Table) -> dict[str, tuple[float, bool]]:
    """Second run minus first and whether the two are shown to differ, by task and for the average.

    Tasks are corrected by Holm's method: with 21 of them one in twenty would differ by chance in
    most runs.
    """
    tests = {scope.name: valid_test(scope.parts, WORST) for scope in scopes(base, repeat)}
    p_values = {task: 2.0 * min(t.p(0.0), t.mirrored().p(0.0)) for task, t in tests.items()}
    tasks = [task for task in tests if task != MACRO]
    adjusted = holm([min(1.0, p_values[task]) for task in tasks]).tolist()
    shown = {**dict(zip(tasks, adjusted, strict=True)), MACRO: p_values[MACRO]}
    return {task: (test.mean, shown[task] <= DRIFT_LEVEL) for task, test in tests.items()}


def _nothing_to_lose(base: Table, options: Options) -> dict[str, NothingToLose]:
    """Tasks on which the baseline is not shown to be the margin above their floor."""
    found = {}
    for task in np.unique(base.tasks).tolist():
        here = base.tasks == task
        floor = [options.floors.get(i, 0.0) for i in base.ids[here].tolist()]
        scores = np.where(base.unusable[here], 0.0, base.scores[here])
        margin, clusters = options.margin_of(task), base.clusters[here]
        reason = nothing_to_lose(scores, margin, floor, clusters=clusters, alpha=options.alpha)
        if reason is not None:
            found[task] = reason
    return found
