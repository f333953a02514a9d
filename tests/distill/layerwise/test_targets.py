"""Exported targets: the losses and gradients that other trainers make of them are ours."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from distill.layerwise.setup import load_layerwise_setup
from distill.layerwise.targets import export_targets
from distill.losses.listmle import listmle
from distill.models.forward import visit_indexer_calls
from distill.models.student import in_precision
from distill.setup import load_training_setup
from distill.training.step import distil_batch
from evalkit.dsa import index_features, index_scores
from evalkit.dsa.files import file_sha256
from evalkit.dsa.scores import visible
from tests.distill.cli.commands import distill, write_recipe
from tests.distill.layerwise.runs import recipe
from tests.distill.layerwise.test_dump import dumped

OFF_POLICY = {"train": {"states": "off_policy"}}
BOTH = [{"kind": "kl", "weight": 0.75}, {"kind": "listmle", "weight": 0.25}]


def exported(config, out, keys=None, dump=None):
    return export_targets(load_layerwise_setup(config, out, out, dump=dump), out, keys)


def kl_of(tensors, scores, support):
    """The formula of the docs: Σ over queries of information − Σ probability · log q[keys]."""
    log_q = scores.masked_fill(~support, -torch.inf).log_softmax(-1)
    picked = log_q.gather(-1, tensors["keys"].long().clamp(min=0))
    cross = torch.where(tensors["keys"] < 0, 0, tensors["probability"] * picked).sum(-1)
    return ((tensors["information"] - cross) * tensors["weight"]).sum()


class Student:
    """One full layer's indexer, and its scores at exported positions: another trainer's view."""

    def __init__(self, config, directory, layer):
        self.setup = load_training_setup(config, directory, directory / "text")
        self.layer, self.module = layer, self.setup.students.modules[layer]

    def scores(self, tensors):
        batch = self.setup.data.splits["train"].batch(tensors["sequence"].tolist())
        positions, found = tensors["positions"].long(), []

        def visit(_, call):
            with torch.enable_grad():
                inputs = in_precision(call, self.module)
                found.append(index_features(self.setup.model, self.module, inputs, positions))

        visit_indexer_calls(self.setup.model, self.setup.native, batch, visit, layers=[self.layer])
        (features,) = found
        return index_scores(features), visible(features, positions)

    def gradients(self):
        found = {n: p.grad.clone() for n, p in self.module.named_parameters()}
        self.module.zero_grad()
        return found


@pytest.mark.parametrize(
    ("arm", "layer", "phases"),
    [
        ({"retention": "1/4"}, 4, 1),
        ({"retention": None, "pattern": "FFSSSSSF", "lag": 1}, 1, 2),
    ],
    ids=["one phase", "prefill and decode"],
)
def test_the_loss_of_exported_targets_is_the_trainers(checkpoint, tmp_path, arm, layer, phases):
    """Per batch of the trainer: values of both losses, and the gradient of the weighted sum."""
    config = recipe(checkpoint, arm=arm, loss=BOTH, **OFF_POLICY)
    exported(config, tmp_path / "targets", keys=1000)
    student = Student(config, tmp_path, layer)
    for number in range(2):  # of draws by two
        draws = range(2 * number, 2 * number + 2)
        files = sorted((tmp_path / f"targets/{layer}").glob(f"train-{number}-*.safetensors"))
        assert len(files) == phases
        kl = lists = torch.zeros(())
        for tensors in map(load_file, files):
            scores, support = student.scores(tensors)
            value = kl_of(tensors, scores, support)
            kl = kl + value
            for order in tensors["order"].long():
                weight = tensors["weight"]
                mean, _ = listmle(order, scores, support, weight=weight)
                lists = lists + mean / len(tensors["order"])
            assert float(tensors["rest"].abs().max()) < 1e-6
        (0.75 * kl + 0.25 * lists).backward()
        found = student.gradients()
        batch = student.setup.data.splits["train"].batch(load_file(files[0])["sequence"].tolist())
        plan = student.setup.plan
        losses = distil_batch(student.setup.model, student.setup.students, batch, draws, plan)
        losses = losses[layer]
        assert losses.of("kl").total == pytest.approx(kl.item(), rel=1e-5)
        assert losses.of("listmle").total == pytest.approx(lists.item(), rel=1e-5)
        for name, gradient in student.gradients().items():
            assert torch.allclose(gradient, found[name], rtol=1e-3, atol=1e-5), name


def test_fewer_keys_keep_the_best_and_say_what_is_left(checkpoint, tmp_path):
    config = recipe(checkpoint)
    whole = exported(config, tmp_path / "whole", keys=48)
    few = exported(config, tmp_path / "few", keys=5)
    assert whole.least == pytest.approx(1.0, abs=1e-5)
    assert 0 < few.least < few.mass.mean < 1
    for path in (tmp_path / "few/4").glob("*.safetensors"):
        kept, every = load_file(path), load_file(tmp_path / "whole/4" / path.name)
        assert "order" not in kept
        assert kept["keys"].shape[-1] == 5
        assert torch.equal(kept["keys"], every["keys"][..., :5])
        assert torch.equal(kept["probability"], every["probability"][..., :5])
        assert torch.equal(kept["information"], every["information"])
        tail = every["probability"][..., 5:].sum(-1)
        assert torch.allclose(kept["rest"], tail, atol=1e-6)
        assert (every["keys"].int() <= every["positions"].unsqueeze(-1)).all()  # causal
        falling = every["probability"].diff(dim=-1)
        assert (falling <= 0).all()


def test_a_dump_gives_the_targets_of_the_model(checkpoint, tmp_path):
    config = recipe(checkpoint, choice={"checkpoint": "recall"}, **OFF_POLICY)
    dump = dumped(config, tmp_path / "dump")
    ran = exported(config, tmp_path / "ran")
    read = exported(config, tmp_path / "read", dump=dump)
    assert ran.files == read.files  # hashes too
    assert {name.split("/")[1].split("-")[0] for name in ran.files} == {"train", "held_out"}
    assert not list((tmp_path / "ran/hidden_states").rglob("*.safetensors"))


def test_the_command_and_its_manifest(checkpoint, tmp_path, capsys):
    path, out = write_recipe(tmp_path, checkpoint), tmp_path / "targets"
    assert distill("export-targets", path, "--out", out, "--device", "cpu", "--keys", 16) == 0
    assert "mass of the consumers' distributions" in capsys.readouterr().out
    manifest = json.loads((out / "targets.json").read_text())
    assert manifest["consumers"] == {"4": {"prefill": [4, 5, 6, 7], "decode": [4, 5, 6, 7]}}
    assert (manifest["format"], manifest["keys"], manifest["index_topk"]) == (1, 16, 8)
    for name, sha256 in manifest["files"].items():
        assert file_sha256(out / name) == sha256
    assert distill("export-targets", path, "--out", out, "--device", "cpu") == 2
    assert "holds targets already" in capsys.readouterr().err
