"""Imported samples that share a text are one unit, as in a run of our own, or a note says so."""

from __future__ import annotations

import csv
import json
from collections import Counter

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.data.documents import Pool, Question
from evalkit.importers import import_predictions
from evalkit.importers.common import clusters
from evalkit.report.tables import notes
from evalkit.run.merge import open_runs
from evalkit.run.scoring import score_run
from evalkit.run.store import RunStore
from tests.importers.files import lines, needle, qa, ruler, sample_log, v2
from tests.paths import SHARED


def units(store):
    """Clusters in the order of the samples, each as the first letter it occurs under."""
    letters = {}
    return "".join(
        letters.setdefault(item.cluster, chr(ord("a") + len(letters)))
        for item in store.read_items().values()
    )


def told(store, arm="a"):
    return store.read_run().arm(arm).imported.unclustered


def test_longbench_by_length_in_words(tmp_path, store):
    rows = [qa(i, length=n) for i, n in enumerate((900, 900, 901, 900, 77))]
    import_predictions("longbench", lines(tmp_path / "narrativeqa.jsonl", rows), "a", store)
    assert (units(store), told(store)) == ("aabac", ())


def test_longbench_by_the_text_in_the_record(tmp_path, store):
    rows = []
    for i, text in enumerate(("one", "one", "two", "one")):
        doc = qa(i, length=5) | {"context": text}
        rows.append(sample_log(i, {k: v for k, v in doc.items() if k != "pred"}, "x"))
    lines(tmp_path / "log" / "samples_longbench_qasper_2026.jsonl", rows)
    import_predictions("lm_eval", tmp_path / "log", "a", store)
    assert units(store) == "aaba"
    cluster = next(iter(store.read_items().values())).cluster
    assert cluster.startswith("longbench/qasper/context ")  # as a run of our own calls it


def test_longbench_by_the_pinned_file(tmp_path, store, monkeypatch):
    """Lengths differ and texts are equal, or the other way round: the data know."""
    rows = [qa(i, length=5) for i in range(4)]
    texts = ("one", "two", "one", "one")
    data = [
        {"input": "?", "context": text, "answers": row["answers"], "length": 5, "_id": str(i)}
        | {"dataset": "qasper", "language": "en", "all_classes": None}
        for i, (text, row) in enumerate(zip(texts, rows, strict=True))
    ]
    lines(tmp_path / "data" / "qasper.jsonl", data)
    monkeypatch.setattr(clusters, "pinned_file", lambda _: tmp_path / "data")
    rows[3]["answers"] = ["not the gold of the pinned record"]
    import_predictions("longbench", lines(tmp_path / "qasper.jsonl", rows), "a", store)
    assert units(store) == "abac"
    assert list(store.read_items().values())[3].cluster == "longbench/qasper/length 5"


def test_nothing_tells_and_a_note_says_so(tmp_path, store):
    rows = [{k: v for k, v in qa(i).items() if k != "length"} for i in range(4)]
    path = lines(tmp_path / "qasper.jsonl", rows)
    for arm in "ab":
        import_predictions("longbench", path, arm, store)
    assert units(store) == "abcd"
    assert told(store) == told(store, "b") == ("longbench/qasper",)
    score_run(store)
    said = [line for line in notes(compare_run(store)) if "share a text" in line]
    assert said == [
        "imported without a word on which samples of longbench/qasper share a text: each counts by"
        " itself, and intervals may be too narrow: a, b"
    ]
    lines(path, [qa(i, length=7) for i in range(4)])  # a third arm tells it for all
    import_predictions("longbench", path, "c", store)
    score_run(store)
    assert units(store) == "aaaa"
    assert not [line for line in notes(compare_run(store)) if "share a text" in line]


def test_longbench_v2_by_the_text_in_the_record(tmp_path, store):
    rows = [v2(i, context=text) for i, text in enumerate(("one", "two", "one \ud800", "two"))]
    import_predictions("longbench_v2", lines(tmp_path / "m.jsonl", rows), "a", store)
    assert (units(store), told(store)) == ("abcb", ())


