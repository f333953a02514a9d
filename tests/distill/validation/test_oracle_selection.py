"""Perfect selections: exact where nothing is shared, the top of the mean elsewhere."""

from __future__ import annotations

import pytest
import torch

from distill.objective.query_sampling import decode_mask
from distill.objective.teachers import IndexTeacher
from distill.validation.logit_kl import reference
from distill.validation.oracle_selection import (
    oracle_selections,
    top_of_mean,
)
from evalkit.dsa import index_scores, select
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.overlap import mass_recall
from tests.distill.helpers import batch, digest, features_of, schedule_of
from tests.dsa.tiny import TOPK, build


def test_of_one_consumer_it_is_that_ones_selection():
    model = build("deepseek_v32")
    features = features_of(model, batch(), 5, torch.arange(48))
    chosen = top_of_mean([IndexTeacher(features)], TOPK, chunk=500)
    assert torch.equal(chosen.sort(-1).values, select(features, TOPK).sort(-1).values)


def test_of_several_it_is_the_top_of_their_mean():
    model = build("deepseek_v32")
    schedule = schedule_of(model, "1/4")
    chosen = oracle_selections(model, schedule, batch(), [4])[4]
    shares = [
        index_scores(features_of(model, batch(), i, torch.arange(48))).softmax(-1)
        for i in (4, 5, 6, 7)
    ]
    expected = (sum(shares) / 4).topk(TOPK).indices[:, TOPK:].sort(-1).values
    assert torch.equal(chosen[:, TOPK:].sort(-1).values, expected)
    assert (chosen[:, 3] >= 0).sum(-1).tolist() == [4, 4]  # row 3 sees four keys


@pytest.mark.parametrize("family", ["deepseek_v32", "glm_moe_dsa", "deepseek_v4"])
def test_without_sharing_the_oracle_changes_nothing(family):
    model = build(family)
    before = digest(model)
    some = [batch(2, 64)]
    native = indexer_sites(model).layout.native
    original = reference(model, native, some)

    def given(b):
        return oracle_selections(model, native, b, native.full_layers)

    found = original.divergence(model, native, given=given)
    assert found.max() < 1e-6
    assert digest(model) == before
    assert "forward" not in vars(indexer_sites(model).owners[0].indexer)


def test_nothing_captures_more_of_the_consumers():
    model = build("deepseek_v32")
    schedule = schedule_of(model, "1/2")
    chosen = oracle_selections(model, schedule, batch(), [4])[4]
    own = select(features_of(model, batch(), 4), TOPK)
    shares = [index_scores(features_of(model, batch(), i)).softmax(-1) for i in (4, 5)]
    mean = sum(shares) / 2
    assert (mass_recall(chosen, mean) >= mass_recall(own, mean) - 1e-6).all()
    assert mass_recall(chosen, mean).mean() > mass_recall(own, mean).mean()


def test_positions_of_each_phase_get_what_their_consumers_want():
    model = build("deepseek_v32")
    schedule = schedule_of(model, "1/4", lag=1)
    mask = decode_mask(torch.tensor([20, 30]), 48)
    mixed = oracle_selections(model, schedule, batch(), [0, 4], mask)
    early = oracle_selections(model, schedule_of(model, "1/4"), batch(), [0, 4])
    # In decode layer 0 serves everything and layer 4 nobody.
    late = oracle_selections(model, schedule_of(model, "1/8"), batch(), [0])
    assert torch.equal(mixed[0][0, :20], early[0][0, :20])
    assert torch.equal(mixed[0][1, 30:], late[0][1, 30:])
    assert torch.equal(mixed[4], early[4])


def test_one_consumer_can_be_asked_alone():
    model = build("deepseek_v32")
    some, where = batch(), indexer_sites(model)
    schedule = schedule_of(model, "1/4")
    alone = oracle_selections(model, schedule, some, [0, 4], only={4: 6})
    both = oracle_selections(model, schedule, some, [0, 4])
    assert torch.equal(alone[0], both[0])
    assert not torch.equal(alone[4], both[4])
    own = top_of_mean(
        [IndexTeacher(features_of(model, some, 6))], where.owners[4].indexer.index_topk
    )
    assert torch.equal(alone[4], own)
