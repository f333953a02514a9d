"""Verdicts of a comparison: every arm on every task and on the macro average."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from evalkit.stats.comparison import MACRO, Options
from evalkit.stats.decision import Decision, Repeat, Views, as_family, decide
from evalkit.stats.headroom import nothing_to_lose
from evalkit.stats.join import Table
from evalkit.stats.multiplicity import holm
from evalkit.stats.one_sided import OneSidedTest, is_right_wrong, score_test, valid_test
from evalkit.stats.requirements import what_decides
from evalkit.stats.scopes import BEST, BEST_TO_REPEAT, WORST, WORST_TO_REPEAT, Scope, scopes
from evalkit.stats.sequential_test import END, SequentialTest
from evalkit.stats.verdict import (
    NothingToLose,
    RareLossesExcluded,
    TasksWithoutHeadroom,
    Unusable,
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
    drift = {} if repeat is None else _drift(base, repeat, options)
    drifts = {task: mean for task, (mean, _) in drift.items() if task != MACRO}
    floors = _nothing_to_lose(base, options)
    decisions: dict[tuple[str, str], Decision] = {}
    for name, arm in arms.items():
        if arm is repeat:
            continue
        plain: dict[str, Decision] = {}
        for scope in scopes(base, arm, repeat, options.drawing, drifts):
            alone = plain.get(scope.tasks[0])
            if len(scope.tasks) == 1 and alone is not None and _same_margin(scope, alone, options):
                plain[scope.name] = alone  # the macro average of one task is that task
            else:
                plain[scope.name] = _decision(scope, drift, options)
            decision = _without_headroom(plain[scope.name], scope, floors)
            if scope.without_answers:
                decision = replace(decision, reasons=()).withheld(scope.unusable)
            doubt = options.withheld.get(name) or options.withheld.get(base.name)
            if doubt is not None:
                decision = decision.withheld(doubt)
            decisions[name, scope.name] = decision
    return _families(decisions) if options.family == "all" else decisions


def _same_margin(scope: Scope, decision: Decision, options: Options) -> bool:
    return decision.margin == options.margin_of(scope.name)


def _decision(scope: Scope, drift: Mapping[str, tuple[float, bool]], options: Options) -> Decision:
    margin, alpha = options.margin_of(scope.name), options.alpha
    repeat = None
    if not drift.keys().isdisjoint(scope.tasks):
        ends = (_test(scope, row, options) for row in (WORST_TO_REPEAT, BEST_TO_REPEAT))
        delta, shown = drift[scope.name]
        again = [t for t in scope.tasks if t in drift]
        apart = tuple(t for t in again if drift[t][1])
        gap = sum(abs(drift[t][0]) for t in again) / len(again)
        repeat = Repeat(Views(*ends), delta, gap, shown or bool(apart), () if shown else apart)
    decision = decide(
        Views(_test(scope, WORST, options), _test(scope, BEST, options)),
        margin,
        alpha=alpha,
        unusable=scope.unusable if scope.unusable.arm + scope.unusable.baseline else None,
        repeat=repeat,
    )
    if decision.verdict is Verdict.UNDECIDED and scope.whole:
        level = END * alpha if scope.drawn else alpha
        wanted = what_decides(scope.parts, WORST, margin, level)
        decision = replace(decision, reasons=(*decision.reasons, *wanted))
    if options.rare_losses_excluded and not is_right_wrong(scope.parts, WORST):
        excluded = RareLossesExcluded(options.rare_losses_excluded)
        decision = replace(decision, reasons=(*decision.reasons, excluded))
    return decision


def _test(scope: Scope, row: int, options: Options) -> OneSidedTest:
    parts = scope.parts
    excluded = options.rare_losses_excluded and not is_right_wrong(parts, row)
    fixed = score_test(parts, row) if excluded else valid_test(parts, row)
    if options.drawing is None:
        return fixed
    question, end = options.drawing.question, fixed if scope.whole else None
    return SequentialTest(scope.drawn[row], question, options.alpha, end)


def _without_headroom(
    decision: Decision, scope: Scope, floors: Mapping[str, NothingToLose | Unusable]
) -> Decision:
    """The decision, withheld where the tasks can show nothing; a macro average names those."""
    empty = tuple(task for task in scope.tasks if task in floors)
    if not empty:
        return decision
    if len(scope.tasks) == 1:
        return decision.withheld(floors[scope.tasks[0]])
    reason = TasksWithoutHeadroom(empty, len(scope.tasks))
    if len(empty) == len(scope.tasks):
        return decision.withheld(reason)
    return replace(decision, reasons=(*decision.reasons, reason))


def _families(decisions: Mapping[tuple[str, str], Decision]) -> dict[tuple[str, str], Decision]:
    """Decisions of all arms on a task held together."""
    together: dict[tuple[str, str], Decision] = {}
    for task in dict.fromkeys(task for _, task in decisions):
        keys = [key for key in decisions if key[1] == task]
        together |= zip(keys, as_family([decisions[key] for key in keys]), strict=True)
    return {key: together[key] for key in decisions}


def _drift(base: Table, repeat: Table, options: Options) -> dict[str, tuple[float, bool]]:
    """Second run minus first and whether the two are shown to differ, by task and for the average.

    Tasks are corrected by Holm's method: with 21 of them one in twenty would differ by chance in
    most runs. Answers that are no evidence show no difference, wherever they lie.
    """
    ends = {
        scope.name: (_test(scope, WORST, options), _test(scope, BEST, options))
        for scope in scopes(base, repeat, drawing=options.drawing)
    }
    if not ends:
        return {}
    p_values = {
        task: 2.0 * min(worst.p(0.0), best.mirrored().p(0.0))
        for task, (worst, best) in ends.items()
    }
    means = {task: (worst.mean + best.mean) / 2.0 for task, (worst, best) in ends.items()}
    tasks = [task for task in ends if task != MACRO]
    adjusted = holm([min(1.0, p_values[task]) for task in tasks]).tolist()
    shown = {**dict(zip(tasks, adjusted, strict=True)), MACRO: p_values[MACRO]}
    return {task: (mean, shown[task] <= DRIFT_LEVEL) for task, mean in means.items()}


def _nothing_to_lose(base: Table, options: Options) -> dict[str, NothingToLose | Unusable]:
    """Tasks on which the baseline is not shown to be the margin above their floor.

    Where only answers that are no evidence keep it from that, they are the reason.
    """
    reasons: dict[str, NothingToLose | Unusable] = {}
    for task in np.unique(base.tasks).tolist():
        here = base.tasks == task
        floor = [options.floors.get(i, 0.0) for i in base.ids[here].tolist()]
        unusable, scores = base.unusable[here], base.scores[here]
        margin, clusters = options.margin_of(task), base.clusters[here]
        ends = [
            nothing_to_lose(
                np.where(unusable, end, scores),
                margin,
                floor,
                clusters=clusters,
                alpha=options.alpha,
            )
            for end in ((0.0, 1.0) if unusable.any() else (0.0,))
        ]
        if ends[0] is not None:
            reasons[task] = ends[0] if ends[-1] is not None else Unusable(0, int(unusable.sum()))
    return reasons
