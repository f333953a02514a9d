"""indexer.safetensors + schedule.json: round trip, exact undo, refusals by name."""

from __future__ import annotations

import json

import pytest
import torch

from evalkit.dsa import ReuseSchedule, apply_schedule
from evalkit.dsa.indexer_checkpoint import (
    IndexerFileError,
    apply_indexer,
    indexer_facts,
    load_indexer,
    read_schedule,
    save_indexer,
)
from tests.distill.helpers import batch, digest
from tests.dsa.tiny import build

SCHEDULE = ReuseSchedule.uniform(8, "1/4", 1)


def trained(model, layers=(0, 4)):
    generator = torch.Generator().manual_seed(9)
    return {
        name: torch.randn(p.shape, generator=generator)
        for name, p in model.named_parameters()
        if any(f"layers.{i}.self_attn.indexer." in name for i in layers)
    }


@pytest.fixture
def saved(tmp_path):
    model = build("deepseek_v32")
    tensors = trained(model)
    save_indexer(tmp_path, tensors, SCHEDULE, base={"model": "tiny"}, card="# card\n")
    return model, tensors, tmp_path


def test_equal_tensors_make_equal_files(tmp_path):
    tensors = trained(build("deepseek_v32"))
    for name, order in (("one", sorted(tensors)), ("two", sorted(tensors, reverse=True))):
        reordered = {key: tensors[key] for key in order}
        save_indexer(tmp_path / name, reordered, SCHEDULE, base={}, card="card")
    one, two = (indexer_facts(tmp_path / name)["indexer_sha256"] for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize(
    "schedule",
    [
        SCHEDULE,
        ReuseSchedule.uniform((2, 4, 6), "1/2"),
        ReuseSchedule.from_sources([0, 0, 1, 0]),
        ReuseSchedule.uniform(8, 1, 2, lag_phase="all"),
    ],
)
def test_round_trip(tmp_path, schedule):
    tensors = {"a.b": torch.arange(4.0).half(), "c": torch.ones(2, 2)}
    save_indexer(tmp_path, tensors, schedule, base={}, card="card")
    assert read_schedule(tmp_path) == schedule
    loaded = load_indexer(tmp_path)
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[k], v) and loaded[k].dtype == v.dtype for k, v in tensors.items())
    assert (tmp_path / "README.md").read_text() == "card"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("inside", [True, False])
def test_applied_indexers_act_and_leave_no_trace(saved, inside):
    model, tensors, directory = saved
    before, objects = digest(model), dict(model.named_parameters())
    ids = batch().ids

    def logits():
        with torch.no_grad():
            return model(ids, use_cache=False).logits

    with apply_schedule(model, SCHEDULE):
        plain = logits()
    blocks = [apply_schedule(model, SCHEDULE), apply_indexer(model, directory, SCHEDULE)]
    outer, inner = blocks if inside else reversed(blocks)
    with outer, inner:
        assert not torch.equal(logits(), plain)
        for name, tensor in tensors.items():
            assert torch.equal(model.get_parameter(name), tensor)
    assert digest(model) == before
    assert all(p is objects[n] for n, p in model.named_parameters())


def test_an_error_inside_still_undoes(saved):
    model, _, directory = saved
    before = digest(model)
    with pytest.raises(RuntimeError, match="stop"), apply_indexer(model, directory):
        raise RuntimeError("stop")
    assert digest(model) == before


def test_weights_take_the_precision_of_the_model(saved):
    _, tensors, directory = saved
    model = build("deepseek_v32").bfloat16()
    with apply_indexer(model, directory):
        name = next(iter(tensors))
        assert model.get_parameter(name).dtype == torch.bfloat16


def test_what_does_not_fit_is_refused_by_name(saved, tmp_path):
    model, tensors, directory = saved
    with pytest.raises(IndexerFileError, match=r"trained for the schedule FSSSFSSS lag=1, not for"):
        with apply_indexer(model, directory, ReuseSchedule.uniform(8, "1/4")):
            pass
    wider = build("deepseek_v32", index_n_heads=8)
    with pytest.raises(IndexerFileError, match=r"weight is \[16, 48\], the model's is \[8, 48"):
        with apply_indexer(wider, directory):
            pass
    assert digest(wider) == digest(build("deepseek_v32", index_n_heads=8))
    shared = build("glm_moe_dsa", indexer_types=["full"] * 4 + ["shared"] * 4)
    with pytest.raises(IndexerFileError, match=r"no tensor model\.layers\.4\.self_attn\.indexer"):
        with apply_indexer(shared, directory):
            pass
    bad = {k: torch.full_like(v, float("nan")) for k, v in tensors.items()}
    save_indexer(tmp_path / "nan", bad, SCHEDULE, base={}, card="")
    with pytest.raises(IndexerFileError, match="contains NaN or infinite values"):
        with apply_indexer(model, tmp_path / "nan"):
            pass


def test_damaged_and_missing_files_are_refused_by_name(saved):
    _, _, directory = saved
    assert indexer_facts(directory)["indexer_schedule"] == "FSSSFSSS lag=1"
    file = directory / "indexer.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(IndexerFileError, match=r"indexer\.safetensors: its content is not"):
        load_indexer(directory)
    file.write_bytes(content)
    facts = json.loads((directory / "schedule.json").read_text())
    (directory / "schedule.json").write_text("{")
    with pytest.raises(IndexerFileError, match=r"schedule\.json: not valid JSON"):
        read_schedule(directory)
    (directory / "schedule.json").write_text(json.dumps(facts | {"format": 2}))
    with pytest.raises(IndexerFileError, match="format 2"):
        read_schedule(directory)
    file.unlink()
    with pytest.raises(IndexerFileError, match=r"indexer\.safetensors: no such file"):
        read_schedule(directory)
