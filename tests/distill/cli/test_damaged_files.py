"""Files that are damaged, of another kind, or that no disk takes: one line, exit code 2."""

from __future__ import annotations

import json
import resource
import shutil

import pytest
import torch

from distill.layerwise.tensor_store import TensorStore
from tests.distill.bases import indexers, sharded
from tests.distill.cli.commands import distill, write_recipe
from tests.distill.retrofit.dense_models import save_dense

TEXT = "all the words of the text stand here again and again " * 40


def one_line(capsys, words, *command):
    """The command ends with exit code 2 and one line that holds some words."""
    capsys.readouterr()
    assert distill(*command) == 2
    lines = [n for n in capsys.readouterr().err.splitlines() if n.startswith("distill: ")]
    assert len(lines) == 1
    assert words in lines[0], lines


@pytest.fixture(scope="module")
def ran(tmp_path_factory, checkpoint):
    """(recipe, directory) of a finished run."""
    folder = tmp_path_factory.mktemp("ran")
    recipe = write_recipe(folder, checkpoint)
    assert distill("train", recipe, "--out", folder / "run", "--save-anyway") == 0
    return recipe, folder / "run"


@pytest.fixture
def run(ran, tmp_path):
    """The same, to be damaged."""
    shutil.copytree(ran[1], tmp_path / "run")
    return ran[0], tmp_path / "run"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "{}",
        lambda text: json.dumps(json.loads(text) | {"counts": 3}),
        lambda text: json.dumps({"identity": json.loads(text)["identity"]}),
    ],
    ids=["empty", "truncated", "list", "no keys", "counts", "no hash"],
)
def test_data_json(run, capsys, damage):
    recipe, out = run
    path = out / "data" / "data.json"
    path.write_text(damage(path.read_text()))
    one_line(capsys, f"{path}: damaged, remove {out / 'data'}", "data", recipe, "--out", out)


@pytest.mark.parametrize(
    "change",
    [
        {"progress": None},
        {"progress": {"choices": 3}},
        {"sha256": 4},
        {"step": None},
        {"best": "low"},
        {"choices": [{"layer": 4}]},
        {"after": {"recall": "high"}},
        {"first_layer": []},
    ],
    ids="-".join,
)
def test_the_state_of_a_run(run, capsys, change):
    recipe, out = run
    path = sorted((out / "state").iterdir())[-1] / "state.json"
    record = json.loads(path.read_text())
    if change.keys() & record["progress"].keys() and "sha256" not in change:
        change = {"progress": record["progress"] | change}
    path.write_text(json.dumps(record | change))
    one_line(capsys, f"{path}: damaged: ", "train", recipe, "--out", out)
    path.write_bytes(b"\xff\xfe{")
    one_line(capsys, f"{path}: damaged: ", "train", recipe, "--out", out)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b'{"text": "one"}\n{"text": "tw\n', "a.jsonl:2: not JSON"),
        ("a.jsonl", b'\n{"text": 3}\n', "a.jsonl:2 has no text field text"),
        ("a.jsonl", b'{"text": "caf\xe9"}\n', "a.jsonl: not UTF-8 (byte"),
        ("a.json", b'{\n "text": "one"\n}', "a.json:1: not JSON"),
        ("a.txt", b"caf\xe9 " * 40, "a.txt: not UTF-8 (byte 3)"),
        ("a.parquet", b"PAR1 no", "a.parquet: not a parquet file"),
        ("a.csv", b"text\none\n", "a.csv: use .txt, .jsonl or .parquet"),
    ],
)
def test_text(checkpoint, tmp_path, capsys, name, content, words):
    (tmp_path / name).write_bytes(content)
    recipe, out = write_recipe(tmp_path, checkpoint), tmp_path / "run"
    change = f'data.source={{kind = "text", paths = ["{name}"]}}'
    one_line(capsys, words, "data", recipe, "--out", out, "--set", change)
    assert not (out / "data" / "data.json").exists()


def test_prompts_to_be_excluded(checkpoint, tmp_path, capsys):
    (tmp_path / "prompts.jsonl").write_text("{\n")
    recipe = write_recipe(tmp_path, checkpoint)
    change = 'data.exclude=["prompts.jsonl"]'
    words = "prompts.jsonl:1: not JSON"
    one_line(capsys, words, "data", recipe, "--out", tmp_path / "run", "--set", change)


@pytest.mark.parametrize("command", ["train", "oracle", "layerwise"])
@pytest.mark.parametrize("valid", [True, False])
def test_a_pickled_checkpoint(checkpoint, tmp_path, capsys, command, valid):
    model = tmp_path / "model"
    shutil.copytree(checkpoint, model)
    (model / "model.safetensors").unlink()
    if valid:
        torch.save({"lm_head.weight": torch.zeros(2)}, model / "pytorch_model.bin")
    else:
        (model / "pytorch_model.bin").write_bytes(b"\x80\x04no")
    recipe = write_recipe(tmp_path, model)
    one_line(capsys, f"{model}: no safetensors files", command, recipe, "--out", tmp_path / "run")


@pytest.mark.parametrize("command", ["train", "layerwise"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_checkpoint_that_is_cut_off(checkpoint, tmp_path, capsys, command, name):
    model = tmp_path / "model"
    shutil.copytree(checkpoint, model)
    (model / name).write_bytes((model / name).read_bytes()[:50])
    one_line(capsys, str(model), command, write_recipe(tmp_path, model), "--out", tmp_path / "run")


def test_a_dense_model_that_is_a_damaged_pickle(tmp_path, capsys):
    model = tmp_path / "dense"
    save_dense(model)
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(b"\x80\x04no")
    out = tmp_path / "out"
    one_line(capsys, f"model {model}: cannot be loaded", "retrofit", model, "--out", out)


@pytest.fixture
def full_disk():
    """Files of this process end after 4 KiB, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(size=4096):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    yield fill
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_under_the_text(checkpoint, tmp_path, capsys, full_disk):
    recipe, out = write_recipe(tmp_path, checkpoint), tmp_path / "run"
    full_disk(256)
    one_line(capsys, "cannot be written", "data", recipe, "--out", out)
    assert list((out / "data").iterdir()) == []


@pytest.mark.parametrize("command", ["train", "layerwise"])
def test_a_full_disk_under_a_run(ran, checkpoint, tmp_path, capsys, full_disk, command):
    recipe, out = ran[0], tmp_path / "run"
    shutil.copytree(ran[1] / "data", out / "data")
    full_disk()
    one_line(capsys, "cannot be written", command, recipe, "--out", out)
    assert not (out / "indexer").exists()


def test_a_full_disk_under_the_indexers(run, capsys, full_disk):
    recipe, out = run
    shutil.rmtree(out / "indexer")
    full_disk()
    words = f"{out / 'indexer'}: cannot be written"
    one_line(capsys, words, "train", recipe, "--out", out, "--save-anyway")
    assert list((out / "indexer").iterdir()) == []


def test_a_full_disk_under_an_export(tmp_path, capsys, full_disk):
    base, model = sharded(tmp_path / "base")
    indexers(tmp_path / "indexer", model, base)
    full_disk()
    words = f"{tmp_path / 'out'}: cannot be written"
    command = ("export", tmp_path / "indexer", "--base", base, "--out", tmp_path / "out", "--copy")
    one_line(capsys, words, *command)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["base", "indexer"]


def test_a_full_disk_under_hidden_states(tmp_path, full_disk):
    full_disk()
    with pytest.raises(Exception, match="with room there the same command goes on"):
        TensorStore(tmp_path).put("a", x=torch.zeros(4096))
