"""Which sample a line without an id answers: by its gold and length, not by its place."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.core.errors import EvalkitError
from evalkit.importers import import_predictions
from evalkit.importers.common import clusters
from evalkit.importers.common.join import join
from evalkit.importers.common.predictions import Prediction, PredictionSet, SourceLocation
from evalkit.importers.common.questions import Question
from tests.importers.files import lines, qa, trec
from tests.paths import SHARED

RUNS = SHARED / "data" / "longbench_predictions"
FULL, REUSED = "llama3-8b-instruct", "llama3-8b-instruct_S21-22-23-24"


def bring(tmp_path, store, arm, rows, task="qasper", **more):
    path = lines(tmp_path / arm / f"{task}.jsonl", rows)
    return import_predictions("longbench", path, arm, store, **more)


def said(store, arm):
    return {i.rpartition("/")[2]: r.completion for i, r in store.read_samples(arm).items()}


def pin(tmp_path, monkeypatch, rows, task="qasper"):
    """Pinned data whose questions are those of some lines."""
    data = [
        {"input": "?", "context": f"text {i}", "answers": row["answers"], "length": row["length"]}
        | {"dataset": task, "language": "en", "all_classes": row["all_classes"], "_id": f"h{i}"}
        for i, row in enumerate(rows)
    ]
    lines(tmp_path / "pinned" / f"{task}.jsonl", data)
    monkeypatch.setattr(clusters, "pinned_file", lambda _: tmp_path / "pinned")


@pytest.mark.parametrize("pinned", [False, True])
def test_runs_written_by_several_processes(tmp_path, store, monkeypatch, pinned):
    """Every process appends what it has answered: each file has an order of its own."""
    rows = [qa(i) for i in range(200)]
    if pinned:
        pin(tmp_path, monkeypatch, rows)
    for seed, arm in enumerate(("one", "two")):
        mixed = random.Random(seed).sample([qa(i, f"{arm} {i}") for i in range(200)], 200)
        report = bring(tmp_path, store, arm, mixed)
        assert (report.records, report.coverage) == (200, ())
    assert any("not in the order of the samples" in note for note in report.notes)
    items = store.read_items()
    for name in ("one", "two"):
        for i, row in store.read_samples(name).items():
            assert items[i].references == (row.completion.replace(name, "answer"),)
    if pinned:
        assert items["longbench/qasper/7"].references == ("answer 7",)


def test_lines_moved_among_equal_golds_are_told_by_their_length(tmp_path, store):
    rows = [trec(i, f"said {i}") for i in range(20)]
    bring(tmp_path, store, "full", rows, "trec")
    moved = [*rows[10:], *rows[:10]]
    assert bring(tmp_path, store, "moved", moved, "trec").coverage == ()
    assert said(store, "moved") == said(store, "full")


def test_lengths_of_other_data_are_refused_with_the_line(tmp_path, store):
    bring(tmp_path, store, "full", [trec(i) for i in range(20)], "trec")
    other = [trec(i) | {"length": 7 if i == 3 else 1000 + i} for i in range(20)]
    with pytest.raises(EvalkitError, match=r"trec\.jsonl:4: the length is 7, but .* is 1003"):
        bring(tmp_path, store, "other", other, "trec")


def test_lines_that_nothing_tells_apart_keep_their_order_or_are_refused(tmp_path, store):
    """No length, and equal golds: in the order of the samples only."""
    kinds = ["Food", "Date", "Food", "Food", "Date", "Date"]
    rows = [
        {k: v for k, v in trec(i, f"said {i}").items() if k != "length"} | {"answers": [kind]}
        for i, kind in enumerate(kinds)
    ]
    bring(tmp_path, store, "full", rows, "trec")
    assert bring(tmp_path, store, "same", rows, "trec").notes == ()
    with pytest.raises(EvalkitError, match=r"trec\.jsonl:1: .* cannot be put in order: 6 of 6"):
        bring(tmp_path, store, "moved", [*rows[1:], rows[0]], "trec")


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("repeated", [1, 2, 10])
def test_a_restart_that_repeats_lines_and_loses_as_many(
    tmp_path, store, monkeypatch, pinned, repeated
):
    """200 lines as there should be, but not those of 200 questions."""
    rows = [qa(i, f"said {i}") for i in range(200)]
    if pinned:
        pin(tmp_path, monkeypatch, rows)
    else:
        bring(tmp_path, store, "full", rows)
    again = [*rows[:100], *rows[100 - repeated : 200 - repeated]]
    with pytest.raises(EvalkitError, match=f"{repeated} of 200 samples are missing"):
        bring(tmp_path, store if not pinned else with_full(tmp_path, store, rows), "off", again)
    report = bring(tmp_path, store, "off", again, allow_partial=True)
    assert len(report.tasks["longbench/qasper"].repeated) == repeated
    assert said(store, "off") == {str(i): f"said {i}" for i in range(200 - repeated)}


def with_full(tmp_path, store, rows):
    bring(tmp_path, store, "full", rows)
    return store


def test_a_restart_in_the_first_file_that_is_imported(tmp_path, store):
    """Nothing to hold it against: a stretch that repeats the one before it is no second asking."""
    rows = [qa(i, f"said {i}") for i in range(200)]
    report = bring(tmp_path, store, "off", [*rows[:100], *rows[90:100], *rows[110:]])
    assert report.tasks["longbench/qasper"].repeated[0] == "qasper.jsonl:101"
    assert "longbench/qasper: 190 samples, the benchmark has 200" in report.lines()
    bring(tmp_path, store, "full", rows, allow_partial=True)
    whole, part = store.read_samples("full"), store.read_samples("off")
    assert all(whole[i].completion == part[i].completion for i in part)
    assert len(whole) == 200


def test_lines_that_were_lost_shift_no_other(tmp_path, store):
    rows = [qa(i, f"said {i}") for i in range(50)]
    bring(tmp_path, store, "full", rows)
    bring(tmp_path, store, "part", [*rows[:10], *rows[13:]], allow_partial=True)
    part, full = said(store, "part"), said(store, "full")
    assert part == {i: text for i, text in full.items() if i not in ("10", "11", "12")}


def test_one_bad_task_does_not_lose_the_others(tmp_path, store):
    rows = [qa(i) for i in range(20)]
    for task in ("qasper", "musique"):
        lines(tmp_path / "one" / f"{task}.jsonl", rows)
        lines(tmp_path / "two" / f"{task}.jsonl", rows)
    import_predictions("longbench", tmp_path / "one", "one", store)
    lines(tmp_path / "two" / "musique.jsonl", [qa(i, answers=["else"]) for i in range(20)])
    with pytest.raises(EvalkitError, match=r"musique is left out: musique\.jsonl:1: the answers"):
        import_predictions("longbench", tmp_path / "two", "two", store)
    report = import_predictions("longbench", tmp_path / "two", "two", store, allow_partial=True)
    assert list(report.tasks) == ["longbench/qasper"]
    assert any(line.startswith("longbench/musique is left out: ") for line in report.lines())
    assert len(store.read_samples("two")) == 20


def test_the_same_mixed_file_again_changes_nothing(tmp_path, store):
    rows = [qa(i, "same") for i in range(6)]
    bring(tmp_path, store, "a", [rows[3], rows[1], rows[3], rows[0]])
    assert bring(tmp_path, store, "a", [rows[3], rows[1], rows[3], rows[0]]).unchanged
    with pytest.raises(EvalkitError, match="other content"):
        bring(tmp_path, store, "a", rows)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=12), st.randoms())
@settings(max_examples=60)
def test_any_order_gives_every_line_a_sample_of_its_own_question(pairs, rng):
    """Beside the join, counted: no question gets more lines than it has samples."""
    samples = {f"t/{i}": Question((str(g),), n) for i, (g, n) in enumerate(pairs)}
    mixed = rng.sample(list(samples.values()), len(samples))
    made = [
        Prediction("t", str(i), q.references, "qa_f1", SourceLocation("f", i), meta={"length": n})
        for i, q in enumerate(mixed)
        for n in [q.length]
    ]
    try:
        by_id = join("t", made, samples, PredictionSet())
    except EvalkitError as error:
        assert "cannot be put in order" in str(error)
        return
    assert list(by_id) == list(samples)
    assert {line.text for line in by_id.values()} == {line.text for line in made}
    assert all(Question.of(line) == samples[i] for i, line in by_id.items())


@pytest.mark.shared
@pytest.mark.skipif(not RUNS.is_dir(), reason="needs ../shared/data/longbench_predictions")
def test_published_runs_in_any_order(tmp_path, store):
    """Ten of 4,750 records share gold and length with another one: they may change places."""
    import_predictions("longbench", RUNS / FULL, "full", store)
    import_predictions("longbench", RUNS / REUSED, "reused", store)
    for file in sorted((RUNS / REUSED).glob("*.jsonl")):
        rows = file.read_text(encoding="utf-8").splitlines()
        lines(tmp_path / "mixed" / file.name, random.Random(1).sample(rows, len(rows)))
    report = import_predictions("longbench", tmp_path / "mixed", "mixed", store)
    assert (report.records, report.coverage, report.problems) == (4750, (), ())
    ours, mixed = store.read_samples("reused"), store.read_samples("mixed")
    assert sum(ours[i].completion != mixed[i].completion for i in ours) <= 10
    assert json.dumps(report.notes).count("not in the order of the samples") == 21
