"""What far keys are worth: against a second forward, at its border, and in the criterion."""

from __future__ import annotations

import pytest
import torch

from distill.validation.logit_kl import Criterion, reference
from distill.validation.long_range import latest_keys, long_range_gain
from evalkit.dsa.families.sites import indexer_sites, topk_of
from recipes.tiny.forward import forward
from tests.distill.helpers import LENGTH, batch, digest
from tests.dsa.tiny import build


def test_latest_keys():
    assert latest_keys(torch.arange(4), 1, 2).tolist() == [[0, -1], [1, 0], [2, 1], [3, 2]]
    assert latest_keys(torch.arange(6), 2, 2).tolist() == [
        [-1, -1],
        [0, -1],
        [0, -1],
        [1, 0],
        [1, 0],
        [2, 1],
    ]


def test_the_gain_is_the_divergence_from_a_model_with_a_window():
    model, some = build("deepseek_v32"), [batch(2, seed=s) for s in (0, 1)]
    sites, before = indexer_sites(model), digest(model)
    topk = topk_of(sites.owners[0].indexer)
    gain = long_range_gain(model, reference(model, sites.layout.native, some))
    age = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    window = ((age >= 0) & (age < topk)).expand(2, -1, -1)
    expected = []
    for each in some:
        with torch.no_grad():
            whole = model.lm_head(forward(model, each.ids))
            near = model.lm_head(forward(model, each.ids, masks=[window] * len(sites.owners)))
        p, r = whole.log_softmax(-1), near.log_softmax(-1)
        expected.append((p.exp() * (p - r)).sum(-1))
    assert torch.allclose(gain, torch.cat(expected).flatten(), atol=1e-5)
    assert digest(model) == before


@pytest.mark.parametrize("family", ["deepseek_v32", "glm_moe_dsa", "deepseek_v4"])
def test_nothing_lies_far_back_before_the_selection_is_full(family):
    model = build(family)
    sites, some = indexer_sites(model), batch(2, 64)
    gain = long_range_gain(model, reference(model, sites.layout.native, [some])).view(2, 64)
    border = topk_of(sites.owners[0].indexer) * sites.layout.ratio
    assert border < 48
    assert gain[:, :border].max() < 1e-6
    assert gain[:, border:].max() > 1e-6


def test_the_criterion_counts_positions_by_their_gain():
    plain, gain = torch.tensor([0.0, 5.0, 1.0, 4.0]), torch.tensor([3.0, 1.0, 0.0, 0.0])
    found = torch.tensor([1.0, 5.0, 100.0, 100.0])
    assert Criterion.of(plain, 1.0, gain)(found) == pytest.approx(2.0)
    assert Criterion.of(plain, 0.5, gain)(found) == pytest.approx(5.0)
    even = Criterion.of(plain, 0.5, torch.zeros(4))  # nothing lies far back
    assert even(found) == pytest.approx(52.5)