def test_longbench_v2_without_texts_and_with_the_pinned_file(tmp_path, store, monkeypatch):
    path = lines(tmp_path / "m.jsonl", [v2(i) for i in range(3)])
    import_predictions("longbench_v2", path, "a", store)
    assert (units(store), told(store)) == ("abc", ("longbench-v2/0shot",))
    choices = {f"choice_{c}": c for c in "ABCD"} | {"sub_domain": "x", "question": "?"}
    whole = [v2(i) | choices | {"context": text} for i, text in enumerate(("one", "two", "one"))]
    data = tmp_path / "data.json"
    data.write_text(json.dumps(whole), encoding="utf-8")
    monkeypatch.setattr(clusters, "pinned_file", lambda _: data)
    import_predictions("longbench_v2", path, "b", store)  # what is known now holds for both arms
    assert units(store) == "aba"


def test_all_depths_of_a_length_are_one_haystack(tmp_path, store):
    rows = [needle(length, depth) for length in (1000, 2000) for depth in (0, 50, 100)]
    import_predictions("needle_kamradt", lines(tmp_path / "n.jsonl", rows), "a", store)
    assert (units(store), told(store)) == ("aaabbb", ())
    folder = tmp_path / "press"
    folder.mkdir()
    with (folder / "predictions.csv").open("w", newline="") as file:
        out = csv.DictWriter(file, ["needle", "needle_depth", "predicted_answer"])
        out.writeheader()
        text = rows[0]["needle"]
        out.writerows({"needle": text, "needle_depth": d, "predicted_answer": "x"} for d in (0, 9))
    (folder / "config.yaml").write_text("max_context_length: 3000\n", encoding="utf-8")
    press = RunStore(tmp_path / "other")
    import_predictions("kvpress", folder, "a", press)
    assert units(press) == "aa"


def test_questions_on_one_paragraph_by_the_pinned_documents(tmp_path, store, monkeypatch):
    path = lines(tmp_path / "4096" / "qa_1.jsonl", [ruler(i) for i in range(4)])
    lines(tmp_path / "4096" / "vt.jsonl", [ruler(i) for i in range(2)])
    import_predictions("ruler", path.parent, "a", store)
    assert told(store) == ("qa_1@4096",)  # vt makes a text of its own for every sample
    questions = [Question("?", (f"{1000 + i}",), (g,)) for i, g in enumerate((7, 7, 8, 7))]
    questions[3] = Question("?", ("another answer",), (7,))
    monkeypatch.setattr(clusters, "_has_documents", lambda: True)
    monkeypatch.setattr(clusters.documents, "pool", lambda _: Pool(tuple(questions), ("x",) * 9))
    other = RunStore(tmp_path / "other")
    import_predictions("ruler", path, "a", other)
    assert units(other) == "aabc"
    assert told(other) == ("qa_1@4096",)


def test_a_run_of_our_own_tells_the_units_when_merged(tmp_path, store):
    """Whole texts for the samples that it has, whatever the import could make out."""
    rows = [qa(i, length=5 + i) for i in range(4)]
    import_predictions("longbench", lines(tmp_path / "qasper.jsonl", rows), "theirs", store)
    other = RunStore(tmp_path / "own")
    import_predictions("longbench", tmp_path / "qasper.jsonl", "ours", other)
    run = other.read_run()
    entry = {k: v for k, v in run.arms[0].stored.items() if k != "imported"}
    stored = {k: v for k, v in run.stored.items() if k != "identity"} | {"arms": [entry]}
    other.write_run(type(run).parse(stored))
    items = other.path / "items.jsonl"
    for i, text in enumerate("aabb"):
        items.write_text(
            items.read_text().replace(f"qasper/length {5 + i}", f"qasper/context {text}")
        )
    for one in (store, other):
        score_run(one)
    for paths in ([store.path, other.path], [other.path, store.path]):
        merged = open_runs(paths)
        assert units(merged) == "aabb"
        assert (
            compare_run(merged, "ours").result.row("theirs", "longbench/qasper").result.n_clusters
            == 2
        )


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")
def test_published_answers(store, tmp_path):
    data = SHARED / "data"
    source = data / "longbench_v2" / "predictions_exaone-3.5-32b.jsonl"
    import_predictions("longbench_v2", source, "exaone", store)
    assert len({item.cluster for item in store.read_items().values()}) == 445
    other = RunStore(tmp_path / "narrative")
    folder = data / "longbench_predictions" / "llama3-8b-instruct"
    import_predictions("longbench", folder / "narrativeqa.jsonl", "llama", other)
    sizes = Counter(item.cluster for item in other.read_items().values())
    assert (len(sizes), max(sizes.values())) == (125, 5)
