"""An imported arm in a run directory: joined with the samples there, written all or nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalkit.config.run import CompareConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.files import dumps, write_atomic
from evalkit.core.provenance import environment, with_guests
from evalkit.importers.common.align import Settled, settle
from evalkit.importers.common.import_report import ImportReport, TaskImport
from evalkit.importers.common.records import Reading, Record
from evalkit.run.store import RunStore

Item = Mapping[str, Any]


def add_arm(
    format_: str,
    source: str,
    arm: str,
    store: RunStore,
    reading: Reading,
    *,
    allow_partial: bool,
    packages: Mapping[str, str],
) -> ImportReport:
    """Join what was read with a run, and write it; the caller holds the lock.

    `packages` are versions of the other packages that the format comes from, for run.json.

    Raises:
        EvalkitError: see `evalkit.importers.import_predictions`.
    """
    run = store.read_run() if store.exists else _fresh_run()
    items = _known_items(store, run)
    settled = {
        task: settle(task, slots, reading, _references(task, items), _aliases(task, items))
        for task, slots in reading.slots.items()
    }
    records = {i: record for task in settled.values() for i, record in task.records.items()}
    if not records:
        raise EvalkitError(f"{source}: no usable record{_problems(reading)}")
    _check_answers(records, items)
    rows = [_sample_row(i, record) for i, record in records.items()]
    entry = next((entry for entry in run["arms"] if entry["name"] == arm), None)
    coverage = () if entry else tuple(_coverage(records, items))
    report = ImportReport(
        arm=arm,
        format=format_,
        tasks={name: _task(name, found, reading) for name, found in settled.items()},
        problems=tuple(reading.problems),
        coverage=coverage,
        notes=tuple(reading.notes),
        unchanged=entry is not None,
    )
    if entry is not None:
        if list(store.read_samples(arm).values()) != json.loads(json.dumps(rows)):
            raise EvalkitError(
                f"{store.path}: there is an arm {arm} with other content: choose another --arm"
            )
        return report
    if coverage and not allow_partial:
        raise EvalkitError(
            f"{arm} has not the same samples as the other arms: {'; '.join(coverage)}"
            f"{_problems(reading)}. Allow a partial import to add it nevertheless"
        )
    if packages:
        run["environment"] = with_guests(run.get("environment") or {}, packages)
    _write(store, run, items, records, rows, _entry(report, source))
    return report


def _fresh_run() -> dict[str, Any]:
    return {
        "format": 1,
        "identity": {"imported": True},
        "recipe": {"compare": CompareConfig().model_dump(mode="json")},
        "tasks": [],
        "arms": [],
        "environment": environment(),
    }


def _known_items(store: RunStore, run: Mapping[str, Any]) -> dict[str, Item]:
    """The samples of a run. What an interrupted import left behind belongs to no arm: dropped."""
    items = store.read_items() if store.exists else {}
    if not run.get("identity", {}).get("imported"):
        return dict(items)
    answered = {i for entry in run["arms"] for i in store.read_samples(entry["name"])}
    return {i: item for i, item in items.items() if i in answered}


def _references(task: str, items: Mapping[str, Item]) -> dict[str, list[str]]:
    return {i: item["references"] for i, item in items.items() if item["task"] == task}


def _aliases(task: str, items: Mapping[str, Item]) -> dict[str, str]:
    """Sample ids by the benchmark's own id."""
    return {
        str(item["meta"]["_id"]): i
        for i, item in items.items()
        if item["task"] == task and item.get("meta", {}).get("_id")
    }


def _check_answers(records: Mapping[str, Record], items: Mapping[str, Item]) -> None:
    """Samples of one id must have one gold, or positions do not mean the same question."""
    wrong = [
        (record, items[i])
        for i, record in records.items()
        if i in items
        and (list(record.references), record.metric) != (items[i]["references"], items[i]["metric"])
    ]
    if not wrong:
        return
    record, item = wrong[0]
    tasks = Counter(record.task for record, _ in wrong)
    raise EvalkitError(
        f"{record.where}: the answers are {_short(record.references)}, but sample"
        f" {item['sample_id']} of the run has {_short(item['references'])}: not the same samples in"
        f" the same order ({', '.join(f'{n} differ in {task}' for task, n in tasks.items())})"
    )


