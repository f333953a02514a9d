"""An arm with distilled indexers, end to end on a random model: it acts, is identified, is refused.

The directories are written by hand here; `distill` makes real ones.
"""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from evalkit.analysis.compare import compare_run, comparison_rows
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.files import file_sha256
from evalkit.dsa.indexer_checkpoint import save_indexer
from evalkit.run.store import RunStore
from tests.checkpoints import save
from tests.command import evalkit

RECIPE = """
model = "{model}"
[engine]
{engine}
[[tasks]]
kind = "needle"
lengths = [160]
depths = [0, 100]
repeats = 3
value_digits = 4
key_adjectives = ["brave", "calm", "eager", "fancy", "giant", "happy"]
key_nouns = ["apple", "arrow", "badge", "banjo", "barrel", "basket"]
max_new_tokens = 6
[[arms]]
name = "baseline"
[[arms]]
name = "undistilled"
retention = "1/4"
[[arms]]
name = "distilled"
{arm}
"""
HF = 'kind = "hf"\ndtype = "float32"'
SCHEDULE = ReuseSchedule.uniform(8, "1/4")


@pytest.fixture
def indexer(tmp_path, checkpoint):
    """Other weights for the indexer of layer 4, large enough to change what is selected."""

    def make(schedule=SCHEDULE, name="indexer", change=lambda tensors: tensors):
        generator = torch.Generator().manual_seed(3)
        stored = load_file(checkpoint / "model.safetensors")
        own = {k: v for k, v in stored.items() if "layers.4.self_attn.indexer." in k}
        assert own
        tensors = {k: torch.randn(v.shape, generator=generator) for k, v in own.items()}
        card = "# card\n"
        save_indexer(tmp_path / name, change(tensors), schedule, base={"model": "tiny"}, card=card)
        return tmp_path / name

    return make


@pytest.fixture
def recipe(tmp_path, checkpoint):
    def write(arm, engine=HF, model=checkpoint):
        path = tmp_path / "recipe.toml"
        path.write_text(RECIPE.format(model=model, engine=engine, arm=arm), encoding="utf-8")
        return path

    return write


def answers(out, arm):
    return {k: row.completion for k, row in RunStore(out).read_samples(arm).items()}


def refusal(capsys, path, out):
    assert evalkit("run", path, "--out", out) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("arm", ['retention = "1/4"\nindexer = "indexer"', 'indexer = "indexer"'])
def test_the_arm_answers_with_its_own_indexers(indexer, recipe, tmp_path, arm):
    directory, out = indexer(), tmp_path / "run"
    assert evalkit("run", recipe(arm), "--out", out) == 0
    assert answers(out, "distilled") != answers(out, "undistilled")
    entry = json.loads((out / "run.json").read_text())["arms"][2]
    assert entry["schedule"]["pattern"] == "FSSSFSSS"
    assert entry["indexer_sha256"] == file_sha256(directory / "indexer.safetensors")
    assert entry["engagement"]["verdict"] == "engaged"
    rows = comparison_rows(compare_run(RunStore(out)))
    assert {row.arm for row in rows} >= {"undistilled", "distilled"}


def test_indexers_equal_to_the_models_own_change_nothing(indexer, recipe, tmp_path, checkpoint):
    stored = load_file(checkpoint / "model.safetensors")
    indexer(change=lambda tensors: {k: stored[k] for k in tensors})
    out = tmp_path / "run"
    assert evalkit("run", recipe('indexer = "indexer"'), "--out", out) == 0
    assert answers(out, "distilled") == answers(out, "undistilled")


def test_what_the_files_hold_identifies_the_arm_not_where_they_lie(
    indexer, recipe, tmp_path, capsys
):
    indexer()
    out = tmp_path / "run"
    assert evalkit("run", recipe('indexer = "indexer"'), "--out", out) == 0
    shutil.copytree(tmp_path / "indexer", tmp_path / "moved")
    assert evalkit("run", recipe('indexer = "moved"'), "--out", out) == 0
    indexer(name="other", change=lambda tensors: {k: -v for k, v in tensors.items()})
    error = refusal(capsys, recipe('indexer = "other"'), out)
    assert "arm distilled.indexer was" in error


def test_another_schedule_is_refused(indexer, recipe, tmp_path, capsys):
    indexer()
    out = tmp_path / "run"
    for arm in ('retention = "1/2"', 'retention = "1/4"\nlag = 1', "lag = 1"):
        error = refusal(capsys, recipe(f'{arm}\nindexer = "indexer"'), out)
        assert "was trained for the schedule FSSSFSSS, not for" in error
    assert not out.exists() or not list(out.glob("arms/*"))


def test_a_model_with_other_layers_is_refused(indexer, recipe, tmp_path, capsys):
    indexer(schedule=ReuseSchedule.uniform(6, "1/2"))
    error = refusal(capsys, recipe('indexer = "indexer"'), tmp_path / "run")
    assert "layers 0-5 (6), this one has them at 0-7 (8)" in error


def _rename(tensors):
    return {k.replace("layers.4", "layers.40"): v for k, v in tensors.items()}


def _cut(tensors):
    return {k: v[..., :-1].contiguous() for k, v in tensors.items()}


def _nan(tensors):
    return {k: v * float("nan") for k, v in tensors.items()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_rename, "the model has no tensor model.layers.40.self_attn.indexer."),
        (_cut, ", the model's is ["),
        (_nan, "contains NaN or infinite values"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(indexer, recipe, tmp_path, capsys, change, words):
    indexer(change=change)
    error = refusal(capsys, recipe('indexer = "indexer"'), tmp_path / "run")
    assert "arm distilled: " in error
    assert words in error


def test_another_model_of_the_same_depth_is_refused(indexer, recipe, tmp_path, capsys):
    indexer()
    wide = save(tmp_path / "wide", index_head_dim=32)
    error = refusal(capsys, recipe('indexer = "indexer"', model=wide), tmp_path / "run")
    assert "the model's is [" in error


def test_missing_and_damaged_files_are_refused(indexer, recipe, tmp_path, capsys):
    directory, out = indexer(), tmp_path / "run"
    error = refusal(capsys, recipe('indexer = "gone"'), out)
    assert "gone/indexer.safetensors: no such file; is this an indexer directory?" in error
    tensors = load_file(directory / "indexer.safetensors")
    save_file({k: v + 1 for k, v in tensors.items()}, directory / "indexer.safetensors")
    error = refusal(capsys, recipe('indexer = "indexer"'), out)
    assert "its content is not what schedule.json was written for" in error
    (directory / "schedule.json").unlink()
    assert "schedule.json: no such file" in refusal(capsys, recipe('indexer = "indexer"'), out)


def test_a_server_cannot_take_them(indexer, recipe, tmp_path, capsys):
    indexer()
    engine = 'kind = "openai_server"\nurls = ["http://127.0.0.1:9"]'
    error = refusal(capsys, recipe('indexer = "indexer"', engine), tmp_path / "run")
    assert "distill export" in error
