"""Overlap of selections: by hand, on a model, whatever the chunks."""

from __future__ import annotations

import pytest
import torch

from evalkit.dsa import ReuseSchedule, UnsupportedModelError, index_scores
from evalkit.dsa.overlap import (
    common,
    jaccard,
    mass_recall,
    overlap_matrix,
    own_selections,
    recall,
    selection_recall,
)
from tests.distill.helpers import batch, features_of
from tests.dsa.tiny import TOPK, build

A = torch.tensor([[[0, 1, 2, 3], [5, 4, -1, -1], [-1, -1, -1, -1]]])
B = torch.tensor([[[3, 2, 7, 8], [4, -1, -1, -1], [-1, -1, -1, -1]]])


def test_by_hand():
    assert common(A, B, 9).tolist() == [[2, 1, 0]]
    assert jaccard(A, B, 9)[0].tolist() == pytest.approx([2 / 6, 1 / 2, 1.0])
    assert recall(A, B, 9)[0].tolist() == pytest.approx([2 / 4, 1.0, 1.0])
    assert recall(B, A, 9)[0].tolist() == pytest.approx([2 / 4, 1 / 2, 1.0])
    share = torch.full((1, 3, 9), 1 / 9)
    assert mass_recall(A, share)[0].tolist() == pytest.approx([4 / 9, 2 / 9, 0.0])


def test_full_sets_obey_recall_from_jaccard():
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(2, 5, 30, generator=generator).topk(6).indices for _ in range(2))
    j = jaccard(a, b, 30)
    assert torch.allclose(recall(a, b, 30), 2 * j / (1 + j))
    for chunk in (1, 61, 10**6):
        assert torch.equal(common(a, b, 30, chunk_elements=chunk), common(a, b, 30))


def test_layers_of_a_model():
    model, rows = build("deepseek_v32"), torch.tensor([20, 40])
    selections = own_selections(model, batch().ids, rows)
    assert sorted(selections) == list(range(8))
    scores = index_scores(features_of(model, batch(), 3), rows)
    expected = scores.topk(TOPK).indices.sort(-1).values
    assert torch.equal(selections[3].sort(-1).values, expected)
    same, supplied = overlap_matrix(selections, 48)
    assert torch.equal(same, same.T)
    assert torch.allclose(supplied, 2 * same / (1 + same), atol=0.1)  # means of a concave map
    schedule = ReuseSchedule.uniform(8, "1/4", 1)
    recalls = selection_recall(selections, schedule, 48)
    assert recalls[0] == 1.0
    assert recalls[5] == pytest.approx(float(recall(selections[0], selections[5], 48).mean()))
    assert selection_recall(selections, schedule, 48, "prefill")[4] == 1.0


def test_natively_shared_layers_are_left_out():
    model = build("glm_moe_dsa", indexer_types=["full", "shared"] * 4)
    selections = own_selections(model, batch().ids, torch.tensor([30]))
    assert sorted(selections) == [0, 2, 4, 6]
    schedule = ReuseSchedule.from_pattern("FSSSFSSS")
    assert sorted(selection_recall(selections, schedule, 48)) == [0, 2, 4, 6]


def test_a_family_without_scores_says_why():
    with pytest.raises(UnsupportedModelError, match="pools of tokens"):
        own_selections(build("glm5_next_text"), batch().ids, torch.tensor([30]))
