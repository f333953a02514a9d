"""Comparison step: the arms of a run directory, paired on sample id, with intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from evalkit.analysis.benchmark_summaries import summaries
from evalkit.analysis.left_out import borne_out, left_out, taken_notes
from evalkit.analysis.options import comparison_options
from evalkit.analysis.overlap_record import OverlapRecord, read_overlap
from evalkit.analysis.pairing import paired, unclustered_notes, unpaired_notes
from evalkit.analysis.parity import parity_lines
from evalkit.analysis.perplexity import PerplexityRow, perplexities, read_cells
from evalkit.config.run import CompareConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.files import write_object
from evalkit.core.grid import joined
from evalkit.core.recipe import override
from evalkit.core.records import (
    ArmEntry,
    ComparisonRecord,
    ComparisonRow,
    ItemRow,
    RunRecord,
    SampleRow,
    ScoreRow,
    StoppingRecord,
    TaskEntry,
)
from evalkit.run.current_scores import (
    CurrentScores,
    current_scores,
    excluded_ids,
    score_notes,
)
from evalkit.run.store import RunStore
from evalkit.run.usable import is_usable
from evalkit.stats import ArmScores, Comparison, Options, Row, compare
from evalkit.stats.verdict import as_record
from evalkit.tasks.common.summary import Summary

# Counts of every table, and how they read.
FLAGS = {
    "error": "failed",
    "empty": "empty",
    "length": "cut at the token budget",
    "cut_early": "cut before the token budget",
    "unclosed": "with unclosed reasoning",
    "no_letter": "without a readable letter",
    "truncated": "with a truncated prompt",
    "gold_cut": "with gold that truncation cut away",
    "over_length": "over-length",
    "dense": "within index_topk, where nothing can differ",
    "redacted": "with a secret cut out of them",
}


GROWN = (
    "samples were added after a table was made: a verdict that was looked at again while it was"
    " open is wrong more often than one of a single look (--until-decided is made for looking)"
)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A comparison with what a report wants to say around it.

    Attributes:
        result: rows of the statistics.
        arms: run.json entries, in order.
        tasks: run.json task entries, in order, without those whose texts are read.
        metrics: metric per task.
        flags: per arm, counts of error, empty and length.
        failures: per arm with failed answers, the commonest reason.
        unfinished: per arm, (answered, planned) where they differ.
        settings: how arms were compared.
        options: what the statistics were told.
        scored: scores of every arm that has some.
        whole: the same with the samples left out by hand.
        summaries: what the benchmarks themselves report.
        overlap: what overlap.json holds, or None.
        parity: lines about arms that name another build.
        until_decided: how `evalkit run --until-decided` drew the samples, or None.
        remarks: what must be known of the scores, one line each.
        excluded: samples left out by hand.
        taken: (compared, answered) samples of the tasks that some were taken out of.
        perplexity: of the cells whose texts are read.
    """

    result: Comparison
    arms: tuple[ArmEntry, ...]
    tasks: tuple[TaskEntry, ...]
    metrics: Mapping[str, str]
    flags: Mapping[str, Counter[str]]
    failures: Mapping[str, str]
    unfinished: Mapping[str, tuple[int, int]]
    settings: CompareConfig
    options: Options
    scored: Mapping[str, ArmScores]
    whole: Mapping[str, ArmScores]
    summaries: tuple[Summary, ...] = ()
    overlap: OverlapRecord | None = None
    parity: tuple[str, ...] = ()
    until_decided: StoppingRecord | None = None
    remarks: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    taken: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    perplexity: tuple[PerplexityRow, ...] = ()

    @property
    def left_out(self) -> str:
        """For the titles of tables: which samples are not compared."""
        return left_out(self.excluded, self.taken)


