"""Exports: the harness's layout, values by hand, and back again."""

import json
import math

import pytest
import yaml

from evalkit.core.errors import EvalkitError
from evalkit.core.files import append_jsonl
from evalkit.core.records import RunRecord, SampleRow, ScoreRow
from evalkit.exporters import export
from evalkit.importers import import_predictions
from evalkit.run.scoring import score_run
from evalkit.run.store import RunStore
from tests.importers.files import lines, qa, read_jsonl, ruler, trec


@pytest.fixture
def run(tmp_path):
    """Two imported arms; the second has one failed and one wrong answer."""
    store = RunStore(tmp_path / "run")
    for arm in ("full", "IndexCache 1/4"):
        bad = {1: {"pred": None}, 2: {"pred": "wrong"}} if arm != "full" else {}
        rows = [qa(i) | bad.get(i, {}) for i in range(4)]
        lines(tmp_path / arm / "qasper.jsonl", rows)
        lines(tmp_path / arm / "trec.jsonl", [trec(i) for i in range(2)])
        import_predictions("longbench", tmp_path / arm, arm, store)
    for arm in ("full", "IndexCache 1/4"):
        lines(tmp_path / "r" / arm / "4096" / "vt.jsonl", [ruler(i) for i in range(2)])
    score_run(store)
    return store


def test_results_have_the_layout_of_the_harness(run, tmp_path):
    files = export("lm_eval", run, tmp_path / "out", "IndexCache 1/4")
    assert [path.name.split("_2")[0] for path in files] == [
        *("results", "samples_longbench_qasper", "samples_longbench_trec"),
    ]
    results = json.loads(files[0].read_text(encoding="utf-8"))
    scores = [1, 0, 0, 1]
    assert results["results"]["longbench_qasper"] == {
        "name": "longbench_qasper",
        "alias": "longbench_qasper",
        "sample_len": 4,
        "score,none": 0.5,
        "score_stderr,none": pytest.approx(math.sqrt(sum((s - 0.5) ** 2 for s in scores) / 3 / 4)),
    }
    assert results["n-samples"]["longbench_trec"] == {"original": 2, "effective": 2}
    assert results["higher_is_better"]["longbench_qasper"] == {"score": True}
    assert results["model_name"] == "IndexCache 1/4"
    assert set(results["task_hashes"]) == set(results["results"])
    log = read_jsonl(files[1])
    assert [row["score"] for row in log] == scores
    assert log[0]["doc"] == {"id": "longbench/qasper/0", "answers": ["answer 0"], "length": 1000}
    assert (log[0]["resps"], log[0]["filtered_resps"]) == ([["answer 0"]], ["answer 0"])
    assert (log[1]["resps"], log[1]["flags"]) == ([[]], ["error"])
    assert [row["doc_id"] for row in log] == [0, 1, 2, 3]


def test_sample_logs_come_back_as_the_same_arm(run, tmp_path):
    export("lm_eval", run, tmp_path / "out")
    folders = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert len(folders) == 2
    again = import_predictions("lm_eval", tmp_path / "out" / "full", "again", run)
    assert (again.coverage, again.problems) == ((), ())
    assert [row.completion for row in run.read_samples("again").values()] == [
        row.completion for row in run.read_samples("full").values()
    ]
    other = next(name for name in folders if name != "full")
    report = import_predictions("lm_eval", tmp_path / "out" / other, "again 1/4", run)
    assert report.tasks["longbench/qasper"].errors == 1
    score_run(run)
    assert {i: row.score for i, row in run.read_scores("again 1/4").items()} == {
        i: row.score for i, row in run.read_scores("IndexCache 1/4").items()
    }


def test_ruler_tasks_have_one_metric_for_every_length(tmp_path):
    store = RunStore(tmp_path / "run")
    for length in (4096, 8192):
        rows = [ruler(i, "" if length > 5000 and i else None) for i in range(2)]
        lines(tmp_path / "p" / str(length) / "vt.jsonl", rows)
    import_predictions("ruler", tmp_path / "p", "a", store)
    score_run(store)
    files = export("lm_eval", store, tmp_path / "out")
    cell = json.loads(files[0].read_text(encoding="utf-8"))["results"]["ruler_vt"]
    assert (cell["4096,none"], cell["8192,none"], cell["sample_len"]) == (1.0, 0.5, 4)
    log = read_jsonl(files[1])
    assert [row["doc"]["max_length"] for row in log] == [4096, 4096, 8192, 8192]
    assert log[3]["8192"] == 0


