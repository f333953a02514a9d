"""A family that no file of the package knows works by its record alone."""

from __future__ import annotations

import pytest
import torch

from evalkit.config.arm import ArmConfig
from evalkit.dsa import (
    ReuseSchedule,
    ScheduleError,
    UnsupportedModelError,
    apply_schedule,
    index_features,
    layout,
    select,
)
from evalkit.dsa.engine_config.export import export
from evalkit.dsa.families.adapter import Adapter
from evalkit.dsa.families.base import Family
from evalkit.dsa.families.registry import FAMILIES
from evalkit.dsa.families.sites import ADAPTERS, indexer_sites
from evalkit.engagement.evidence import dialect_of
from evalkit.engagement.server_info import ServerInfo
from tests.dsa.tiny import LAYERS, TOPK, build, output, tokens

TOY = Family(  # GLM's indexer, on every second layer
    layer_type="toy_attention",
    parameters=FAMILIES["glm_moe_dsa"].parameters,
    adapter="mla",
    rope="interleaved",
    dialect="transformers",
)
TYPES = ["toy_attention", "other_attention"] * (LAYERS // 2)
EVEN = tuple(range(0, LAYERS, 2))


@pytest.fixture
def toy_model(monkeypatch):
    """A GLM model that calls itself toy."""
    monkeypatch.setitem(FAMILIES, "toy", TOY)
    model = build("glm_moe_dsa")
    fields = {"model_type": "toy"}
    model.config.__class__ = type("ToyConfig", (type(model.config),), fields)
    model.config.layer_types = TYPES
    return model


def run(model):
    """Output without a cache, whose layers transformers chooses by types that it knows."""
    with torch.no_grad():
        return output(model, tokens(1, 32), use_cache=False)


def test_layout_and_schedules(toy_model):
    places = layout(toy_model.config.to_dict())
    assert (places.layer_ids, places.dense_tokens) == (EVEN, TOPK)
    assert indexer_sites(toy_model).family is TOY
    before = run(toy_model)
    with apply_schedule(toy_model, places.native):
        assert torch.equal(run(toy_model), before)
    with apply_schedule(toy_model, ReuseSchedule.uniform(EVEN, "1/2")) as applied:
        assert not torch.equal(run(toy_model), before)
    assert dict(applied.calls) == {0: 1, 2: 1}


def test_index_features(toy_model):
    """Our selection is the library's own."""
    sites, agree = indexer_sites(toy_model), []

    def observe(ordinal, call, selection):
        features = index_features(toy_model, sites.indexer(ordinal), call)
        ours = select(features, TOPK)[:, TOPK:].sort(-1).values
        agree.append(torch.equal(ours, selection[:, TOPK:].long().sort(-1).values))

    with apply_schedule(toy_model, sites.layout.native, observe=observe):
        run(toy_model)
    assert agree == [True] * len(EVEN)


def test_settings_and_evidence(monkeypatch):
    monkeypatch.setitem(FAMILIES, "toy", Family(adapter="mla", dialect="transformers-hy-v4"))
    places = layout({"model_type": "toy", "num_hidden_layers": 4})
    schedule = ReuseSchedule.from_pattern("FSFS")
    server = ServerInfo("", "transformers")
    choice = dialect_of(ArmConfig(name="arm"), server, schedule, places.model_type)
    settings = export(schedule, engine=choice.name, native=places.native, model_type="toy")
    assert settings.overrides == {"indexer_types": ["full", "shared", "full", "shared"]}
    with pytest.raises(ScheduleError, match="by other rules: use transformers-hy-v4"):
        export(schedule, engine="transformers", model_type="toy")


def test_a_checkpoints_configuration(monkeypatch):
    from distill.checkpoint.export import settings_for

    monkeypatch.setitem(FAMILIES, "toy", Family(adapter="mla", dialect="transformers"))
    config = {"model_type": "toy", "num_hidden_layers": 4}
    settings, notes = settings_for(config, ReuseSchedule.from_pattern("FSFS"))
    assert settings["index_topk_pattern"] == "FSFS"
    assert not any("transformers" in note for note in notes)


def test_new_mathematics_is_one_more_name(monkeypatch, toy_model):
    mla = ADAPTERS["mla"](TOY).features
    calls = []

    def features(indexer, call, rows=None, /):
        calls.append(call.layer_id)
        return mla(indexer, call, rows)

    monkeypatch.setitem(ADAPTERS, "toy_mathematics", lambda _: Adapter(features))
    family = Family(
        layer_type="toy_attention", parameters=TOY.parameters, adapter="toy_mathematics"
    )
    monkeypatch.setitem(FAMILIES, "toy", family)
    with apply_schedule(toy_model, ReuseSchedule.uniform(EVEN), chunked=True):
        run(toy_model)
    assert calls == list(EVEN)


def test_a_refused_family_says_why(monkeypatch):
    monkeypatch.setitem(FAMILIES, "toy", Family(refused="it selects blocks"))
    with pytest.raises(UnsupportedModelError, match="toy is not supported: it selects blocks"):
        layout({"model_type": "toy", "num_hidden_layers": 4})
