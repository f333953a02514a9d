"""Overlap over one long text: equal to whole forwards, whatever the chunks, bounded in memory."""

from __future__ import annotations

import pytest
import torch

from evalkit.dsa import ReuseSchedule, apply_schedule, index_features, select
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.overlap import overlap_matrix, own_selections, recall
from evalkit.dsa.overlap_scan import rows_at, scan, source_values
from evalkit.selections.hisa import Hisa
from evalkit.selections.precision import Precision
from tests.dsa.tiny import TOPK, build

IDS = torch.randint(3, 90, (1, 96), generator=torch.Generator().manual_seed(0))


def test_rows_lie_in_the_last_eighth():
    assert rows_at(80, 4) == [70, 73, 76, 79]
    assert rows_at(8, 32) == [7]
    assert rows_at(1024, 1) == [1023]


@pytest.mark.parametrize("family", ["deepseek_v32", "glm_moe_dsa"])
def test_chunks_equal_a_whole_forward(family):
    model = build(family)
    layers, (whole,) = scan(model, IDS, [64, 96], rows=5, chunk=96)
    _, (parts,) = scan(model, IDS, [64, 96], rows=5, chunk=17)
    assert layers == tuple(range(8))
    for length in (64, 96):
        rows = torch.tensor(rows_at(length, 5))
        both, supplied = overlap_matrix(own_selections(model, IDS[:, :length], rows), length)
        assert torch.allclose(whole[length].jaccard, both, atol=1e-6)
        assert torch.allclose(whole[length].recall, supplied, atol=1e-6)
        for name in ("jaccard", "recall", "mass"):
            a, b = getattr(whole[length], name), getattr(parts[length], name)
            assert torch.allclose(a, b, atol=1e-5), name
        assert whole[length].rows == 5


def test_a_layer_attends_to_its_own_selection_only():
    _, (matrices,) = scan(build("deepseek_v32"), IDS, [96], rows=6, chunk=32)
    mass = matrices[96].mass
    assert mass is not None
    assert torch.allclose(mass.diagonal(), torch.ones(8), atol=1e-5)
    upper = torch.triu(torch.ones(8, 8, dtype=torch.bool), 1)
    assert ((mass[upper] > 0) & (mass[upper] < 1)).all()
    assert (mass[upper.T] == 0).all()


def test_no_mass_where_attention_is_not_seen():
    model = build("deepseek_v4")
    layers, (matrices,) = scan(model, IDS, [96], rows=4, chunk=32, mass=False)
    assert matrices[96].mass is None
    assert matrices[96].jaccard.shape == (len(layers), len(layers))


def test_values_of_a_schedule():
    matrix = torch.arange(16.0).reshape(4, 4)
    schedule = ReuseSchedule.uniform(4, "1/2", 1)
    assert schedule.source == (0, 0, 0, 0)
    assert source_values(matrix, [0, 1, 2, 3], schedule).tolist() == [1.0, 2.0, 3.0]
    assert source_values(matrix, [0, 1, 2, 3], ReuseSchedule.uniform(4)).numel() == 0
    every = source_values(matrix, [0, 1, 2, 3], ReuseSchedule.uniform(4), every_layer=True)
    assert every.tolist() == [0.0, 5.0, 10.0, 15.0]
    # layer 2 has no indexer: nobody knows what it would select
    small = matrix[:3, :3]
    assert source_values(small, [0, 1, 3], schedule).tolist() == [1.0, 2.0]


def test_a_policy_gives_what_it_selects_from_the_same_features():
    model, rows = build("deepseek_v32"), torch.tensor(rows_at(96, 5))
    policies = (Precision(), Hisa(block=8, blocks=3, keys="fp4"))
    layers, (trained, same, cut) = scan(model, IDS, [96], rows=5, chunk=40, policies=policies)
    for name in ("jaccard", "recall", "mass"):
        assert torch.allclose(getattr(same[96], name), getattr(trained[96], name), atol=1e-6)
    given, sites = {}, indexer_sites(model)

    def observe(ordinal, call, _):
        features = index_features(model, sites.indexer(ordinal), call)
        given[ordinal] = select(features, TOPK, rows, policy=policies[1])

    full = ReuseSchedule.uniform(8)
    with torch.no_grad(), apply_schedule(model, full, chunked=True, observe=observe):
        model(IDS, use_cache=False)
    wanted = own_selections(model, IDS, rows)
    by_hand = [[float(recall(given[i], wanted[j], 96).mean()) for j in layers] for i in layers]
    assert torch.allclose(cut[96].recall, torch.tensor(by_hand), atol=1e-6)
    assert 0.3 < float(cut[96].recall.diagonal().mean()) < 1
    assert (cut[96].mass.diagonal() < 1).all()