def generated(tmp_path, scores):
    """A run of our own tasks with these scores."""
    store = RunStore(tmp_path / "own")
    task = "graphwalk_parents@512"
    items = [
        {
            "sample_id": f"{task}/{i}",
            "task": task,
            "metric": "set_f1",
            "references": ["a1"],
            "cluster": f"{task}/{i}",
            "meta": {"length": 512},
        }
        for i in range(len(scores))
    ]
    append_jsonl(store.path / "items.jsonl", items)
    arm = {"name": "full", "model": "/home/someone/models/tiny-dsa"}
    tasks = [{"name": task, "samples": len(scores), "deviations": {}}]
    store.write_run(
        RunRecord.parse({"arms": [arm, {"name": "not yet"}], "tasks": tasks, "recipe": {}})
    )
    rows = [
        {
            "sample_id": item["sample_id"],
            "task": task,
            "completion": "x",
            "finish_reason": "stop",
            "prompt_sha256": None,
        }
        for item in items
    ]
    store.add_samples("full", [SampleRow.parse(row) for row in rows])
    store.write_scores(
        "full",
        [ScoreRow(f"{task}/{i}", task, "set_f1", s, "x") for i, s in enumerate(scores)],
    )
    return store


def test_graph_walks_have_both_metrics_and_paths_stay_here(tmp_path):
    store = generated(tmp_path, [1.0, 0.5, 0.8, 1.0])
    files = export("lm_eval", store, tmp_path / "out")
    text = files[0].read_text(encoding="utf-8")
    cell = json.loads(text)["results"]["graphwalk_parents@512"]
    assert cell["set_f1,none"] == pytest.approx(0.825)
    assert cell["set_exact,none"] == 0.5
    assert "/home" not in text
    assert json.loads(text)["config"]["model_args"] == {"pretrained": "tiny-dsa"}
    single = generated(tmp_path / "one", [1.0])
    files = export("lm_eval", single, tmp_path / "out")
    cell = json.loads(files[0].read_text(encoding="utf-8"))["results"]["graphwalk_parents@512"]
    assert cell["set_f1_stderr,none"] == "N/A"


def test_model_cards_are_read_by_the_hub_library(run, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    from huggingface_hub.repocard_data import model_index_to_eval_results

    files = export("model_card", run, tmp_path / "out", "IndexCache 1/4")
    index, entries = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in files)
    name, results = model_index_to_eval_results(index["model-index"])
    assert name == "IndexCache 1/4"
    qasper = next(r for r in results if r.dataset_config == "qasper")
    assert (qasper.metric_type, qasper.metric_value) == ("f1", 50.0)
    assert qasper.dataset_type == "zai-org/LongBench"
    assert qasper.metric_args == {"samples": 4, "metric": "qa_f1", "stderr": 28.87, "failed": 1}
    data = hub.ModelCardData(model_name=name, eval_results=results)
    assert "qasper" in data.to_yaml()
    parsed = hub.parse_eval_result_entries(entries)
    assert [(e.dataset_id, e.task_id, e.value) for e in parsed] == [
        ("zai-org/LongBench", "qasper", 50.0),
        ("zai-org/LongBench", "trec", 100.0),
    ]


def test_generated_tasks_are_not_said_to_be_on_the_hub(tmp_path):
    store = generated(tmp_path, [1.0, 0.0])
    (index,) = export("model_card", store, tmp_path / "out")
    data = yaml.safe_load(index.read_text(encoding="utf-8"))["model-index"][0]
    assert data["name"] == "tiny-dsa (full)"
    assert data["results"][0]["dataset"] == {
        "name": "graphwalk_parents@512",
        "type": "graphwalk_parents",
        "config": "graphwalk_parents@512",
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("lm_evel",), r"unknown format lm_evel; did you mean lm_eval\?"),
        (("lm_eval", "c"), r"no arm c in .* \(full, not yet\)"),
        (("lm_eval", "not yet"), "no scores of not yet: run evalkit score"),
    ],
)
def test_mistakes_are_named(tmp_path, arguments, says):
    store = generated(tmp_path, [1.0])
    format_, *arm = arguments
    with pytest.raises(EvalkitError, match=says):
        export(format_, store, tmp_path / "out", *arm)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(EvalkitError, match="cannot be written"):
        export("lm_eval", generated(tmp_path, [1.0]), tmp_path / "file")
