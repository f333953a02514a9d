"""NaN and infinite values stop every command with the place named, and nothing is saved."""

from __future__ import annotations

import math
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from distill.init.ridge_regression import Regression
from distill.layerwise.layer_loader import Layer
from tests.distill.cli.commands import distill, write_recipe
from tests.distill.retrofit.dense_models import save_dense
from tests.dsa.tiny import build

SEARCH = """
model = "{model}"
dtype = "float32"
retention = "1/2"
{more}
[data]
source = {{ kind = "tiny" }}
length = 48
train = 4
held_out = 2
calibration = 2
shortest = 24
"""
COMMANDS = ("train", "layerwise", "oracle", "search")
RECIPES_OF = {"search": "search.toml"}


def kinds():
    """One tensor of every kind: of layer 4, which is full at 1/4, where it has it."""
    by_kind = {}
    for name in build("deepseek_v32").state_dict():
        kind = re.sub(r"\d+", "*", name)
        if kind not in by_kind or ".layers.4." in name:
            by_kind[kind] = name
    return sorted(by_kind.values())


@pytest.fixture(scope="module")
def data(tmp_path_factory, checkpoint):
    """The text of both recipes, packed once."""
    folder = tmp_path_factory.mktemp("data")
    assert distill("data", write_recipe(folder, checkpoint), "--out", folder / "run") == 0
    return folder / "run" / "data"


def run(command, folder, model, data, capsys, *changes):
    """(exit code, the one line of the error) of a command in a fresh directory."""
    out = folder / f"run-{command}"
    shutil.copytree(data, out / "data")
    recipe = write_recipe(folder, model)
    (folder / "search.toml").write_text(SEARCH.format(model=model, more=""))
    recipe = folder / RECIPES_OF.get(command, recipe.name)
    options = [word for change in changes for word in ("--set", change)]
    capsys.readouterr()
    code = distill(command, recipe, "--out", out, *options)
    lines = [n for n in capsys.readouterr().err.splitlines() if n.startswith("distill: ")]
    assert not (out / "indexer").exists()
    assert not (out / "schedule.toml").exists()
    return code, lines[0] if len(lines) == 1 else lines


@pytest.mark.parametrize("number", range(len(kinds())), ids=kinds())
def test_a_weight_that_is_not_finite_is_named(checkpoint, data, tmp_path, capsys, number):
    name, value = kinds()[number], (math.nan, math.inf, -math.inf)[number % 3]
    model = tmp_path / "model"
    shutil.copytree(checkpoint, model)
    tensors = load_file(model / "model.safetensors")
    stored = name if name in tensors else _stored(name, tensors)
    tensors[stored].view(-1)[-1] = value
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    word = "NaN" if math.isnan(value) else "infinite"
    for command in ("layerwise", ("train", "oracle", "search")[number // 3 % 3]):
        code, line = run(command, tmp_path, model, data, capsys)
        assert code == 2, (command, line)
        assert line.endswith(f"{word} values"), line
        known = stored if command == "layerwise" else name
        assert known.rpartition(".layers.")[2] in line, (command, line)


def _stored(name, tensors):
    """Merged experts lie apart in the file."""
    folder = name.partition(".experts.")[0]
    return next(stored for stored in tensors if stored.startswith(f"{folder}.experts."))


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("command", COMMANDS)
def test_hidden_states_that_are_not_finite_are_named(
    checkpoint, data, tmp_path, capsys, monkeypatch, command, value
):
    """As an overflow inside a layer makes them: no weight shows it."""

    def spoil(_, __, output):
        hidden = output[0] if isinstance(output, tuple) else output
        hidden[..., 3, 5] = value

    run_layer = Layer.run
    from transformers import AutoModelForCausalLM

    whole = AutoModelForCausalLM.from_pretrained

    def loaded(*args, **kwargs):
        model = whole(*args, **kwargs)
        model.get_decoder().layers[2].register_forward_hook(spoil)
        return model

    def one(self, hidden, answer):
        after = run_layer(self, hidden, answer)
        return after.index_fill(1, torch.tensor([3]), value) if self.number == 2 else after

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", loaded)
    monkeypatch.setattr(Layer, "run", one)
    code, line = run(command, tmp_path, checkpoint, data, capsys)
    assert code == 2, line
    assert re.search(r"layer [23]: hidden states.*: (NaN|infinite) values$", line), line


@pytest.mark.parametrize("command", ["train", "layerwise"])
def test_a_step_that_overflows_is_named(checkpoint, data, tmp_path, capsys, command):
    code, line = run(command, tmp_path, checkpoint, data, capsys, "train.lr=3e38")
    assert code == 2, line
    assert "step 1" in line
    assert "layer 4" in line


@pytest.mark.parametrize("command", ["train", "layerwise"])
def test_a_gradient_that_is_not_finite_is_named(
    checkpoint, data, tmp_path, capsys, monkeypatch, command
):
    real = torch.nn.utils.clip_grad_norm_

    def spoilt(parameters, limit):
        parameters = list(parameters)
        parameters[0].grad.view(-1)[0] = math.nan
        return real(parameters, limit)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", spoilt)
    code, line = run(command, tmp_path, checkpoint, data, capsys)
    assert code == 2, line
    assert "layer 4" in line
    assert "step 1" in line
    assert "gradient is nan" in line


@pytest.mark.parametrize("command", ["train", "layerwise"])
def test_a_candidate_that_is_not_finite_is_named(
    checkpoint, data, tmp_path, capsys, monkeypatch, command
):
    real = Regression.candidate

    def spoilt(self, *args):
        state = real(self, *args)
        state["wk.weight"][0, 0] = math.nan
        return state

    monkeypatch.setattr(Regression, "candidate", spoilt)
    code, line = run(command, tmp_path, checkpoint, data, capsys)
    assert code == 2, line
    assert "layer 4" in line
    assert "wk.weight of the student" in line


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_dense_model_is_not_rewritten(tmp_path, capsys, value):
    model = save_dense(tmp_path / "dense")
    for name in sorted(model.state_dict())[::3]:
        spoilt = {k: v.clone() for k, v in model.state_dict().items()}
        spoilt[name].view(-1)[0] = value
        save_file(spoilt, tmp_path / "dense" / "model.safetensors", {"format": "pt"})
        capsys.readouterr()
        code = distill("retrofit", tmp_path / "dense", "--out", tmp_path / "out")
        lines = [n for n in capsys.readouterr().err.splitlines() if n.startswith("distill: ")]
        assert code == 2
        assert len(lines) == 1
        assert f"{name}: " in lines[0]
        assert not (tmp_path / "out").exists()
