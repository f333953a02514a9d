"""`evalkit overlap` on a random checkpoint, and its figures beside quality."""

from __future__ import annotations

import json

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.analysis.overlap_record import MeanInterval, OverlapRecord
from evalkit.analysis.selection_overlap import estimate
from evalkit.report.charts.recall import recall_map
from evalkit.report.panels import overlap as show
from evalkit.run.store import RunStore
from tests.command import evalkit
from tests.run.test_run import ORACLE, RECIPE


def write(path, checkpoint, engine='kind = "hf"\ndtype = "float32"\nprefill_chunk = 64'):
    path.write_text(RECIPE.format(model=checkpoint, engine=engine), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def measured(tmp_path_factory, checkpoint):
    folder = tmp_path_factory.mktemp("overlap")
    recipe = write(folder / "recipe.toml", checkpoint)
    out = folder / "run"
    options = ["--documents", 3, "--rows", 4, "--lengths", "100,200"]
    assert evalkit("overlap", recipe, "--out", out, *options) == 0
    return out, json.loads((out / "overlap.json").read_text())


def test_states_model_data_k_and_metric(measured):
    out, found = measured
    assert found["k"] == 8
    assert found["data"] == "prompts of needle@256"
    assert set(found["metrics"]) == {"jaccard", "selection_recall", "mass_recall"}
    assert [e["length"] for e in found["lengths"]] == [100, 200]
    assert found["lengths"][0]["documents"] == 3
    assert "k = 8, 4 rows per document" in show.heading(OverlapRecord.parse(found))
    assert (out / "plots" / "overlap.svg").stat().st_size > 1000


def test_the_page_draws_every_pair_and_marks_what_arms_read(measured):
    _, found = measured
    page = str(recall_map(OverlapRecord.parse(found)))
    recall = found["lengths"][1]["matrices"]["recall"]
    assert page.count('<td class="score"') == 64
    quarter = [f'"{j} reads {4 * (j // 4)}: {recall[4 * (j // 4)][j]:.2f} (' for j in range(8)]
    assert all(cell in page for cell in quarter)
    assert all("IndexCache 1/4" in page.partition(cell)[2].partition('"')[0] for cell in quarter)
    assert '"0 reads 7: ' in page
    assert "<img" not in page


def test_arms_read_the_matrices(measured):
    _, found = measured
    entry = found["lengths"][1]
    recall = entry["matrices"]["recall"]
    arms = {arm["name"]: arm for arm in entry["arms"]}
    assert arms["baseline"]["selection_recall"]["mean"] == 1.0
    supplied = [recall[4 * (j // 4)][j] for j in range(8) if j % 4]
    quarter = arms["IndexCache 1/4"]
    assert quarter["selection_recall"]["mean"] == pytest.approx(sum(supplied) / 6, abs=1e-3)
    assert quarter["worst_selection_recall"] == pytest.approx(min(supplied), abs=1e-3)
    mass = quarter["mass_recall"]
    assert 0 <= mass["low"] < mass["mean"] < mass["high"] <= 1
    adjacent = [recall[i][i + 1] for i in range(7)]
    assert entry["adjacent"]["recall"]["mean"] == pytest.approx(sum(adjacent) / 7, abs=1e-3)


def test_compare_shows_it_beside_quality(measured, tmp_path, checkpoint, capsys):
    _, found = measured
    recipe = write(tmp_path / "recipe.toml", checkpoint, ORACLE)
    assert evalkit("run", recipe, "--out", tmp_path / "run") == 0
    assert "overlap beside quality" not in capsys.readouterr().out
    (tmp_path / "run" / "overlap.json").write_text(json.dumps(found))
    assert evalkit("compare", tmp_path / "run") == 0
    assert "overlap beside quality" in capsys.readouterr().out
    assert "attention mass" in (tmp_path / "run" / "report.md").read_text()
    grid = show.beside_quality(compare_run(RunStore(tmp_path / "run")))
    assert [row[0] for row in grid.rows] == ["again", "IndexCache 1/4", "MLI k=1"]
    other = json.dumps(found).replace("FSSSFSSS", "FSSSFSSF")
    (tmp_path / "run" / "overlap.json").write_text(other)
    grid = show.beside_quality(compare_run(RunStore(tmp_path / "run")))
    assert [row[0] for row in grid.rows] == ["again", "MLI k=1"]  # another schedule


def test_texts_of_files(tmp_path, checkpoint):
    recipe = write(tmp_path / "recipe.toml", checkpoint)
    text = " ".join(f"word {i}" for i in range(120))
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.jsonl").write_text(json.dumps({"context": text}) + "\n")
    options = ["--text", tmp_path / "a.txt", "--text", tmp_path / "b.jsonl", "--rows", 2]
    assert evalkit("overlap", recipe, "--out", tmp_path / "out", *options) == 0
    found = json.loads((tmp_path / "out" / "overlap.json").read_text())
    assert found["data"] == "a.txt, b.jsonl"
    assert len(found["lengths"]) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--lengths", "16"], "8 keys are selected"),
        (["--lengths", "9000"], "the longest document has"),
        (["--lengths", "many"], "whole numbers"),
        (["--task", "nothing"], "not a task of the recipe"),
        (["--text", "no/such.txt"], "cannot be read"),
        (["--set", "engine.kind=oracle"], "engine.kind = hf"),
    ],
)
def test_refusals(tmp_path, checkpoint, capsys, options, words):
    recipe = write(tmp_path / "recipe.toml", checkpoint, 'kind = "hf"')
    assert evalkit("overlap", recipe, "--out", tmp_path / "out", "--documents", 1, *options) == 2
    assert words in capsys.readouterr().err


def test_interval_over_documents():
    assert estimate([0.5]) == MeanInterval(0.5, None, None)
    found = estimate([0.4, 0.5, 0.6])
    assert found.mean == pytest.approx(0.5)
    assert found.high - found.mean == pytest.approx(4.3027 * 0.1 / 3**0.5, abs=1e-4)
