"""Only the students train; the model beside them stays as it is, to the byte."""

from __future__ import annotations

import pytest
import torch

from distill.models.forward import (
    final_hidden_states,
    swap_indexers,
    visit_indexer_calls,
)
from distill.models.student import Students, reinitialise
from distill.objective.loss import LossSums
from distill.training.step import distil_batch
from evalkit.dsa import ReuseSchedule, ScheduleError
from evalkit.dsa.attention import attention_seen
from evalkit.dsa.families.sites import indexer_sites
from tests.distill.helpers import batch, digest, setup
from tests.dsa.tiny import build

BOTH = [{"kind": "kl", "weight": 0.5}, {"kind": "listmle", "weight": 0.5}]


@pytest.mark.parametrize("family", ["deepseek_v32", "glm_moe_dsa", "deepseek_v4"])
@pytest.mark.parametrize("lag", [0, 1])
def test_training_moves_the_students_and_nothing_else(family, lag):
    model = build(family).requires_grad_(False)
    before = digest(model)
    _, students, plan = setup(model, "1/2", lag, queries={"per_sequence": 6}, loss=BOTH)
    start = students.state()
    optimizer = torch.optim.AdamW(students.named().values(), lr=1e-2)
    for step in range(2):
        optimizer.zero_grad()
        sums = distil_batch(model, students, batch(2, 64), [2 * step, 2 * step + 1], plan)
        optimizer.step()
        assert all(s.mean("kl") > 0 and s.mean("listmle") > 0 for s in sums.values())
    after = students.state()
    assert all(not torch.equal(start[k], after[k]) for k in students.named())
    assert digest(model) == before
    assert all(p.grad is None for p in model.parameters())
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in students.named().values()}
    assert not held & {id(p) for p in model.parameters()}


def test_a_step_lowers_the_loss_it_descends():
    model = build("deepseek_v32").requires_grad_(False)
    _, students, plan = setup(model, "1/4", queries={"per_sequence": 24})
    optimizer = torch.optim.AdamW(students.named().values(), lr=3e-3)
    values = []
    for _ in range(6):
        optimizer.zero_grad()
        sums = distil_batch(model, students, batch(2, 64), [0, 1], plan)
        optimizer.step()
        values.append(sums[4].mean("kl"))
    assert values[-1] < values[0]


def test_micro_batches_do_not_change_sums_or_gradients():
    model = build("deepseek_v32").requires_grad_(False)
    whole = batch(4, 64)
    results = []
    for size in (4, 1):
        _, students, plan = setup(model, "1/4", 1, queries={"per_sequence": 6}, loss=BOTH)
        total = {}
        for i in range(0, 4, size):
            part = type(whole)(whole.ids[i : i + size], whole.valid[i : i + size])
            for layer, sums in distil_batch(
                model, students, part, range(i, i + size), plan
            ).items():
                total.setdefault(layer, LossSums()).add(sums)
        results.append((total, {n: p.grad.clone() for n, p in students.named().items()}))
    (one, g1), (other, g2) = results
    for layer, sums in one.items():
        names = ("kl", "listmle")
        assert sums.vector(names) == pytest.approx(other[layer].vector(names), rel=1e-4)
    for name, gradient in g1.items():
        assert torch.allclose(gradient, g2[name], atol=1e-4 * gradient.abs().max()), name


def test_students_act_in_the_models_precision_and_leave():
    model = build("deepseek_v32").to(torch.bfloat16).requires_grad_(False)
    students = Students.of_model(indexer_sites(model), [0, 4])
    own = [indexer_sites(model).owners[i].indexer for i in (0, 4)]
    assert all(p.dtype == torch.float32 for p in students.named().values())
    with pytest.raises(RuntimeError, match="stop"), students.acting(model):
        inside = indexer_sites(model).owners[4].indexer
        assert inside is not own[1]
        assert next(inside.parameters()).dtype == torch.bfloat16
        raise RuntimeError("stop")
    assert [indexer_sites(model).owners[i].indexer for i in (0, 4)] == own


def test_unchanged_students_change_nothing():
    model = build("deepseek_v32")
    students = Students.of_model(indexer_sites(model), [0, 4])
    schedule = ReuseSchedule.uniform(8, "1/4")
    some = batch()

    def hidden():
        return final_hidden_states(model, schedule, some)

    before = hidden()
    with students.acting(model):
        assert torch.equal(hidden(), before)


def test_chosen_tensors_and_missing_indexers():
    model = build("deepseek_v32")
    students = Students.of_model(indexer_sites(model), [4], ["wq_b"])
    assert list(students.named()) == ["4.wq_b.weight"]
    with pytest.raises(ScheduleError, match="no indexer tensor"):
        Students.of_model(indexer_sites(model), [4], ["nothing"])
    shared = build("glm_moe_dsa", indexer_types=["full", "shared"] * 4)
    with pytest.raises(ScheduleError, match="layer 1 has no indexer"):
        Students.of_model(indexer_sites(shared), [1])


def test_random_starts_depend_on_the_seed_alone():
    model = build("deepseek_v32")
    states = []
    for seed in (0, 0, 1):
        students = Students.of_model(indexer_sites(model), [0, 4])
        reinitialise(students, seed)
        states.append(students.state())
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])
    assert not torch.equal(states[0]["4.wk.weight"], states[2]["4.wk.weight"])
    assert not torch.equal(states[0]["4.wk.weight"], states[0]["0.wk.weight"])
    assert (states[0]["4.k_norm.weight"] == 1).all()


def test_a_forward_that_stops_early_leaves_the_model_usable():
    model = build("deepseek_v32")
    seen = []
    visit_indexer_calls(
        model, ReuseSchedule.uniform(8, "1/4"), batch(), lambda o, _: seen.append(o), layers=[0, 4]
    )
    assert seen == [0, 4]
    with swap_indexers(indexer_sites(model), {}), attention_seen(model, lambda *_: None):
        assert model(batch().ids).logits.shape[1] == 48
