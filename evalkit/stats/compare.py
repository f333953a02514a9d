"""Comparison of arms with a baseline: per task and macro average, joined on sample id."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from evalkit.core.errors import EvalkitError
from evalkit.stats.arm_decisions import arm_decisions
from evalkit.stats.comparison import MACRO, REPEAT, Comparison, Options, Row
from evalkit.stats.decision import Decision
from evalkit.stats.design import Design, IntervalOptions
from evalkit.stats.join import ArmScores, Table, common, table
from evalkit.stats.methods import METHODS, paired_arms
from evalkit.stats.result import SPANNING, ArmResults, PairedResult
from evalkit.stats.verdict import Verdict, check_margin

FAMILIES = ("each", "all")
OUT_OF_ORDER = "the first samples in the order drawn are missing: no verdict on the others"


def compare(
    arms: Mapping[str, ArmScores], baseline: str, options: Options | None = None
) -> Comparison:
    """Compare every arm with the baseline on the samples they share.

    Each arm is joined with the baseline alone, so its rows do not depend on the other arms; arms
    with the same samples share one matrix of resamples. The macro average weighs tasks equally
    and is taken over the tasks both have; a missing task or sample is named in the notes.

    Raises:
        EvalkitError: unknown baseline, an id twice in one arm, one id with two tasks or clusters,
            no sample in common, a score outside [0, 1], or options out of range.
    """
    options = options or Options()
    _check(arms, baseline, options)
    tables = {name: table(name, scores) for name, scores in arms.items()}
    base = tables.pop(baseline)
    if any(MACRO in (other.tasks) for other in (base, *tables.values())):
        raise EvalkitError(f"{MACRO!r} is the name of the average, not of a task")
    groups: dict[bytes, tuple[NDArray[np.str_], list[str]]] = {}
    for name, other in tables.items():
        ids = common(base, other)
        groups.setdefault("\n".join(ids).encode(), (ids, []))[1].append(name)
    by_arm: dict[str, list[Row]] = {}
    stopped = options.drawing is not None
    for ids, names in groups.values():
        results = _results(base.at(ids), [tables[name].at(ids) for name in names], options)
        for position, name in enumerate(names, start=1):
            by_arm[name] = _rows(base, tables[name], ids, results, position, stopped)
    decisions = arm_decisions(base, tables, options)
    rows = [row for name in tables for row in by_arm[name]]
    judged = [_decided(row, decisions.get((row.arm, row.task)), options) for row in rows]
    return Comparison((*_baseline_rows(base), *judged), baseline, options.signature())


def _check(arms: Mapping[str, ArmScores], baseline: str, options: Options) -> None:
    if baseline not in arms:
        raise EvalkitError(f"baseline {baseline!r} is not among the arms: {', '.join(arms)}")
    if options.family not in FAMILIES:
        raise EvalkitError(f"family {options.family!r}: known are {', '.join(FAMILIES)}")
    for margin in (options.margin, *options.margins.values()):
        check_margin(margin)


def _results(base: Table, others: Sequence[Table], options: Options) -> ArmResults:
    return paired_arms(
        np.stack([base.scores, *(other.scores for other in others)]),
        0,
        Design(base.tasks, base.clusters),
        IntervalOptions(options.method, options.confidence, options.n_resamples, options.seed),
    )


def _rows(
    base: Table,
    arm: Table,
    ids: NDArray[np.str_],
    results: ArmResults,
    position: int,
    stopped: bool,
) -> list[Row]:
    """The rows of one arm: every task that it or the baseline has, then the macro average.

    Where arms are stopped when decided, samples that one of them lacks are no remark.
    """
    ours, theirs = arm.at(ids), base.at(ids)
    rows = []
    for task in np.unique(np.concatenate([base.tasks, arm.tasks])).tolist():
        here = ours.tasks == task
        n = int(here.sum())
        notes = () if stopped and n else _missing(base, arm, task, n)
        if n == 0:
            rows.append(
                Row(arm.name, task, None, None, 0, 0, verdict=Verdict.WITHHELD, notes=notes)
            )
            continue
        errors = int(ours.errors[here].sum())
        if errors == n:
            notes += ("every sample of the arm is an error",)
        score, baseline_score = _mean(ours.scores[here]), _mean(theirs.scores[here])
        result = results.strata[task][position]
        rows.append(Row(arm.name, task, score, baseline_score, n, errors, result, notes=notes))
    done = [row for row in rows if row.result is not None]
    notes = () if len(done) == len(rows) else (f"macro over {len(done)} of {len(rows)} tasks",)
    if any(row.notes for row in done):
        notes += ("some samples are missing or failed, see the tasks",)
    macro = Row(
        arm.name,
        MACRO,
        _mean([row.score or 0.0 for row in done]),
        _mean([row.baseline_score or 0.0 for row in done]),
        len(ids),
        sum(row.errors for row in done),
        results.overall[position],
        notes=notes,
    )
    return [*rows, macro]


def _missing(base: Table, arm: Table, task: str, n: int) -> tuple[str, ...]:
    """Notes on samples of a task that one of the two arms lacks."""
    notes = []
    for has, lacks in ((base, arm), (arm, base)):
        total = int((has.tasks == task).sum())
        if total > n:
            what = "all" if n == 0 else f"{total - n} of {total}"
            notes.append(f"{what} samples of {has.name!r} are missing in {lacks.name!r}")
    return tuple(notes)


def _baseline_rows(base: Table) -> list[Row]:
    rows = []
    for task in np.unique(base.tasks).tolist():
        here = base.tasks == task
        score = _mean(base.scores[here])
        rows.append(
            Row(base.name, task, score, score, int(here.sum()), int(base.errors[here].sum()))
        )
    score = _mean([row.score or 0.0 for row in rows])
    return [*rows, Row(base.name, MACRO, score, score, len(base.ids), int(base.errors.sum()))]


def _decided(row: Row, decision: Decision | None, options: Options) -> Row:
    """A row with its verdict; the baseline's repeat has none."""
    if row.result is None:
        return row
    if row.arm == options.repeat:
        return replace(row, verdict=REPEAT)
    if decision is None:
        return replace(row, verdict=Verdict.WITHHELD, notes=(*row.notes, OUT_OF_ORDER))
    evidence = decision.evidence
    low, high = sorted((evidence.low, evidence.high))  # sequences may cross, once in many runs
    result, caution = row.result, row.result.caution or ""
    notes = [str(reason) for reason in decision.reasons]
    if evidence.method == "sequence":
        result = _of_sequence(result, decision, (low, high), options.confidence)
    elif METHODS[options.method].resamples and caution:
        notes.append(caution)
    elif SPANNING in caution:
        notes.append(SPANNING)
    return replace(
        row,
        result=result,
        verdict=decision.verdict,
        bound=(low, high),
        equivalent=decision.verdict.acceptable and evidence.excludes_gain(decision.margin),
        notes=(*row.notes, *notes),
        decision=decision,
    )


def _of_sequence(
    result: PairedResult, decision: Decision, ends: tuple[float, float], confidence: float
) -> PairedResult:
    """Difference, interval and p-value of a run that stops early: those of the sequence.

    Where an arm was stopped the difference so far is drawn to the side that made it stop; the
    middle of the sequence takes its place.
    """
    evidence = decision.evidence
    views = evidence.against[0]
    middle = (views.worst.mean + views.best.mean) / 2.0
    return PairedResult(
        delta=middle,
        low=ends[0],
        high=ends[1],
        p_value=min(1.0, 2.0 * min(evidence.p_better, evidence.p_lower)),
        n=result.n,
        n_clusters=result.n_clusters,
        method=evidence.method,
        confidence=confidence,
        n_differing=result.n_differing,
    )


def _mean(values: Sequence[float] | NDArray[np.float64]) -> float:
    return math.fsum(values) / len(values)