def compare_run(
    store: RunStore, baseline: str | None = None, settings: CompareConfig | None = None
) -> RunComparison:
    """Compare every arm of a run with the baseline.

    Args:
        store: a scored run directory.
        baseline: arm to compare with; default: the recipe's, else the first.
        settings: default: the recipe's.

    Raises:
        EvalkitError: no scores, unknown baseline, arms that read different prompts, or see
            `current_scores`.
    """
    run, settings = store.read_run(), settings or settings_of(store)
    baseline = _baseline(store, run, baseline or settings.baseline)
    every = store.read_items()
    if not every:
        raise EvalkitError(f"{store.path}: nothing was generated yet")
    taken = run.taken_out(every)
    excluded = tuple(i for i in _excluded(run, settings, every) if i not in taken)
    whole = current_scores(store, whole=True)
    current = {name: arm.without({*excluded, *taken}) for name, arm in whole.items()}
    answers = {name: arm.answers for name, arm in current.items()}
    _check_prompts(store, answers, baseline)
    read = read_cells(run, every)
    tasks = tuple(task for task in run.tasks if task.name not in read)
    items = {i: item for i, item in every.items() if not item.is_read}
    planned = sum(task.samples for task in tasks) - sum(i in items for i in excluded)
    scores = {name: arm.scores for name, arm in current.items()}
    scored = {name: _columns(rows, items) for name, rows in scores.items() if rows}
    with_all = {name: _columns(whole[name].scores, items) for name in scored}
    if baseline not in scored and tasks:
        raise EvalkitError(f"{store.path}: the baseline {baseline} has no scores yet")
    options = comparison_options(run, items, settings, baseline)
    first = {baseline: scored[baseline], **scored} if scored else {}
    part = partial(_part, scored, with_all, baseline, options)
    return RunComparison(
        result=_compared(scored, with_all, baseline, options),
        arms=run.arms,
        tasks=tasks,
        metrics={item.task: item.metric for item in every.values()},
        flags={n: Counter(f for row in r.values() for f in row.flags) for n, r in scores.items()},
        failures=_failures(answers),
        unfinished={n: (len(r), planned) for n, r in scores.items() if len(r) != planned},
        settings=settings,
        options=options,
        scored=scored,
        whole=with_all,
        summaries=_titled(summaries(first, items, part), left_out(excluded, run.reduced)),
        overlap=read_overlap(store.path),
        parity=tuple(parity_lines(run.arms, paired(scored, baseline) if scored else {}, options)),
        until_decided=run.until_decided,
        remarks=_remarks(run, current, scored, items, baseline),
        excluded=excluded,
        taken=run.reduced,
        perplexity=perplexities(
            answers, every, baseline, repeat=options.repeat, confidence=settings.confidence
        ),
    )


def _remarks(
    run: RunRecord,
    current: Mapping[str, CurrentScores],
    scored: Mapping[str, ArmScores],
    items: Mapping[str, ItemRow],
    baseline: str,
) -> tuple[str, ...]:
    """Lines about scores, and about samples that no other arm or nothing pairs."""
    unpaired = unpaired_notes(scored, baseline) if scored else ()
    notes = (*score_notes(current), *unpaired, *unclustered_notes(run.arms, items))
    notes = (*taken_notes(run.reduced), *notes)
    grown = [
        f"{task.name} ({', then '.join(map(str, (*task.looks, task.samples)))})"
        for task in run.tasks
        if task.looks
    ]
    return notes if not grown else (*notes, f"{GROWN}: {', '.join(grown)}")


def _baseline(store: RunStore, run: RunRecord, asked: str | None) -> str:
    """The arm that was asked for, else the first."""
    if not run.names:
        raise EvalkitError(f"{store.path}: run.json names no arm")
    baseline = asked or run.names[0]
    if baseline not in run.names:
        raise EvalkitError(f"baseline {baseline}: no such arm ({', '.join(run.names)})")
    return baseline


def _excluded(
    run: RunRecord, settings: CompareConfig, items: Mapping[str, ItemRow]
) -> tuple[str, ...]:
    """Samples left out by hand."""
    excluded = excluded_ids(settings.exclude, items)
    if excluded and run.until_decided is not None:
        raise EvalkitError(
            "compare.exclude: the arms of this run stopped on all samples drawn: leave it out"
        )
    return excluded


def _titled(every: Iterable[Summary], behind: str) -> tuple[Summary, ...]:
    """Summaries whose titles say what was left out."""
    return tuple(
        replace(s, grid=replace(s.grid, title=joined((s.grid.title, behind), ""))) for s in every
    )


def settings_of(store: RunStore, changes: Sequence[str] = ()) -> CompareConfig:
    """How the recipe says that arms are compared, with changes such as ``margin=0.02``.

    Raises:
        EvalkitError: no run here, or a change that the setting does not take.
    """
    return override(store.read_run().section("compare"), CompareConfig, changes, "compare")


def compare_part(comparison: RunComparison, tasks: Collection[str]) -> Comparison:
    """The same comparison over some tasks only; its macro average is over those.

    Arms that have none of them are left out.

    Raises:
        EvalkitError: the baseline has none of them.
    """
    baseline = comparison.result.baseline
    return _part(comparison.scored, comparison.whole, baseline, comparison.options, tasks)


def _part(
    scored: Mapping[str, ArmScores],
    whole: Mapping[str, ArmScores],
    baseline: str,
    options: Options,
    tasks: Collection[str],
) -> Comparison:
    parts, with_all = (
        {name: part for name, scores in arms.items() if (part := _only(scores, tasks))}
        for arms in (scored, whole)
    )
    return _compared(parts, with_all, baseline, options)


