"""Hidden states dumped elsewhere: the same training, bit for bit; anything else is refused."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from distill.checkpoint.sharded import Checkpoint
from distill.errors import DistillError
from distill.layerwise.dump import Dump
from distill.layerwise.dumper import dump_model
from distill.layerwise.layer_loader import Layers
from distill.layerwise.setup import load_layerwise_setup
from distill.models.load import load_model
from distill.models.sizes import meta_model
from distill.training.events import CandidateChosen
from distill.training.metrics_log import read_metrics
from evalkit.dsa.files import file_sha256
from tests.checkpoints import save
from tests.distill.bases import sharded
from tests.distill.cli.commands import distill, write_recipe
from tests.distill.layerwise.runs import layerwise, recipe

OFF_POLICY = {"choice": {"checkpoint": "recall"}, "train": {"states": "off_policy"}}
TWO_LAYERS = {"retention": None, "pattern": "FSSSFSFS"}
TWO_PHASES = {"retention": None, "pattern": "FFSSSSSF", "lag": 1}
BOTH = [{"kind": "kl", "weight": 0.5}, {"kind": "listmle", "weight": 0.5}]


def dumped(config, out):
    setup = load_layerwise_setup(config, out.parent, out)
    dump_model(setup, load_model(setup.name, config.dtype), out, lambda: None)
    return out


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """GLM-5: layers 2, 3, 5, 6 and 7 have no indexer of their own."""
    types = [{"F": "full", "S": "shared"}[letter] for letter in "FFSSFSSS"]
    return save(tmp_path_factory.mktemp("glm"), "glm_moe_dsa", indexer_types=types)


@pytest.fixture(scope="module")
def small(checkpoint, tmp_path_factory):
    """(recipe, dump) of two trained layers."""
    config = recipe(checkpoint, arm=TWO_LAYERS, **OFF_POLICY)
    return config, dumped(config, tmp_path_factory.mktemp("small") / "dump")


def of_several_lengths(folder):
    """The `data` section of documents most of which are shorter than a sequence."""
    words = "the index of a layer selects keys, and other layers read what it has selected. " * 2
    texts = [words[i % 9 : i % 9 + 36 + 8 * (i % 6)] for i in range(40)]
    lines = [json.dumps({"text": text}) for text in texts]
    (folder / "short.jsonl").write_text("\n".join(lines))
    source = {"kind": "text", "paths": [str(folder / "short.jsonl")]}
    return {"source": source, "shortest": 10, "length": 48}


def steps(out):
    rows = read_metrics(out / "metrics.jsonl")
    return [(r["layer"], r["step"], r["grad_norm"], r.get("kl")) for r in rows if "grad_norm" in r]


# -- the same training -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "sections"),
    [
        ("checkpoint", {"arm": TWO_PHASES, "loss": BOTH}),
        ("shared", {"dtype": "bfloat16", "student": {"start": "random"}}),
        pytest.param("shared", {"train": {"micro_batch": 1}}, marks=pytest.mark.slow),
        pytest.param("checkpoint", {"arm": {"retention": "1/2"}}, marks=pytest.mark.slow),
    ],
    ids=["lag, both losses", "GLM-5, shared layers, bf16", "one at a time", "three layers"],
)
def test_training_from_a_dump_is_the_same_bit_for_bit(
    request, tmp_path, monkeypatch, base, sections
):
    sections = dict(sections)
    dtype = sections.pop("dtype", "float32")
    sections["data"] = of_several_lengths(tmp_path)
    sections["train"] = OFF_POLICY["train"] | sections.get("train", {})
    config = recipe(request.getfixturevalue(base), choice=OFF_POLICY["choice"], **sections)
    config = config.model_copy(update={"dtype": dtype})
    ran = layerwise(config, tmp_path / "ran")
    dump = dumped(config, tmp_path / "dump")
    lengths = {len(t) for f in dump.glob("[0-9]*/*.safetensors") for t in load_file(f).values()}
    assert len(lengths) > 1  # shorter sequences were padded in the batch, and are not in the dump

    def refuse(self, layer):
        raise AssertionError(f"layer {layer} was loaded")

    monkeypatch.setattr(Layers, "open", refuse)
    read = layerwise(config, tmp_path / "read", dump=dump)
    assert list(ran.done) == list(read.done)
    for layer, expected in ran.done.items():
        for name, tensor in expected.last.items():
            assert torch.equal(read.done[layer].last[name], tensor), (layer, name)
    assert steps(tmp_path / "ran") == steps(tmp_path / "read")
    assert len(steps(tmp_path / "ran")) == 3 * len(ran.done)
    assert "off_policy (dumped) states" in (tmp_path / "read/indexer/README.md").read_text()
    assert "(dumped)" not in (tmp_path / "ran/indexer/README.md").read_text()


def test_an_interrupted_run_goes_on_from_the_same_dump_only(small, tmp_path):
    config, dump = small
    expected = layerwise(config, tmp_path / "whole", dump=dump)

    def stop(event):
        if getattr(event, "layer", None) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        layerwise(config, tmp_path / "cut", stop, dump=dump)
    with pytest.raises(DistillError, match="belongs to another run"):
        layerwise(config, tmp_path / "cut")
    again = layerwise(config, tmp_path / "cut", dump=dump)
    for layer, one in expected.done.items():
        assert all(torch.equal(again.done[layer].state[k], t) for k, t in one.state.items())


def test_candidates_of_the_closed_form_are_chosen_by_what_they_miss(checkpoint, tmp_path):
    config = recipe(checkpoint, student={"start": "closed_form"}, **OFF_POLICY)
    choices = []

    def keep(event):
        if isinstance(event, CandidateChosen):
            choices.append(event.choice)

    run = layerwise(config, tmp_path / "a", keep, dump=dumped(config, tmp_path / "dump"))
    (choice,) = choices
    assert list(choice.scores) == ["own", "5", "6", "7"]
    assert choice.measure == "missed top-k"
    assert choice.scores[choice.chosen] == min(choice.scores.values()) > 0
    assert run.done[4].chosen == choice.chosen


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["deepseek_v32", "glm_moe_dsa"])
def test_an_indexer_alone_is_the_one_of_its_layer(tmp_path, family, dtype):
    directory, _ = sharded(tmp_path, family)
    layers = Layers(Checkpoint(str(directory)), dtype, torch.device("cpu"))
    alone = layers.indexer(5, meta_model(layers.config)).state_dict()
    inside = layers.open(5).indexer.state_dict()
    assert alone.keys() == inside.keys()
    for name, tensor in inside.items():
        assert alone[name].dtype == tensor.dtype, name
        assert torch.equal(alone[name], tensor), name


# -- what is refused -------------------------------------------------------------------------------


def refused(config, dump, out, match):
    with pytest.raises(DistillError, match=match) as caught:
        layerwise(config, out, dump=dump)
    assert "\n" not in str(caught.value)


def rewrite(dump, change):
    """Change the tensors of a shard, and its hash with them: an engine that ran something else."""
    manifest = json.loads((dump / "manifest.json").read_text())
    shard = manifest["shards"][0]
    path = dump / shard["file"]
    save_file(change(load_file(path)), path)
    shard["sha256"] = file_sha256(path)
    (dump / "manifest.json").write_text(json.dumps(manifest))


def test_a_changed_byte_a_missing_shard_and_a_torn_manifest(small, tmp_path):
    config, original = small
    dump = shutil.copytree(original, tmp_path / "dump")
    shard = sorted(dump.glob("[0-9]*/*.safetensors"))[-1]
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused(config, dump, tmp_path / "a", f"{shard}: was changed since it was dumped")
    shard.unlink()
    refused(config, dump, tmp_path / "a", f"{shard}: missing")
    shard.write_bytes(whole)
    manifest = (dump / "manifest.json").read_text()
    (dump / "manifest.json").write_text(manifest[:-40])
    refused(config, dump, tmp_path / "a", r"manifest\.json: missing or damaged")
    (dump / "manifest.json").write_text(manifest.replace('"format": 1', '"format": 2'))
    refused(config, dump, tmp_path / "a", "format 2; this version reads format 1")


def test_another_model_other_text_another_precision(small, checkpoint, tmp_path):
    config, dump = small
    other = save(tmp_path / "other", index_topk=7)
    refused(
        config.model_copy(update={"model": str(other)}),
        dump,
        tmp_path / "a",
        r"whose (weights|config)",
    )
    text = recipe(checkpoint, arm=TWO_LAYERS, data={"length": 40}, **OFF_POLICY)
    refused(text, dump, tmp_path / "b", "dumped on other text .*distill data")
    half = config.model_copy(update={"dtype": "bfloat16"})
    refused(half, dump, tmp_path / "c", "holds float32, the recipe runs in bfloat16")


def test_other_tokens_than_the_text_and_layers_that_are_not_there(small, checkpoint, tmp_path):
    config, original = small
    dump = shutil.copytree(original, tmp_path / "dump")

    def with_a_token_in_front(tensors):
        name = next(key for key in tensors if key.endswith("tokens"))
        return tensors | {
            name: torch.cat([torch.tensor([1], dtype=torch.int32), tensors[name]])[:-1]
        }

    rewrite(dump, with_a_token_in_front)
    refused(config, dump, tmp_path / "a", "other token ids than the recipe's")
    every = recipe(checkpoint, arm=TWO_LAYERS, student={"first_layer": "train"}, **OFF_POLICY)
    refused(every, original, tmp_path / "b", "no hidden states of .* at layer 0")


def test_an_infinite_hidden_state_names_the_layer(small, tmp_path):
    config, original = small
    dump = shutil.copytree(original, tmp_path / "dump")

    def spoilt(tensors):
        name = next(key for key in tensors if key.endswith("hidden"))
        tensors[name][2, 3] = torch.inf
        return tensors

    rewrite(dump, spoilt)
    refused(config, dump, tmp_path / "a", r"layer \d: hidden states: infinite")


def test_what_a_dump_cannot_give(small, tmp_path):
    _, dump = small
    base = small[0].model_dump()
    for section, key, value, why in (
        ("train", "states", "on_policy", "the arm does not run; set 'off_policy'"),
        ("choice", "checkpoint", "logit_kl", "final logits need every layer"),
    ):
        config = type(small[0]).model_validate(base | {section: base[section] | {key: value}})
        refused(config, dump, tmp_path / "a", why)


def test_the_commands(checkpoint, tmp_path, capsys):
    path, dump = write_recipe(tmp_path, checkpoint), tmp_path / "dump"
    sets = ["--set", "train.states=off_policy", "--set", "choice.checkpoint=recall"]
    assert distill("dump", path, "--out", dump, "--device", "cpu", *sets) == 0
    assert "dump of layers 4, 5, 6, 7" in capsys.readouterr().out
    assert distill("dump", path, "--out", dump, "--device", "cpu", *sets) == 2
    assert "holds a dump already" in capsys.readouterr().err
    command = ["layerwise", path, "--out", tmp_path / "run", "--dump", dump, "--device", "cpu"]
    assert distill(*command, *sets, "--save-anyway") == 0
    assert "missed top-k" in capsys.readouterr().out
    assert (tmp_path / "run/indexer/indexer.safetensors").is_file()
    assert distill(*command, "--set", "choice.checkpoint=recall") == 2
    error = capsys.readouterr().err
    assert "the arm does not run" in error
    assert len(error.strip().splitlines()) == 1
    assert Dump(dump).manifest["dtype"] == "float32"
