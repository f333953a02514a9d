"""Fitted head weights: the least KL to all consumers together, counted where it counts."""

from __future__ import annotations

import pytest
import torch

from distill.config.train import ClosedFormConfig
from distill.init.candidates import FITTED, candidates, closed_form
from distill.init.head_weights import HeadWeights
from distill.validation.logit_kl import Criterion, arm_divergence, reference
from evalkit.dsa import index_scores
from evalkit.dsa.families.sites import indexer_sites
from tests.distill.helpers import batch, digest, features_of, setup
from tests.dsa.tiny import build

LAYER, LAST = 4, 7


def mean_kl(model, students, plan, texts, weight, state):
    """The same number by dense softmaxes of every position, without the module under test."""
    students.load_of(LAYER, state)
    total, first = 0.0, 0
    for text in texts:
        with students.acting(model):
            said = index_scores(features_of(model, text, LAYER, schedule=plan.schedule))
        log_q = said.log_softmax(-1).masked_fill(torch.isneginf(said), 0)
        mean = torch.stack(
            [
                index_scores(features_of(model, text, layer)).softmax(-1)
                for layer in plan.schedule.consumers(LAYER, "prefill")
            ]
        ).mean(0)
        each = (torch.special.xlogy(mean, mean) - mean * log_q).sum(-1)
        part = weight[first : first + each.numel()]
        total, first = total + float((each.flatten() * part).sum()), first + each.numel()
    return total


@pytest.fixture(scope="module")
def fitted():
    model = build("deepseek_v32")
    texts = [batch(2, 48, s) for s in (0, 1)]
    _, students, plan = setup(model, "1/2", layers=(LAYER,), queries={"per_sequence": 48})
    weight = torch.rand(4 * 48, generator=torch.Generator().manual_seed(1)) ** 12
    weight /= weight.sum()
    came = candidates(model, students, plan, texts, LAYER, 1e-2)["5"]
    state = HeadWeights(model, students, plan, texts, weight, LAYER).fit(came)
    return model, students, plan, texts, weight, came, state


def test_only_head_weights_change(fitted):
    *_, came, state = fitted
    changed = [name for name in came if not torch.equal(came[name], state[name])]
    assert changed == ["weights_proj.weight"]


def test_no_step_from_the_fit_lowers_the_kl(fitted):
    """A convex problem: what is not beaten nearby is the answer."""
    model, students, plan, texts, weight, came, state = fitted

    def at(candidate):
        return mean_kl(model, students, plan, texts, weight, candidate)

    before, after = at(came), at(state)
    assert after < 0.9 * before
    generator = torch.Generator().manual_seed(2)
    name = "weights_proj.weight"
    for _ in range(8):
        step = torch.randn(state[name].shape, generator=generator)
        step *= 0.05 * (state[name] - came[name]).norm() / step.norm()
        assert at(state | {name: state[name] + step}) > after - 2e-4
    back = state[name] + 0.3 * (came[name] - state[name])
    assert at(state | {name: back}) > after


def test_each_position_counts_by_its_weight(fitted):
    """Of two fits each is the better one by the weights that it was made with."""
    model, students, plan, texts, weight, came, state = fitted
    even = torch.full_like(weight, 1 / len(weight))
    other = HeadWeights(model, students, plan, texts, even, LAYER).fit(came)
    for counted, best, second in ((weight, state, other), (even, other, state)):
        gap = mean_kl(model, students, plan, texts, counted, second)
        gap -= mean_kl(model, students, plan, texts, counted, best)
        assert gap > 0.01


@pytest.mark.parametrize(
    ("family", "lag"), [("deepseek_v32", 1), ("glm_moe_dsa", 0), ("deepseek_v4", 0)]
)
def test_every_candidate_comes_a_second_time_and_the_best_stays(family, lag):
    model = build(family)
    before, where = digest(model), indexer_sites(model)
    texts = [batch(2, 64, s) for s in (0, 1)]
    _, students, plan = setup(model, "1/2", lag)
    original = reference(model, where.layout.native, texts)
    criterion = Criterion.of(arm_divergence(model, students, plan, original), 1.0)
    config = ClosedFormConfig(weights="fitted")
    choices = closed_form(model, students, plan, original, criterion, config)
    for choice in choices:
        plain = {name for name in choice.scores if not name.endswith(FITTED)}
        assert "own" in plain
        assert set(choice.scores) == plain | {f"{name}{FITTED}" for name in plain}
        assert choice.chosen == min(choice.scores, key=choice.scores.get)
    after = criterion(arm_divergence(model, students, plan, original))
    assert after == pytest.approx(min(choices[-1].scores.values()), rel=1e-5)
    assert digest(model) == before
    assert all(p.requires_grad for p in students.named().values())
    assert all(p.grad is None for p in students.named().values())
