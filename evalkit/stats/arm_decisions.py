"""Verdicts of a comparison: every arm on every task and on the macro average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evalkit.stats.comparison import MACRO, Options
from evalkit.stats.decision import Decision, Repeat, Views, as_family, decide
from evalkit.stats.headroom import nothing_to_lose
from evalkit.stats.inputs import Floats, Stratum, split
from evalkit.stats.join import Table
from evalkit.stats.multiplicity import holm
from evalkit.stats.one_sided import OneSidedTest, is_right_wrong, score_test, valid_test
from evalkit.stats.requirements import what_decides
from evalkit.stats.unusable import difference_ends
from evalkit.stats.verdict import (
    NotEngaged,
    NothingToLose,
    RareLossesExcluded,
    TasksWithoutHeadroom,
    Unusable,
    Verdict,
)

DRIFT_LEVEL = 0.05  # at which the baseline's two runs are shown to differ, corrected over tasks
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Answers:
    """Scores of one arm on given samples; those that it lacks are unusable."""

    scores: Floats
    unusable: Bools


@dataclass(frozen=True, slots=True)
class Pairs:
    """One arm against the baseline, and against its repeat, on all samples that either has.

    Attributes:
        parts: tasks; rows of differences are worst and best against the baseline, then against the
            repeat where there is one.
        unusable: task -> answers of the arm and of the baseline that are no evidence.
    """

    parts: tuple[Stratum, ...]
    unusable: Mapping[str, Unusable]


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
        pairs = _pairs(base, arm, repeat)
        plain: dict[str, Decision] = {}
        for task, parts in _scopes(pairs.parts):
            alone = plain.get(parts[0].label)
            if len(parts) == 1 and alone is not None and alone.margin == options.margin_of(task):
                plain[task] = alone  # the macro average of one task is that task
            else:
                twice = drift.get(task) if all(part.label in drift for part in parts) else None
                plain[task] = _decision(task, parts, pairs, twice, options)
            found[name, task] = _without_cause(plain[task], name, task, parts, floors, options)
    return _families(found) if options.family == "all" else found


def _scopes(parts: Sequence[Stratum]) -> list[tuple[str, tuple[Stratum, ...]]]:
    """Every task alone, then all of them."""
    return [*((part.label, (part,)) for part in parts), (MACRO, tuple(parts))]


def _decision(
    task: str,
    parts: tuple[Stratum, ...],
    pairs: Pairs,
    drift: tuple[float, bool] | None,
    options: Options,
) -> Decision:
    margin, alpha = options.margin_of(task), options.alpha
    labels = [part.label for part in parts]
    lost = [pairs.unusable[label] for label in labels]
    unusable = Unusable(sum(u.arm for u in lost), sum(u.baseline for u in lost))
    repeat = None
    if drift is not None:
        repeat = Repeat(Views(_test(parts, 2, options), _test(parts, 3, options)), *drift)
    found = decide(
        Views(_test(parts, 0, options), _test(parts, 1, options)),
        margin,
        alpha=alpha,
        unusable=unusable if unusable.arm + unusable.baseline else None,
        repeat=repeat,
    )
    if found.verdict is Verdict.UNDECIDED:
        found = replace(found, reasons=(*found.reasons, *what_decides(parts, 0, margin, alpha)))
    if options.rare_losses_excluded and not is_right_wrong(parts, 0):
        excluded = RareLossesExcluded(options.rare_losses_excluded)
        found = replace(found, reasons=(*found.reasons, excluded))
    return found


def _test(parts: Sequence[Stratum], row: int, options: Options) -> OneSidedTest:
    if options.rare_losses_excluded and not is_right_wrong(parts, row):
        return score_test(parts, row)
    return valid_test(parts, row)


def _without_cause(
    decision: Decision,
    arm: str,
    task: str,
    parts: Sequence[Stratum],
    floors: Mapping[str, NothingToLose],
    options: Options,
) -> Decision:
    """The decision, withheld where the task can show nothing or the arm is not engaged."""
    empty = tuple(part.label for part in parts if part.label in floors)
    if empty and task != MACRO:
        decision = decision.withheld(floors[task])
    elif empty:
        reason = TasksWithoutHeadroom(empty, len(parts))
        if len(empty) == len(parts):
            decision = decision.withheld(reason)
        else:
            decision = replace(decision, reasons=(*decision.reasons, reason))
    if arm in options.not_engaged:
        decision = decision.withheld(NotEngaged(options.not_engaged[arm]))
    return decision


def _families(found: Mapping[tuple[str, str], Decision]) -> dict[tuple[str, str], Decision]:
    """Decisions of all arms on a task held together."""
    together: dict[tuple[str, str], Decision] = {}
    for task in dict.fromkeys(task for _, task in found):
        keys = [key for key in found if key[1] == task]
        together |= zip(keys, as_family([found[key] for key in keys]), strict=True)
    return {key: together[key] for key in found}


def _pairs(base: Table, arm: Table, repeat: Table | None) -> Pairs:
    ids, tasks, clusters = _all_samples(base, arm)
    ours, theirs = _answers(arm, ids), _answers(base, ids)
    rows = list(difference_ends(ours.scores, theirs.scores, ours.unusable, theirs.unusable))
    if repeat is not None:
        again = _answers(repeat, ids)
        rows += difference_ends(ours.scores, again.scores, ours.unusable, again.unusable)
    parts = tuple(split(np.stack(rows), tasks, clusters))
    unusable = {
        part.label: Unusable(
            int(ours.unusable[tasks == part.label].sum()),
            int(theirs.unusable[tasks == part.label].sum()),
        )
        for part in parts
    }
    return Pairs(parts, unusable)


def _all_samples(
    base: Table, arm: Table
) -> tuple[NDArray[np.str_], NDArray[np.str_], NDArray[np.str_]]:
    """Ids, tasks and clusters of the samples that either arm has, of the tasks that both have."""
    shared = np.intersect1d(base.tasks, arm.tasks)
    tables = (base, arm)
    ids, first = np.unique(np.concatenate([t.ids for t in tables]), return_index=True)
    tasks = np.concatenate([t.tasks for t in tables])[first]
    clusters = np.concatenate([t.clusters for t in tables])[first]
    there = np.isin(tasks, shared)
    return ids[there], tasks[there], clusters[there]


def _answers(table: Table, ids: NDArray[np.str_]) -> Answers:
    rows = np.minimum(np.searchsorted(table.ids, ids), len(table.ids) - 1)
    missing = table.ids[rows] != ids
    scores = np.where(missing, 0.0, table.scores[rows])
    return Answers(scores, missing | table.unusable[rows])


def _drift(base: Table, repeat: Table) -> dict[str, tuple[float, bool]]:
    """Second run minus first and whether the two are shown to differ, by task and for the average.

    Tasks are corrected by Holm's method: with 21 of them one in twenty would differ by chance in
    most runs.
    """
    parts = _pairs(base, repeat, None).parts
    tests = {task: valid_test(some, 0) for task, some in _scopes(parts)}
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