def _compared(
    scored: Mapping[str, ArmScores],
    whole: Mapping[str, ArmScores],
    baseline: str,
    options: Options,
) -> Comparison:
    """The arms that share a sample with the baseline; verdicts hold with all samples too."""
    if not scored:
        return Comparison((), baseline, options.signature())
    pairs = paired(scored, baseline) if baseline in scored else scored
    comparison = compare(pairs, baseline, options)
    if sum(len(arm.ids) for arm in whole.values()) == sum(len(arm.ids) for arm in scored.values()):
        return comparison
    return borne_out(comparison, compare(paired(whole, baseline), baseline, options))


def _only(scores: ArmScores, tasks: Collection[str]) -> ArmScores | None:
    """The samples of some tasks, or None."""
    keep = [k for k, task in enumerate(scores.tasks) if task in tasks]
    if not keep:
        return None
    return ArmScores(
        ids=[scores.ids[k] for k in keep],
        tasks=[scores.tasks[k] for k in keep],
        scores=[scores.scores[k] for k in keep],
        clusters=[scores.clusters[k] for k in keep],
        errors=[scores.errors[k] for k in keep],
        unusable=[scores.unusable[k] for k in keep],
    )


def _columns(rows: Mapping[str, ScoreRow], items: Mapping[str, ItemRow]) -> ArmScores:
    return ArmScores(
        ids=list(rows),
        tasks=[row.task for row in rows.values()],
        scores=[row.score for row in rows.values()],
        clusters=[items[i].cluster for i in rows],
        errors=["error" in row.flags for row in rows.values()],
        unusable=[not is_usable(row.flags) for row in rows.values()],
    )


def _check_prompts(
    store: RunStore, answers: Mapping[str, Mapping[str, SampleRow]], baseline: str
) -> None:
    """Arms are comparable only where they read the very same prompts.

    The prompts of imported arms are not known (null): they go with any other.
    """
    reference = {i: row.prompt_sha256 for i, row in answers[baseline].items()}
    for name, rows in answers.items():
        for sample_id, row in rows.items():
            ours, theirs = row.prompt_sha256, reference.get(sample_id)
            if ours is not None and theirs is not None and ours != theirs:
                raise EvalkitError(
                    f"{store.path}: arm {name} and {baseline} read different prompts for"
                    f" {sample_id} (other tokenizer or chat template): they cannot be compared"
                )


def _failures(answers: Mapping[str, Mapping[str, SampleRow]]) -> dict[str, str]:
    """Why answers failed: the commonest reason of every arm that has failed ones."""
    reasons = {
        name: Counter(" ".join(row.error.split()) for row in rows.values() if row.error)
        for name, rows in answers.items()
    }
    return {name: counts.most_common(1)[0][0] for name, counts in reasons.items() if counts}


def methods(comparison: RunComparison) -> tuple[str, ...]:
    """Methods that made the intervals, in order of first use."""
    used = (row.result.method for row in comparison.result.rows if row.result is not None)
    return tuple(dict.fromkeys(used))


def comparison_rows(comparison: RunComparison) -> tuple[ComparisonRow, ...]:
    """The rows of compare.json."""
    return tuple(_flat(row, comparison.metrics) for row in comparison.result.rows)


def _flat(row: Row, metrics: Mapping[str, str]) -> ComparisonRow:
    result = row.result
    return ComparisonRow(
        arm=row.arm,
        task=row.task,
        metric=metrics.get(row.task, "mean over tasks"),
        n=row.n,
        n_errors=row.errors,
        score=row.score,
        baseline_score=row.baseline_score,
        delta=result.delta if result else None,
        ci_low=result.low if result else None,
        ci_high=result.high if result else None,
        method=result.method if result else None,
        n_differing=result.n_differing if result else None,
        p_value=result.p_value if result else None,
        bound_low=row.bound[0] if row.bound else None,
        bound_high=row.bound[1] if row.bound else None,
        p_no_worse=row.decision.p_no_worse if row.decision else None,
        p_worse=row.decision.p_worse if row.decision else None,
        verdict=str(row.verdict),
        reasons=tuple(map(as_record, row.decision.reasons)) if row.decision else (),
        equivalent=row.equivalent,
        notes=row.notes,
    )


def write_json(store: RunStore, comparison: RunComparison) -> None:
    """Write compare.json beside the run."""
    record = ComparisonRecord(
        baseline=comparison.result.baseline,
        settings=comparison.settings.model_dump(mode="json"),
        methods=methods(comparison),
        signature=comparison.result.signature,
        unfinished=comparison.unfinished,
        flags=comparison.flags,
        summaries={summary.name: summary.data for summary in comparison.summaries},
        rows=comparison_rows(comparison),
        perplexity=tuple(row.json() for row in comparison.perplexity),
        taken_out=comparison.taken,
    )
    write_object(store.path / "compare.json", record.json())
