"""An imported arm in a run directory: joined with the samples there, written all or nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from evalkit.config.run import CompareConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.files import write_jsonl
from evalkit.core.json_fields import optional_fields
from evalkit.core.provenance import environment, with_guests
from evalkit.core.records import ArmEntry, ItemRow, RunRecord, SampleRow, TaskEntry
from evalkit.importers.common.align import Aligned, align
from evalkit.importers.common.clusters import cluster_of
from evalkit.importers.common.gold import fill_in_gold
from evalkit.importers.common.import_report import ImportReport, TaskImport
from evalkit.importers.common.known_samples import known_samples
from evalkit.importers.common.predictions import Prediction, PredictionSet
from evalkit.importers.common.questions import Question
from evalkit.run.store import RunStore


def add_arm(
    format_: str,
    source: str,
    arm: str,
    store: RunStore,
    predictions: PredictionSet,
    *,
    allow_partial: bool,
    packages: Mapping[str, str],
) -> ImportReport:
    """Join what was read with a run, and write it; the caller holds the lock.

    `packages` are versions of the other packages that the format comes from, for run.json.

    Raises:
        EvalkitError: see `evalkit.importers.import_predictions`.
    """
    run = store.read_run() if store.exists else _new_run()
    items, read = _known_items(store, run), predictions.sha256
    keyless = fill_in_gold(predictions, items)
    aligned, refused = _joined(predictions, items)
    left_out = [*keyless, *refused]
    by_id = {i: p for task in aligned.values() for i, p in task.predictions.items()}
    known = arm in run.names
    if not by_id and not known:
        reason = f": {'; '.join(left_out)}" if left_out else ""
        raise EvalkitError(f"{source}: no usable record{reason}{_problems(predictions)}")
    rows = [_sample_row(i, prediction) for i, prediction in by_id.items()]
    coverage = () if known else (*_coverage(by_id, items), *left_out)
    report = ImportReport(
        arm=arm,
        format=format_,
        tasks={name: _task(name, task, predictions) for name, task in aligned.items()},
        problems=tuple(predictions.problems),
        coverage=coverage,
        notes=tuple(predictions.notes),
        unchanged=known,
    )
    if known:
        _check_same(store, run.arm(arm), rows, read)
        return report
    if coverage and not allow_partial:
        repeated = [line for task in report.tasks.values() for line in task.repeated]
        said = f"; lines that repeat others: {', '.join(repeated[:5])}" if repeated else ""
        raise EvalkitError(
            f"{arm} has not all samples, or not those of the other arms: {'; '.join(coverage)}"
            f"{said}{_problems(predictions)}. --allow-partial adds what can be used"
        )
    if packages:
        known_facts = optional_fields(run.stored, "environment")
        run = run.with_environment(with_guests(known_facts, packages))
    every = _with_units(by_id, items, foreign=run.is_imported)
    mine = [i for i in by_id if run.is_imported or i not in items]
    lone = dict.fromkeys(
        by_id[i].task for i in mine if by_id[i].may_share and every[i].cluster == i
    )
    _write(store, run, list(every.values()), rows, _entry(report, source, read, list(lone)))
    return report


def _with_units(
    by_id: Mapping[str, Prediction], items: Mapping[str, ItemRow], *, foreign: bool
) -> dict[str, ItemRow]:
    """The samples of a run with those of an import, and the texts that they are known to share.

    A run of our own knows what its samples share; of imported ones (`foreign`) a later import may
    tell what an earlier one did not.
    """
    every = dict(items)
    for i, prediction in by_id.items():
        old = every.get(i)
        if old is not None and not (foreign and old.cluster == i):
            continue
        unit = cluster_of(i, prediction)
        if old is None:
            every[i] = _item(i, prediction, unit)
        elif unit is not None:
            every[i] = ItemRow.parse({**old.json(), "cluster": f"{old.task}/{unit}"})
    return every


def _new_run() -> RunRecord:
    return RunRecord.for_imports(CompareConfig().model_dump(mode="json"), environment())


def _check_same(store: RunStore, arm: ArmEntry, rows: Sequence[SampleRow], read: str) -> None:
    """Refuse other content under the name of an arm; earlier versions wrote no hash of it."""
    if arm.imported is not None and arm.imported.stored.get("sha256") == read:
        return
    fresh = [SampleRow.parse(json.loads(json.dumps(row.json()))) for row in rows]
    stored = store.read_samples(arm.name).values()
    if [r._replace(checksum=None) for r in stored] != [r._replace(checksum=None) for r in fresh]:
        raise EvalkitError(
            f"{store.path}: there is an arm {arm.name} with other content: choose another --arm,"
            f" or take it away: evalkit arms remove {store.path} {arm.name!r}"
        )


def _known_items(store: RunStore, run: RunRecord) -> dict[str, ItemRow]:
    """The samples of a run. What an interrupted import left behind belongs to no arm: dropped."""
    items = store.read_items() if store.exists else {}
    if not run.is_imported:
        return items
    answered = {i for name in run.names for i in store.read_samples(name)}
    return {i: item for i, item in items.items() if i in answered}


def _joined(
    predictions: PredictionSet, items: Mapping[str, ItemRow]
) -> tuple[dict[str, Aligned], list[str]]:
    """The samples of every task, and why others cannot be joined: one bad task loses no other."""
    aligned, refused = {}, []
    for task, lines in predictions.lines.items():
        try:
            joined = align(task, predictions, known_samples(task, items, lines))
            _check_questions(joined.predictions, items)
        except EvalkitError as error:
            refused.append(f"{task} is left out: {error}")
        else:
            aligned[task] = joined
    return aligned, refused


def _check_questions(by_id: Mapping[str, Prediction], items: Mapping[str, ItemRow]) -> None:
    """Samples of one id must have one gold and one length, or they are not the same question."""
    wrong = [
        (prediction, items[i])
        for i, prediction in by_id.items()
        if i in items
        and not (
            prediction.metric == items[i].metric
            and Question.of(prediction).agrees(Question.of(items[i]))
        )
    ]
    if not wrong:
        return
    prediction, item = wrong[0]
    ours, theirs = Question.of(item), Question.of(prediction)
    if ours.references != theirs.references:
        difference = (
            f"the answers are {_short(theirs.references)}, but sample {item.sample_id} of the run"
            f" has {_short(ours.references)}"
        )
    elif ours.agrees(theirs):
        difference = f"{item.sample_id} is scored by {item.metric} in the run"
    else:
        difference = (
            f"the length is {theirs.length}, but that of sample {item.sample_id} of the run is"
            f" {ours.length}"
        )
    raise EvalkitError(
        f"{prediction.where}: {difference}: not the same samples ({len(wrong)} of {len(by_id)})"
    )


def _coverage(by_id: Mapping[str, Prediction], items: Mapping[str, ItemRow]) -> list[str]:
    """Where the new arm and the samples of the run differ, task by task."""
    if not items:
        return []
    lacks = Counter(item.task for i, item in items.items() if i not in by_id)
    adds = Counter(prediction.task for i, prediction in by_id.items() if i not in items)
    total = Counter(item.task for item in items.values())
    lines = [f"{task}: {n} of {total[task]} samples are missing" for task, n in lacks.items()]
    return lines + [f"{task}: {n} samples that no other arm has" for task, n in adds.items()]


def _sample_row(sample_id: str, prediction: Prediction) -> SampleRow:
    return SampleRow(
        sample_id=sample_id,
        task=prediction.task,
        prompt_sha256=None,
        prompt_tokens=None,
        completion_tokens=None,
        completion=prediction.text,
        finish_reason="error" if prediction.error else "unknown",
        error=prediction.error,
        extra=prediction.extra or None,
    ).sealed()


def _item(sample_id: str, prediction: Prediction, unit: str | None) -> ItemRow:
    return ItemRow(
        sample_id=sample_id,
        task=prediction.task,
        metric=prediction.metric,
        references=prediction.references,
        cluster=sample_id if unit is None else f"{prediction.task}/{unit}",
        meta=prediction.meta,
    )


def _task(name: str, task: Aligned, predictions: PredictionSet) -> TaskImport:
    errors = sum(prediction.error is not None for prediction in task.predictions.values())
    expected = predictions.expected.get(name)
    return TaskImport(len(task.predictions), errors, task.lines, task.repeated, expected)


def _entry(report: ImportReport, source: str, read: str, untold: list[str]) -> ArmEntry:
    """What run.json keeps of an imported arm."""
    return ArmEntry.imported_as(
        report.arm,
        {
            "format": report.format,
            "source": source,
            "sha256": read,
            "records": report.records,
            "errors": sum(task.errors for task in report.tasks.values()),
            "repeated": {name: list(t.repeated) for name, t in report.tasks.items() if t.repeated},
            "problems": [str(problem) for problem in report.problems],
            "coverage": list(report.coverage),
            "notes": list(report.notes),
            "unclustered": untold,
        },
    )


def _write(
    store: RunStore,
    run: RunRecord,
    items: Sequence[ItemRow],
    rows: Sequence[SampleRow],
    entry: ArmEntry,
) -> None:
    """Samples, answers, and run.json last: without it nothing of the rest counts."""
    write_jsonl(store.path / "items.jsonl", (item.json() for item in items))
    final = store.arm_dir(entry.name)
    draft = final.with_name(f".{final.name}.{os.getpid()}")
    _remove(draft)
    write_jsonl(draft / "samples.jsonl", (row.json() for row in rows))
    _remove(final)
    draft.rename(final)
    store.write_run(run.with_tasks(_tasks(run, items)).with_arm(entry))


def _tasks(run: RunRecord, items: Iterable[ItemRow]) -> list[TaskEntry]:
    """The tasks of a run with as many samples as there are items at least."""
    tasks = {task.name: task for task in run.tasks}
    for name, count in Counter(item.task for item in items).items():
        task = tasks.get(name) or TaskEntry.of(name, 0, {})
        tasks[name] = task.with_samples(max(task.samples, count))
    return list(tasks.values())


def _remove(folder: Path) -> None:
    """Take away what an interrupted import of the same arm left."""
    if folder.exists():
        shutil.rmtree(folder)


def _problems(predictions: PredictionSet) -> str:
    problems = predictions.problems
    if not problems:
        return ""
    first = "; ".join(map(str, problems[:5]))
    more = f" … and {len(problems) - 5} more" if len(problems) > 5 else ""
    return f" (malformed: {first}{more})"


def _short(values: Sequence[str]) -> str:
    text = json.dumps(list(values), ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"
