"""Layer by layer: equal to the path that holds the whole model, and resumable."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from distill.capture import run as forward
from distill.cli import app
from distill.config import DistillConfig
from distill.errors import DistillError
from distill.layerwise.job import open_job
from distill.layerwise.layers import Layers
from distill.layerwise.run import LayerwiseRun
from distill.layerwise.train import LayerTrainer
from distill.session import open_session
from distill.shards import Checkpoint
from distill.trainer import Trainer
from evalkit.dsa import select
from evalkit.dsa.checkpoint import apply_indexer
from tests.checkpoints import TOKENIZER, save
from tests.distill.bases import in_fp8, sharded
from tests.distill.helpers import batch

CPU = torch.device("cpu")
DENSE_THEN_SPARSE = ["dense"] * 4 + ["sparse"] * 4


def recipe(model, **sections):
    found = {
        "model": str(model), "dtype": "float32", "arm": {"retention": "1/4"},
        "data": {"length": 48, "train": 5, "held_out": 2, "calibration": 2, "shortest": 16},
        "loss": {"rows": 8}, "student": {"start": "own"},
        "train": {"steps": 3, "batch": 3, "micro_batch": 2, "evaluate_every": 2},
    }  # fmt: skip
    for name, values in sections.items():
        found[name] = found.get(name, {}) | values
    return DistillConfig.model_validate(found)


def layerwise(config, out, on_event=lambda *_: None):
    out.mkdir(exist_ok=True)
    run = LayerwiseRun(open_job(config, out, out), out, on_event)
    run.run()
    return run


def in_memory(config, out):
    """Students after the last step of the trainer that holds the whole model, and its choices."""
    session = open_session(config, out, out / "data")
    trainer = Trainer(session, out, Accelerator(cpu=True))
    trainer.run()
    newest = sorted((out / "state").iterdir())[-1]
    return load_file(newest / "students.safetensors"), trainer.progress.choices


# -- one layer as a model of its own -----------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "extra"),
    [
        ("deepseek_v32", {"mlp_layer_types": DENSE_THEN_SPARSE}),
        ("glm_moe_dsa", {"indexer_types": ["full", "shared"] * 4}),
    ],
)
def test_layers_in_a_row_are_the_model(tmp_path, family, extra):
    directory, _ = sharded(tmp_path, family, **extra)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    layers = Layers(Checkpoint(str(directory)), torch.float32, CPU)
    some, native, chosen = batch(2, 40), layers.layout.native, {}
    hidden = layers.embed()(some.ids)
    for number in range(len(layers)):
        layer = layers.open(number)

        def answer(call, number=number, layer=layer):
            if native.computes[number]:
                features = layer.where.family.features(layer.indexer, call)
                chosen[number] = select(features, layer.indexer.index_topk)
            return chosen[native.source[number]]

        hidden = layer.run(hidden, answer)
    whole = forward(model, native, some, lambda *_: None, layers=(), output=True)
    assert torch.equal(model.get_decoder().norm(hidden), whole)


def test_fp8_layers_are_dequantised_on_the_way(tmp_path):
    directory, _ = sharded(tmp_path, mlp_layer_types=DENSE_THEN_SPARSE)
    in_fp8(directory)
    checkpoint = Checkpoint(str(directory))
    layer = Layers(checkpoint, torch.float32, CPU).open(3)
    name = "model.layers.3.self_attn.indexer.wk.weight"
    assert checkpoint.entries[name].dtype == "F8_E4M3"
    assert torch.equal(layer.indexer.wk.weight, checkpoint.plain(name, torch.float32))
    assert layer.indexer.wk.weight.dtype == torch.float32


# -- equal to the whole model in memory --------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "trained"),
    [
        ({"arm": {"retention": "1/2"}, "train": {"states": "off_policy"}}, [2, 4, 6]),
        (
            {
                "arm": {"retention": "1/4", "lag": 1}, "train": {"states": "off_policy"},
                "student": {"start": "random", "first": "train"}, "loss": {"kl_share": 0.5},
            },
            [0, 4],
        ),
        ({"train": {"states": "on_policy"}, "student": {"start": "closed_form"}}, [4]),
    ],
    ids=["off-policy", "lag, random, both losses", "on-policy, closed form"],
)  # fmt: skip
def test_the_same_weights_as_in_memory(checkpoint, tmp_path, monkeypatch, sections, trained):
    looks = LayerTrainer._look

    def by_kl(self, split):  # the local measure that chooses as the final logits do here
        found = looks(self, split)
        return found | {"recall": -found["kl"]} if split == "calibration" else found

    monkeypatch.setattr(LayerTrainer, "_look", by_kl)
    config = recipe(checkpoint, **sections)
    run = layerwise(config, tmp_path / "layers")
    expected, choices = in_memory(config, tmp_path / "whole")
    assert sorted(run.done) == trained
    for layer, found in run.done.items():
        assert not choices or choices[0]["chosen"] == found.chosen
        for name, tensor in found.last.items():
            wanted = expected[f"{layer}.{name}"]
            assert torch.allclose(tensor, wanted, rtol=1e-5, atol=1e-6), (layer, name)
    assert not list((tmp_path / "layers" / "shelf").rglob("*.safetensors"))


def test_on_policy_states_know_the_trained_layers_below(checkpoint, tmp_path):
    """With two trained layers, the second one's input is that of the arm with the first in it."""
    config = recipe(checkpoint, arm={"retention": "1/2"}, train={"states": "on_policy"})
    kept = {}

    def keep(kind, row):
        if kind == "look" and row["layer"] == 4:
            kept.setdefault("input", load_file(tmp_path / "a/shelf/input/4/held_out/0.safetensors"))

    run = layerwise(config, tmp_path / "a", keep)
    session = open_session(config, tmp_path, tmp_path / "data")
    session.students.load(
        session.students.state()
        | {f"2.{name}": tensor for name, tensor in run.done[2].state.items()}
    )
    seen = {}
    some = session.data.splits["held_out"].batches(2)[0]
    with session.students.acting():
        forward(
            session.model, session.schedule, some,
            lambda i, call: seen.setdefault(i, call.hidden), layers=[4],
        )  # fmt: skip
    assert torch.allclose(kept["input"]["hidden"], seen[4], atol=1e-5)


