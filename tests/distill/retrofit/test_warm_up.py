"""Dense warm-up: the indexers of a converted model learn the dense model's own attention."""

from __future__ import annotations

import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM

from distill.config.train import DistillConfig
from distill.data.batch import Batch
from distill.errors import DistillError
from distill.models.load import load_model
from distill.objective.plan import make_plan
from distill.objective.query_sampling import QueryGroup
from distill.objective.teacher_assignment import teachers_of_batch, trained_layers
from distill.retrofit.convert import Indexers, convert
from distill.retrofit.dense import load_dense
from distill.training.artifacts import save
from distill.training.events import Evaluated
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.families.sites import indexer_sites, topk_of
from evalkit.dsa.indexer_metadata import indexer_facts
from tests.distill.retrofit.dense_models import save_dense, token_ids
from tests.distill.training.test_trainer import train
from tests.paths import TINY_MODEL

LENGTH, TOPK = 48, 8


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """(dense model, directory of the converted one) of three layers, 8 keys selected."""
    folder = tmp_path_factory.mktemp("warm-up")
    dense = save_dense(folder / "dense", vocab_size=640, num_hidden_layers=3)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY_MODEL / name, folder / "dense" / name)
    convert(load_dense(str(folder / "dense")), folder / "dsa", "deepseek_v32", Indexers(topk=TOPK))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY_MODEL / name, folder / "dsa" / name)
    return folder / "dense", dense, folder / "dsa"


def recipe(model, **sections):
    base = {
        "model": str(model),
        "dtype": "float32",
        "arm": {"retention": "1"},
        "teacher": {"kind": "attention_dense"},
        "student": {"start": "random", "first_layer": "train"},
        "data": {"source": {"kind": "tiny"}, "length": LENGTH, "train": 8, "held_out": 3}
        | {"calibration": 1, "shortest": 24},
        "queries": {"per_sequence": 32},
        "train": {"steps": 30, "batch": 4, "micro_batch": 4, "states": "off_policy", "lr": 0.02},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    return DistillConfig.model_validate(base)


def test_the_teacher_is_the_dense_models_attention_summed_over_heads(converted):
    folder, _, path = converted
    model = load_model(str(path), "float32", "cpu")
    ids = token_ids(LENGTH)
    positions = torch.tensor([[9, 20, 47], [10, 11, 33]])
    group = QueryGroup("prefill", positions, torch.ones(2, 3))
    schedule = indexer_sites(model).layout.native
    plan = make_plan(model, schedule, schedule.full_layers, recipe(path))
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool))
    with plan.original(model):
        teachers = teachers_of_batch(model, batch, [group], plan.assignment, ("attention_dense",))
    assert topk_of(indexer_sites(model).indexer(0)) == TOPK  # as before
    dense = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        attentions = dense(ids, output_attentions=True).attentions
    for layer, attention in enumerate(attentions):
        rows = attention.mean(1).gather(1, positions.unsqueeze(-1).expand(-1, -1, LENGTH))
        taught = teachers["attention_dense", "prefill", layer].scores(slice(0, 3), LENGTH).exp()
        torch.testing.assert_close(taught, rows, rtol=1e-3, atol=1e-5)


def test_random_indexers_learn_it_and_come_nearer_to_the_dense_model(converted, tmp_path):
    _, _, path = converted
    seen = []
    trainer = train(recipe(path), tmp_path / "run", on_event=seen.append)
    first, *_, last = [e.metrics for e in seen if isinstance(e, Evaluated) and e.what == "students"]
    assert last.sums.mean("mass_recall") > first.sums.mean("mass_recall") + 0.02
    assert last.logit_kl < first.logit_kl
    losses = [sum(m.sums.losses[i].mean("kl") for i in range(3)) for m in (first, last)]
    assert losses[1] < 0.8 * losses[0]
    assert trainer.setup.trained == (0, 1, 2)
    assert trainer.setup.warnings == ()
    facts = indexer_facts(save(trainer.setup, trainer.best, trainer.state, tmp_path / "run"))
    assert facts["indexer_sha256"]


def test_an_arm_that_reuses_nothing_needs_an_attention_to_learn_from():
    alone = ReuseSchedule.uniform(4)
    with pytest.raises(DistillError, match="every full layer serves itself alone"):
        trained_layers(alone, "train")
    assert trained_layers(alone, "train", "attention") == (0, 1, 2, 3)
    assert trained_layers(alone, "keep", "attention_dense") == (1, 2, 3)
    reuse = ReuseSchedule.from_pattern("FSFF")  # the others of an arm that reuses stay as they are
    assert trained_layers(reuse, "train", "attention_dense") == (0,)
