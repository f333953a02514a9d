"""distill export: a whole checkpoint with the indexers in it, everything else byte for byte."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from distill.checkpoint.export import export_checkpoint, settings_for
from distill.checkpoint.fp8 import dequantise
from distill.checkpoint.sharded import Checkpoint, overwrite
from distill.cli.main import app
from distill.errors import DistillError
from evalkit.config.run import RunConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.model_info import model_layout
from evalkit.dsa import ReuseSchedule, apply_schedule
from evalkit.dsa.exported_checkpoint import exported_schedule
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.indexer_checkpoint import apply_indexer
from evalkit.dsa.indexer_metadata import IndexerFileError, read_schedule
from evalkit.run.plan import plan
from tests.distill.bases import BLOCK, in_fp8, indexers, sharded
from tests.dsa.tiny import tokens


def hashes(directory):
    return {
        p.relative_to(directory).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(directory.rglob("*"))
        if p.is_file()
    }


def selections(model, schedule):
    """(own selections by layer, logits) of a forward under a schedule."""
    found = {}

    def observe(ordinal, _, chosen):
        if chosen is not None:
            found[ordinal] = chosen.sort(-1).values

    with torch.no_grad(), apply_schedule(model, schedule, observe=observe):
        logits = model(tokens(2, 40), use_cache=False).logits
    return found, logits


@pytest.mark.parametrize("family", ["deepseek_v32", "glm_moe_dsa", "deepseek_v4"])
def test_the_exported_checkpoint_selects_the_same(tmp_path, family):
    base, model = sharded(tmp_path / "base", family)
    schedule, tensors = indexers(tmp_path / "indexer", model, base, "1/2")
    done = export_checkpoint(tmp_path / "indexer", str(base), tmp_path / "out")
    assert done.tensors == len(tensors)
    with apply_indexer(model, tmp_path / "indexer", schedule):
        expected = selections(model, schedule)
    fresh = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    if family != "deepseek_v4":  # its config.json has no field for the layers of its own library
        assert indexer_sites(fresh).layout.native == schedule
    found = selections(fresh, schedule)
    assert found[0].keys() == expected[0].keys() == set(schedule.full_layers)
    assert all(torch.equal(found[0][i], chosen) for i, chosen in expected[0].items())
    assert torch.equal(found[1], expected[1])
    if family == "glm_moe_dsa":  # the library runs the schedule by itself
        with torch.no_grad():
            alone = fresh(tokens(2, 40), use_cache=False).logits
        assert torch.equal(alone, expected[1])


def test_untouched_shards_are_linked_and_nothing_else_changes(tmp_path):
    base, model = sharded(tmp_path / "base", size="60KB")
    before = hashes(base)
    _, tensors = indexers(tmp_path / "indexer", model, base, "1/4")
    done = export_checkpoint(tmp_path / "indexer", str(base), tmp_path / "out")
    after = hashes(tmp_path / "out")
    assert hashes(base) == before
    assert done.linked
    assert done.rewritten
    for name in done.linked:
        assert after[name] == before[name]
        assert (tmp_path / "out" / name).stat().st_ino == (base / name).stat().st_ino
    index = "model.safetensors.index.json"
    assert after[index] == before[index]
    assert after["tokenizer.json"] == before["tokenizer.json"]
    assert after["README.base.md"] == before["README.md"]
    assert (tmp_path / "out" / "README.md").read_text() == "# distilled\n"
    for name in done.rewritten:
        old, new = load_file(base / name), load_file(tmp_path / "out" / name)
        assert old.keys() == new.keys()
        assert (base / name).stat().st_size == (tmp_path / "out" / name).stat().st_size
        for key, tensor in old.items():
            assert torch.equal(new[key], tensors.get(key, tensor))
            assert new[key].dtype == tensor.dtype
    copied = export_checkpoint(tmp_path / "indexer", str(base), tmp_path / "copy", copy=True)
    assert copied.linked == ()
    assert hashes(tmp_path / "copy") == after


def test_config_says_the_schedule_in_both_languages(tmp_path):
    base, model = sharded(tmp_path / "base", "glm_moe_dsa")
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"index_topk_freq": 2}))
    schedule, _ = indexers(tmp_path / "indexer", model, base, "1/4")
    export_checkpoint(tmp_path / "indexer", str(base), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["index_topk_pattern"] == schedule.pattern == "FSSSFSSS"
    assert config["indexer_types"] == ["full", "shared", "shared", "shared"] * 2
    assert config["use_index_cache"] is True
    assert "index_topk_freq" not in config


@pytest.mark.parametrize("power_of_two", [False, True])
def test_fp8_scales_are_made_anew(tmp_path, power_of_two):
    base, model = sharded(tmp_path / "base")
    in_fp8(base, power_of_two=power_of_two)
    _, tensors = indexers(tmp_path / "indexer", model, base, "1/4")
    done = export_checkpoint(tmp_path / "indexer", str(base), tmp_path / "out")
    assert done.requantised == 4  # wq_b and wk of two layers
    old, new = Checkpoint(str(base)), Checkpoint(str(tmp_path / "out"))
    assert {n: (e.dtype, e.shape) for n, e in old.entries.items()} == {
        n: (e.dtype, e.shape) for n, e in new.entries.items()
    }
    for name in old.entries:
        weight = name.removesuffix("_scale_inv")
        if weight not in tensors:
            assert torch.equal(
                old.read(name).view(torch.uint8), new.read(name).view(torch.uint8)
            ), name
    name = "model.layers.4.self_attn.indexer.wk.weight"
    scale = new.read(f"{name}_scale_inv")
    assert not torch.equal(scale, old.read(f"{name}_scale_inv"))
    wide = dequantise(new.read(name), scale, BLOCK)
    wanted = tensors[name].float()
    assert torch.allclose(wide, wanted, rtol=2**-4, atol=float(wanted.abs().max()) * 2**-8)
    if power_of_two:
        assert torch.equal(scale.log2(), scale.log2().round())
    heads = "model.layers.4.self_attn.indexer.weights_proj.weight"
    assert torch.equal(new.read(heads), tensors[heads].to(torch.bfloat16))


def test_refusals(tmp_path):
    base, model = sharded(tmp_path / "base")
    indexers(tmp_path / "indexer", model, base)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(DistillError, match="not empty"):
        export_checkpoint(tmp_path / "indexer", str(base), tmp_path / "full")
    other, same = sharded(tmp_path / "other")
    with torch.no_grad():
        same.lm_head.weight[0, 0] += 1
    same.save_pretrained(other, max_shard_size="200KB")
    with pytest.raises(DistillError, match="was trained on tiny with weights"):
        export_checkpoint(tmp_path / "indexer", str(other), tmp_path / "out")
    indexers(tmp_path / "lag", model, base, lag=1)
    with pytest.raises(DistillError, match=r"carries a lag.*Run it with evalkit"):
        export_checkpoint(tmp_path / "lag", str(base), tmp_path / "out")
    wide, large = sharded(tmp_path / "wide", index_head_dim=24)
    indexers(tmp_path / "foreign", large, wide, fingerprint=None, config_sha256=None)
    with pytest.raises(DistillError, match=r"is .24., the base's is .16."):
        export_checkpoint(tmp_path / "foreign", str(base), tmp_path / "out")
    (tmp_path / "indexer" / "indexer.safetensors").write_bytes(b"no")
    with pytest.raises(DistillError, match="its content is not what"):
        export_checkpoint(tmp_path / "indexer", str(base), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_shard_is_named(tmp_path):
    base, _ = sharded(tmp_path / "base", size="60KB")
    gone = sorted(base.glob("*.safetensors"))[2]
    gone.unlink()
    with pytest.raises(DistillError, match=f"1 of .* shards are missing, first {gone.name}"):
        Checkpoint(str(base))
    cut = sorted(base.glob("*.safetensors"))[0]
    cut.write_bytes(cut.read_bytes()[:-10])
    (base / "model.safetensors.index.json").unlink()
    with pytest.raises(DistillError, match=f"{cut.name}: cut off"):
        Checkpoint(str(base))


def test_other_layers_are_refused():
    from tests.dsa.tiny import build

    config = build("deepseek_v32").config.to_dict()
    with pytest.raises(DistillError, match="counts layers"):
        settings_for(config, ReuseSchedule.uniform(6, "1/2"))


@pytest.fixture
def exported(tmp_path):
    """(directory, schedule) of an exported DeepSeek-V3.2 checkpoint."""
    base, model = sharded(tmp_path / "base")
    schedule, _ = indexers(tmp_path / "indexer", model, base)
    export_checkpoint(tmp_path / "indexer", str(base), tmp_path / "out")
    return tmp_path / "out", schedule


def test_small_files_of_the_export_are_its_own(exported):
    out, base = exported[0], exported[0].parent / "base"
    before = hashes(base)
    for path in out.iterdir():
        if path.suffix != ".safetensors":
            path.write_text("edited")
    assert hashes(base) == before


def test_schedule_and_tensors_and_configuration_are_bound(exported):
    out, schedule = exported
    assert exported_schedule(out) == schedule
    assert exported_schedule(out.parent / "base") is None
    assert exported_schedule(out.parent / "indexer") is None
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"transformers_version": "0"}))
    assert exported_schedule(out) == schedule  # another spacing, another library: the same model
    (out / "config.json").write_text(json.dumps(config | {"index_topk": 9}))
    with pytest.raises(
        IndexerFileError, match=r"config\.json: not what schedule\.json was written"
    ):
        exported_schedule(out)
    (out / "config.json").write_text(json.dumps(config))
    facts = json.loads((out / "schedule.json").read_text())
    facts["schedule"]["pattern"] = "FSSSSSSS"
    (out / "schedule.json").write_text(json.dumps(facts))
    with pytest.raises(IndexerFileError, match=r"schedule\.json: edited after it was written"):
        exported_schedule(out)


def test_an_export_whose_tensor_was_changed_is_refused(exported):
    out, _ = exported
    name = "model.layers.4.self_attn.indexer.wk.weight"
    entry = Checkpoint(str(out)).entries[name]
    overwrite(entry, torch.zeros(entry.shape), entry.file)
    with pytest.raises(IndexerFileError, match=f"{name} is not what"):
        exported_schedule(out)


def test_an_edited_schedule_of_an_indexer_directory_is_refused(exported):
    path = exported[0].parent / "indexer" / "schedule.json"
    facts = json.loads(path.read_text())
    facts["base"]["fingerprint"] = None
    path.write_text(json.dumps(facts))
    with pytest.raises(IndexerFileError, match="edited after it was written"):
        read_schedule(path.parent)


def test_a_base_with_another_configuration_is_refused(exported):
    base = exported[0].parent / "base"
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"index_topk": 4}))
    with pytest.raises(DistillError, match=r"under another configuration than .*config\.json"):
        export_checkpoint(exported[0].parent / "indexer", str(base), exported[0].parent / "new")


def evaluation(model, **arm):
    return RunConfig.model_validate(
        {
            "model": str(model),
            "engine": {"kind": "hf"},
            "tasks": [{"kind": "needle", "lengths": [96], "depths": [50], "repeats": 1}],
            "arms": [{"name": "export"} | arm],
        }
    )


def test_evalkit_runs_an_export_under_its_schedule_or_asks_for_it(exported, tmp_path):
    """transformers has no sharing in DeepSeek-V3.2; by config.json evalkit knows the layers."""
    out, schedule = exported
    plan(evaluation(out), tmp_path)
    assert model_layout(str(out)).native == schedule  # what an arm that names nothing runs
    v4, model = sharded(tmp_path / "v4", "deepseek_v4")
    own, _ = indexers(tmp_path / "v4-indexer", model, v4, "1/2")
    export_checkpoint(tmp_path / "v4-indexer", str(v4), tmp_path / "v4-out")
    with pytest.raises(EvalkitError, match=f'give the arm pattern = "{own.pattern}"'):
        plan(evaluation(tmp_path / "v4-out"), tmp_path)
    plan(evaluation(tmp_path / "v4-out", pattern=own.pattern), tmp_path)
    with (out / "config.json").open("a") as file:
        file.write(" ")
    plan(evaluation(out), tmp_path)
    (out / "config.json").write_text((out.parent / "base" / "config.json").read_text())
    with pytest.raises(EvalkitError, match=r"arm export: .*config\.json: not what schedule\.json"):
        plan(evaluation(out), tmp_path)


def test_the_command(tmp_path):
    base, model = sharded(tmp_path / "base")
    indexers(tmp_path / "indexer", model, base)
    words = ["export", str(tmp_path / "indexer"), "--base", str(base), "--out"]
    result = CliRunner().invoke(app, [*words, str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "index_topk_pattern = FSSSFSSS" in result.output
    assert "note: transformers alone runs every indexer of this checkpoint" in result.output
    assert "10 tensors in" in result.output