def _coverage(records: Mapping[str, Record], items: Mapping[str, Item]) -> list[str]:
    """Where the new arm and the samples of the run differ, task by task."""
    if not items:
        return []
    lacks = Counter(item["task"] for i, item in items.items() if i not in records)
    adds = Counter(record.task for i, record in records.items() if i not in items)
    total = Counter(item["task"] for item in items.values())
    lines = [f"{task}: {n} of {total[task]} samples are missing" for task, n in lacks.items()]
    return lines + [f"{task}: {n} samples that no other arm has" for task, n in adds.items()]


def _sample_row(sample_id: str, record: Record) -> dict[str, Any]:
    row = {
        "sample_id": sample_id,
        "task": record.task,
        "prompt_sha256": None,
        "prompt_tokens": None,
        "completion_tokens": None,
        "completion": record.prediction,
        "finish_reason": "error" if record.error else "unknown",
        "error": record.error,
        "seconds": None,
    }
    return row | ({"extra": dict(record.extra)} if record.extra else {})


def _item(sample_id: str, record: Record) -> dict[str, Any]:
    return {
        "sample_id": sample_id,
        "task": record.task,
        "metric": record.metric,
        "references": list(record.references),
        "cluster": sample_id,
        "meta": dict(record.meta),
    }


def _task(name: str, found: Settled, reading: Reading) -> TaskImport:
    errors = sum(record.error is not None for record in found.records.values())
    return TaskImport(
        len(found.records), errors, found.lines, found.repeated, reading.expected.get(name)
    )


def _entry(report: ImportReport, source: str) -> dict[str, Any]:
    """What run.json keeps of an imported arm."""
    return {
        "name": report.arm,
        "model": None,
        "schedule": None,
        "imported": {
            "format": report.format,
            "source": source,
            "records": report.records,
            "errors": sum(task.errors for task in report.tasks.values()),
            "repeated": {name: list(t.repeated) for name, t in report.tasks.items() if t.repeated},
            "problems": [str(problem) for problem in report.problems],
            "coverage": list(report.coverage),
            "notes": list(report.notes),
        },
    }


def _write(
    store: RunStore,
    run: dict[str, Any],
    items: Mapping[str, Item],
    records: Mapping[str, Record],
    rows: list[dict[str, Any]],
    entry: dict[str, Any],
) -> None:
    """Samples, answers, and run.json last: without it nothing of the rest counts."""
    fresh = [_item(i, record) for i, record in records.items() if i not in items]
    every = [*items.values(), *fresh]
    write_atomic(store.path / "items.jsonl", "".join(dumps(item) + "\n" for item in every))
    final = store.arm_dir(entry["name"])
    draft = final.with_name(f".{final.name}.{os.getpid()}")
    _remove(draft)
    write_atomic(draft / "samples.jsonl", "".join(dumps(row) + "\n" for row in rows))
    _remove(final)
    draft.rename(final)
    counts = Counter(item["task"] for item in every)
    planned = {task["name"]: task for task in run["tasks"]}
    for name, count in counts.items():
        task = planned.setdefault(name, {"name": name, "samples": 0, "deviations": {}})
        task["samples"] = max(task["samples"], count)
    run["tasks"] = list(planned.values())
    run["arms"].append(entry)
    store.write_run(run)


def _remove(folder: Path) -> None:
    """Take away what an interrupted import of the same arm left."""
    if folder.exists():
        shutil.rmtree(folder)


def _problems(reading: Reading) -> str:
    if not reading.problems:
        return ""
    first = "; ".join(map(str, reading.problems[:5]))
    more = f" … and {len(reading.problems) - 5} more" if len(reading.problems) > 5 else ""
    return f" (malformed: {first}{more})"


def _short(values: Any) -> str:
    text = json.dumps(list(values), ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"
