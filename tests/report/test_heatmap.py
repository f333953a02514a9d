"""Heat maps: the numbers in them, and files that are there and equal for equal runs."""

import numpy as np
import pytest

from evalkit.core.errors import EvalkitError
from evalkit.core.files import append_jsonl
from evalkit.core.records import ItemRow, RunRecord, SampleRow, ScoreRow
from evalkit.report.plots.heatmap import draw, draw_difference, heat, save, sections, write
from evalkit.run.store import RunStore

LENGTHS, DEPTHS = (1000, 2000, 4000), (0.0, 50.0, 100.0)


def item(task, index, length, depth):
    return {
        "sample_id": f"{task}/{index}",
        "task": task,
        "metric": "needle_phrases",
        "references": ["x"],
        "cluster": f"{task}/{index}",
        "meta": {"length": length, "depth": depth},
    }


@pytest.fixture
def run(tmp_path):
    """Two repeats a cell; arm b fails at half the depth of 4 000; one cell has no answer in it."""
    store = RunStore(tmp_path)
    items = [
        item(f"needle@{length}", 3 * k + d, length, depth)
        for length in LENGTHS
        for k in range(2)
        for d, depth in enumerate(DEPTHS)
    ]
    items.append(item("vt@4096", 0, 4096, None))
    append_jsonl(tmp_path / "items.jsonl", items)
    store.write_run(
        RunRecord.parse({"arms": [{"name": "a"}, {"name": "b 1/4"}], "tasks": [], "recipe": {}})
    )
    for arm in ("a", "b 1/4"):
        scores = []
        for row in items:
            meta = row["meta"]
            if (meta["length"], meta["depth"]) == (1000, 100.0):
                continue
            bad = arm != "a" and meta["length"] == 4000 and meta["depth"] == 50
            first = row["sample_id"].endswith("/1")
            value = 0.0 if bad and first else 1.0
            scores.append(ScoreRow(row["sample_id"], row["task"], "needle_phrases", value, ""))
        answers = [SampleRow(s.sample_id, s.task, None, None, None, "", "stop") for s in scores]
        store.add_samples(arm, answers)
        store.write_scores(arm, scores)
    return store


def test_means_by_length_and_depth(run):
    items = run.read_items()
    found = sections(items)
    assert list(found) == ["needle"]
    own = heat("needle", found["needle"], items, run.read_scores("b 1/4"))
    assert (own.lengths, own.depths, own.unit) == (LENGTHS, DEPTHS, "tokens")
    expected = np.ones((3, 3))
    expected[1, 2] = 0.5
    expected[2, 0] = np.nan
    np.testing.assert_array_equal(own.scores, expected)
    assert own.counts.tolist() == [[2, 2, 2], [2, 2, 2], [0, 2, 2]]


def test_random_depths_are_put_together_in_tenths():
    rows = [item("niah@512chars", i, 512, 100 * i / 99) for i in range(100)]
    items = {row["sample_id"]: ItemRow.parse(row) for row in rows}
    scores = {
        i: ScoreRow(i, row.task, row.metric, float(row.meta["depth"] > 50), "")
        for i, row in items.items()
    }
    own = heat("niah", list(items), items, scores)
    assert own.depths == tuple(range(5, 100, 10))
    assert own.counts.sum() == 100
    assert own.scores[:, 0].tolist() == [0] * 5 + [1] * 5
    assert own.unit == "characters"


def test_files_for_every_arm_and_the_difference(run):
    files = [path.name for path in write(run)]
    slug = files[2].removeprefix("heatmap-needle-").removesuffix(".png")
    assert files == [
        "heatmap-needle-a.png",
        "heatmap-needle-a.svg",
        f"heatmap-needle-{slug}.png",
        f"heatmap-needle-{slug}.svg",
        f"heatmap-needle-{slug}-minus-a.png",
        f"heatmap-needle-{slug}-minus-a.svg",
    ]
    for path in (run.path / "plots").iterdir():
        start = path.read_bytes()[:5]
        assert start == (b"\x89PNG\r" if path.suffix == ".png" else b"<?xml")


def test_an_unknown_baseline_is_refused(run):
    with pytest.raises(EvalkitError, match=r"baseline c: no such arm \(a, b 1/4\)"):
        write(run, "c")


def test_a_run_without_depths_has_no_maps(tmp_path):
    store = RunStore(tmp_path)
    append_jsonl(tmp_path / "items.jsonl", [item("vt@512", i, 512, None) for i in range(3)])
    store.write_run(RunRecord.parse({"arms": [{"name": "a"}], "tasks": [], "recipe": {}}))
    assert write(store) == []


def test_what_the_pictures_say(run, tmp_path):
    items = run.read_items()
    ids = sections(items)["needle"]
    base, own = (heat("needle", ids, items, run.read_scores(arm)) for arm in ("a", "b 1/4"))
    figure = draw(own, "b 1/4")
    axes = figure.axes[0]
    assert axes.get_title() == "needle: b 1/4\nsamples per cell: 2"
    assert axes.get_xlabel() == "length (tokens)"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1K", "2K", "4K"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "50", "100"]
    shown = [text.get_text() for text in axes.texts]
    assert shown == ["×", "100", "100", "100", "100", "100", "50", "100", "100"]
    difference = draw_difference(own, base, "b 1/4", "a")
    shown = [text.get_text() for text in difference.axes[0].texts]
    assert shown == ["×", "0", "0", "0", "0", "0", "-50", "0", "0"]
    again = draw_difference(own, base, "b 1/4", "a")
    one, two = save(difference, tmp_path / "x"), save(again, tmp_path / "y")
    assert [path.name for path in one] == ["x.png", "x.svg"]
    assert [a.read_bytes() == b.read_bytes() for a, b in zip(one, two, strict=True)] == [True] * 2
