"""An arm is one run of one model: folders of several are refused and named."""

import csv
import json

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.importers import import_predictions
from evalkit.run.store import RunStore
from tests.importers.files import lines, qa, ruler, sample_log

DATE, LATER = "2026-01-01T00-00-00.1", "2026-02-01T00-00-00.1"
DOC = {"answers": ["x"], "length": 1}


def refused(format_, path, store, says):
    with pytest.raises(EvalkitError, match=says):
        import_predictions(format_, path, "a", store)
    assert not store.exists


def test_longbench_of_two_models_with_other_tasks(tmp_path, store):
    """No task twice, so that nothing but the folders tells it."""
    lines(tmp_path / "pred" / "m1" / "qasper.jsonl", [qa(0)])
    lines(tmp_path / "pred" / "m2" / "musique.jsonl", [qa(0)])
    says = r"2 runs: m1 \(m1/qasper.jsonl\), m2 \(m2/musique.jsonl\); .* name the folder"
    refused("longbench", tmp_path / "pred", store, says)
    import_predictions("longbench", tmp_path / "pred" / "m1", "a", store)


def test_longbench_and_its_even_lengths_are_one_run(tmp_path, store):
    for folder in ("pred", "pred_e"):
        lines(tmp_path / folder / "m1" / "qasper.jsonl", [qa(0)])
    report = import_predictions("longbench", tmp_path, "a", store)
    assert list(report.tasks) == ["longbench/qasper", "longbench-e/qasper@0-4k"]
    lines(tmp_path / "pred_e" / "m2" / "musique.jsonl", [qa(0)])
    refused("longbench", tmp_path, RunStore(tmp_path / "b"), "files of 2 runs")


def test_ruler_of_two_models_with_other_lengths(tmp_path, store):
    lines(tmp_path / "m1" / "synthetic" / "4096" / "pred" / "vt.jsonl", [ruler(0)])
    lines(tmp_path / "m1" / "synthetic" / "8192" / "pred" / "vt.jsonl", [ruler(0)])
    assert len(import_predictions("ruler", tmp_path / "m1", "a", store).tasks) == 2
    lines(tmp_path / "m2" / "synthetic" / "16384" / "pred" / "vt.jsonl", [ruler(0)])
    other = RunStore(tmp_path / "b")
    refused("ruler", tmp_path, other, r"2 runs: m1/synthetic \(.*\), m2/synthetic \(")


def test_logs_of_two_models(tmp_path, store):
    """The newest log of a task is not that of another model."""
    lines(tmp_path / "m1" / f"samples_longbench_qasper_{DATE}.jsonl", [sample_log(0, DOC, "x")])
    lines(tmp_path / "m2" / f"samples_longbench_qasper_{LATER}.jsonl", [sample_log(0, DOC, "y")])
    refused("lm_eval", tmp_path, store, r"2 runs: m2 \(.*\), m1 \(")
    assert import_predictions("lm_eval", tmp_path / "m1", "a", store).records == 1


def test_logs_of_two_models_in_one_folder(tmp_path, store):
    for date, model, task in ((DATE, "org/m1", "qasper"), (LATER, "org/m2", "musique")):
        lines(tmp_path / "l" / f"samples_longbench_{task}_{date}.jsonl", [sample_log(0, DOC, "x")])
        results = json.dumps({"model_name": model})
        (tmp_path / "l" / f"results_{date}.json").write_text(results, encoding="utf-8")
    refused("lm_eval", tmp_path / "l", store, r"2 runs: org/m2 \(.*\), org/m1 \(")
    (tmp_path / "l" / f"results_{LATER}.json").write_text("damaged", encoding="utf-8")
    assert import_predictions("lm_eval", tmp_path / "l", "a", store).records == 2


def test_a_log_of_another_length_is_another_cell(tmp_path, store):
    """An older log of a task is left out cell by cell, not as a whole."""

    def log(date, length, said):
        gold = {"outputs": ["12"], "max_length": length}
        rows = [sample_log(i, gold, said) for i in range(2)]
        lines(tmp_path / "l" / f"samples_ruler_vt_{date}.jsonl", rows)

    log(DATE, 1000, "old")
    log(LATER, 500, "new")
    report = import_predictions("lm_eval", tmp_path / "l", "a", store)
    assert {name: task.records for name, task in report.tasks.items()} == {
        "vt@500": 2,
        "vt@1000": 2,
    }
    assert report.notes == ()
    log("2025-01-01", 500, "oldest")
    report = import_predictions("lm_eval", tmp_path / "l", "b", RunStore(tmp_path / "b"))
    assert report.notes == (
        f"vt@500 of samples_ruler_vt_2025-01-01.jsonl is left out: samples_ruler_vt_{LATER}.jsonl"
        " is newer",
    )


def table(path, task):
    path.parent.mkdir(parents=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["task", "answer", "predicted_answer"])
        writer.writeheader()
        writer.writerow({"task": task, "answer": "['1']", "predicted_answer": "1"})


def test_kvpress_of_two_presses_with_other_lengths(tmp_path, store):
    table(tmp_path / "ruler__4096__m__snapkv__0.25" / "predictions.csv", "vt")
    table(tmp_path / "ruler__8192__m__snapkv__0.50" / "predictions.csv", "vt")
    refused("kvpress", tmp_path, store, r"2 runs: m__snapkv__0.25 \(")
    for k, length in enumerate((4096, 8192)):
        folder = tmp_path / "c" / str(k)
        table(folder / "predictions.csv", "vt")
        config = f"model: m\npress_name: snapkv\ncompression_ratio: 0.5\ndata_dir: '{length}'\n"
        (folder / "config.yaml").write_text(config, encoding="utf-8")
    assert len(import_predictions("kvpress", tmp_path / "c", "a", store).tasks) == 2
    (tmp_path / "c" / "1" / "config.yaml").write_text(config.replace("0.5", "0.9"))
    other = RunStore(tmp_path / "b")
    refused("kvpress", tmp_path / "c", other, r"press_name snapkv, compression_ratio 0.9 \(")