# -- a run ---------------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on(checkpoint, tmp_path):
    config = recipe(checkpoint, arm={"retention": "1/2"}, train={"states": "on_policy"})
    expected = layerwise(config, tmp_path / "whole")
    events = []

    def stop(kind, row):
        events.append(kind)
        if kind == "layer" and row["arm"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        layerwise(config, tmp_path / "cut", stop)
    state = json.loads((tmp_path / "cut" / "state.json").read_text())
    assert list(state["done"]) == ["2"]
    again = layerwise(config, tmp_path / "cut")
    for layer, found in expected.done.items():
        for name, tensor in found.state.items():
            assert torch.equal(again.done[layer].state[name], tensor)
    paths = [tmp_path / n / "indexer" / "indexer.safetensors" for n in ("whole", "cut")]
    first, second = map(load_file, paths)
    assert first.keys() == second.keys()
    assert all(torch.equal(second[name], tensor) for name, tensor in first.items())
    with pytest.raises(DistillError, match="belongs to another run"):
        layerwise(recipe(checkpoint, train={"steps": 4}), tmp_path / "cut")


def test_the_command_and_its_output(tmp_path):
    base = save(tmp_path / "base", "glm_moe_dsa", indexer_types=["full"] * 8)
    path = tmp_path / "r.toml"
    path.write_text(
        f'model = "{base}"\ndtype = "float32"\n[arm]\nretention = "1/4"\n[data]\nlength = 48\n'
        "train = 3\nheld_out = 1\ncalibration = 2\nshortest = 16\n[loss]\nrows = 8\n"
        "[train]\nsteps = 2\nbatch = 2\nmicro_batch = 2\n"
    )
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["layerwise", str(path), "--out", str(out), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert "the indexers of layers 4 train" in result.output
    assert "layer 4 from" in result.output
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with apply_indexer(model, out / "indexer"):
        pass
    tensors = load_file(out / "indexer" / "indexer.safetensors")
    assert {n.split(".indexer.")[0] for n in tensors} == {"model.layers.4.self_attn"}
    assert "layer 4 from" in (out / "indexer" / "README.md").read_text()


def test_what_needs_the_whole_model_is_refused(checkpoint, tmp_path):
    with pytest.raises(DistillError, match="consumers' indexers teach"):
        open_job(recipe(checkpoint, teacher={"kind": "attention"}), tmp_path, tmp_path)
    directory, _ = sharded(tmp_path / "v4", "deepseek_v4")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, directory / name)
    with pytest.raises(DistillError, match="cannot be run layer by layer"):
        open_job(recipe(directory), tmp_path, tmp_path / "out")
