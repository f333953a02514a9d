"""The differences behind each verdict of an arm: every task, and the macro average."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evalkit.stats.comparison import MACRO
from evalkit.stats.inputs import Floats, Stratum, clusters_span_strata, reduce, split
from evalkit.stats.join import Table
from evalkit.stats.sequential_test import Drawing, DrawnTask
from evalkit.stats.unusable import difference_ends
from evalkit.stats.verdict import Unusable

Strings = NDArray[np.str_]
Drawn = Mapping[str, tuple[DrawnTask, ...]]
# Rows of the differences of a scope.
WORST, BEST, WORST_TO_REPEAT, BEST_TO_REPEAT = range(4)


@dataclass(frozen=True, slots=True)
class Scope:
    """What one verdict is about.

    Attributes:
        name: task, or ``"macro"``.
        tasks: those it is about.
        parts: their strata; rows of differences are worst and best against the baseline, then
            worst and best against its repeat where there is one.
        unusable: answers that are no evidence.
        drawn: in a run that stops early, by row what was drawn of every task; else empty.
    """

    name: str
    tasks: tuple[str, ...]
    parts: tuple[Stratum, ...]
    unusable: Unusable
    drawn: tuple[tuple[DrawnTask, ...], ...] = ()

    @property
    def without_answers(self) -> bool:
        """Whether one of the two arms has not one usable answer."""
        n = sum(part.units.n for part in self.parts)
        return n in (self.unusable.arm, self.unusable.baseline)

    @property
    def whole(self) -> bool:
        """Whether no task was stopped."""
        return all(task.whole for task in self.drawn[0]) if self.drawn else True


@dataclass(frozen=True, slots=True)
class Answers:
    """Scores of one arm on given samples, and which are no evidence; those it lacks are none."""

    scores: Floats
    unusable: NDArray[np.bool_]


def scopes(
    base: Table,
    arm: Table,
    repeat: Table | None = None,
    drawing: Drawing | None = None,
    drifts: Mapping[str, float] | None = None,
) -> list[Scope]:
    """Every task that both arms have, then the macro average over them.

    All samples that either of the two has are there; in a run that stops early, those that both
    have drawn from the first on, and a task without any is left out.

    Args:
        base: the baseline.
        arm: the other arm.
        repeat: second run of the baseline.
        drawing: how samples were drawn in a run that stops early.
        drifts: second run minus first, of every task that was run again.
    """
    ids, tasks, clusters = _samples(base, arm)
    if drawing is not None:
        drawn_ids = _drawn_ids(drawing, [base, arm] + ([repeat] if repeat else []))
        there = np.isin(ids, drawn_ids) | ~np.isin(tasks, list(drawing.order))
        ids, tasks, clusters = ids[there], tasks[there], clusters[there]
    if not len(ids):
        return []
    ours, theirs = _answers(arm, ids), _answers(base, ids)
    rows = list(difference_ends(ours.scores, theirs.scores, ours.unusable, theirs.unusable))
    if repeat is not None:
        again = _answers(repeat, ids)
        rows += difference_ends(ours.scores, again.scores, ours.unusable, again.unusable)
    differences = np.stack(rows)
    samples, strata = (ids, tasks, clusters), tuple(split(differences, tasks, clusters))
    labels = tuple(part.label for part in strata)

    def scope(name: str, about: tuple[str, ...], parts: tuple[Stratum, ...], drawn: Drawn) -> Scope:
        there = np.isin(tasks, about)
        unusable = Unusable(int(ours.unusable[there].sum()), int(theirs.unusable[there].sum()))
        by_row = tuple(zip(*(drawn[task] for task in about), strict=True)) if drawn else ()
        return Scope(name, about, parts, unusable, by_row)

    drawn = _drawn(drawing, samples, differences)
    every = [scope(part.label, (part.label,), (part,), drawn) for part in strata]
    if repeat is not None:
        differences = _against_either(differences, tasks, drifts or {})
        strata, drawn = (
            tuple(split(differences, tasks, clusters)),
            _drawn(drawing, samples, differences),
        )
    if clusters_span_strata(tasks, clusters):
        strata = (_weighted(differences, tasks, clusters),)
    return [*every, scope(MACRO, labels, strata, drawn)]


def _against_either(differences: Floats, tasks: Strings, drifts: Mapping[str, float]) -> Floats:
    """Differences of a macro average, those to the second run against the harder run of each task.

    Tasks that drift apart leave both averages where they were, and an arm may have drifted with
    one of them only. Nor is it enough to look at tasks whose two runs are shown to differ: many
    drifts, each too small to be shown, add up. A task that was not run again has its only run.
    """
    rows = differences.copy()
    for task in np.unique(tasks).tolist():
        here = tasks == task
        drift = drifts.get(task)
        if drift is None or drift < 0.0:
            rows[WORST_TO_REPEAT, here] = differences[WORST, here]
        if drift is None or drift > 0.0:
            rows[BEST_TO_REPEAT, here] = differences[BEST, here]
    return rows


def _drawn_ids(drawing: Drawing, tables: list[Table]) -> list[str]:
    """Samples up to the first of each task that some arm was not asked."""
    asked = [set(table.ids.tolist()) for table in tables]
    drawn = []
    for order in drawing.order.values():
        for name in order:
            if any(name not in ids for ids in asked):
                break
            drawn.append(name)
    return drawn


def _drawn(
    drawing: Drawing | None, samples: tuple[Strings, Strings, Strings], differences: Floats
) -> Drawn:
    """By task, every row of the differences in the order drawn; nothing in a run that never stops.

    A task that was not drawn in any order (of a run that was merged in) was asked whole.
    """
    if drawing is None:
        return {}
    ids, tasks, clusters = samples
    place = {name: k for k, name in enumerate(ids.tolist())}
    by_task = {}
    for task in np.unique(tasks).tolist():
        if task in drawing.order:
            order, labels = drawing.order[task], drawing.clusters[task]
        else:
            here = np.flatnonzero(tasks == task)
            here = here[np.argsort(clusters[here], kind="stable")]
            order, labels = ids[here].tolist(), clusters[here].tolist()
        rows = [place[name] for name in order if name in place]
        by_task[task] = tuple(DrawnTask(row[rows], len(order), labels) for row in differences)
    return by_task


def _weighted(differences: Floats, tasks: Strings, clusters: Strings) -> Stratum:
    """One stratum whose mean is that over tasks, clusters of several tasks being one unit.

    A sample of a task of n_k weighs n / (K n_k), its cluster the sum of that.
    """
    _, which, counts = np.unique(tasks, return_inverse=True, return_counts=True)
    weights = len(tasks) / (len(counts) * counts[which])
    units = reduce(differences * weights, clusters)
    _, cluster = np.unique(clusters, return_inverse=True)
    return Stratum(MACRO, replace(units, sizes=np.bincount(cluster, weights).astype(np.float64)))


def _samples(base: Table, arm: Table) -> tuple[Strings, Strings, Strings]:
    """Ids, tasks and clusters of the samples that either arm has, of the tasks that both have."""
    shared = np.intersect1d(base.tasks, arm.tasks)
    tables = (base, arm)
    ids, first = np.unique(np.concatenate([t.ids for t in tables]), return_index=True)
    tasks = np.concatenate([t.tasks for t in tables])[first]
    clusters = np.concatenate([t.clusters for t in tables])[first]
    there = np.isin(tasks, shared)
    return ids[there], tasks[there], clusters[there]


def _answers(table: Table, ids: Strings) -> Answers:
    rows = np.minimum(np.searchsorted(table.ids, ids), len(table.ids) - 1)
    missing = table.ids[rows] != ids
    scores = np.where(missing, 0.0, table.scores[rows])
    return Answers(scores, missing | table.unusable[rows])
