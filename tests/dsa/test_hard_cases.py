"""Schedules where selections are delicate: long YaRN positions, exact ties, compiled models."""

from __future__ import annotations

import shutil

import pytest
import torch

from evalkit.dsa import ReuseSchedule, apply_schedule, index_scores
from evalkit.dsa.families.sites import index_features, indexer_sites
from tests.dsa.tiny import LAYERS, TOPK, build, output, tokens

LENGTH = 48
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 40.0,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("family", ["deepseek_v32", "glm_moe_dsa"])
@pytest.mark.parametrize("first", [0, 5_000, 163_000])
def test_yarn_positions_beyond_the_trained_length(family, first):
    """Our selection is the library's there, and that of a cached decode that of the whole text."""
    from transformers import DynamicCache

    model = build(family, rope_parameters=YARN, max_position_embeddings=163_840).double()
    ids, schedule = tokens(1, LENGTH, seed=3), ReuseSchedule.uniform(LAYERS, "1/2", 1)
    positions = torch.arange(first, first + LENGTH)[None]
    with apply_schedule(model, schedule) as applied:
        applied.phase = "decode"
        library = output(model, ids, position_ids=positions, use_cache=False)
        cache, parts = DynamicCache(config=model.config), []
        for i in range(LENGTH):
            step = {"position_ids": positions[:, i : i + 1], "cache": cache, "use_cache": True}
            parts.append(output(model, ids[:, i : i + 1], **step))
    with apply_schedule(model, schedule, chunked=True) as applied:
        applied.phase = "decode"
        ours = output(model, ids, position_ids=positions, use_cache=False)
    assert torch.allclose(library, ours, atol=1e-5)
    assert torch.allclose(library, torch.cat(parts, 1), atol=1e-5)


def tied(family, **options):
    """One index head: about half of all scores are exact zeros."""
    return build(family, index_n_heads=1, **options).double()


def test_exact_ties_are_the_librarys_to_break():
    ids, pattern = tokens(2, LENGTH), "FSFSFSFS"
    full = tied("glm_moe_dsa")
    with apply_schedule(full, ReuseSchedule.uniform(LAYERS)):
        assert torch.equal(output(full, ids), output(full, ids))
    before = output(full, ids)
    with apply_schedule(full, ReuseSchedule.uniform(LAYERS)):
        assert torch.equal(output(full, ids), before)
    types = ["full" if letter == "F" else "shared" for letter in pattern]
    native = tied("glm_moe_dsa", indexer_types=types)
    native.load_state_dict(full.state_dict(), strict=False)
    with apply_schedule(full, ReuseSchedule.from_pattern(pattern)):
        assert torch.equal(output(full, ids), output(native, ids))


def test_among_ties_our_selection_is_as_good_as_the_librarys():
    model, found = tied("deepseek_v32"), {}
    ids = tokens(1, LENGTH)

    def observe(ordinal, call, selection):
        if ordinal == 0:  # the layers behind it read other keys, and see other texts
            indexer = indexer_sites(model).indexer(ordinal)
            scores = index_scores(index_features(model, indexer, call))
            picked = scores.gather(-1, selection.long().clamp(min=0))
            found[len(found)] = picked.masked_fill(selection < 0, -torch.inf), scores

    for chunked in (False, True):
        schedule = ReuseSchedule.uniform(LAYERS)
        with apply_schedule(model, schedule, chunked=chunked, observe=observe):
            output(model, ids, use_cache=False)
    (library, scores), (ours, _) = found[0], found[1]
    rows = slice(TOPK, None)  # before, everything is selected
    assert (scores[:, rows] == 0).float().mean() > 0.1
    assert torch.equal(library[:, rows].sort(-1).values, ours[:, rows].sort(-1).values)


@pytest.mark.slow
def test_a_compiled_model_follows_every_schedule():
    """Compiled before the block, and run under one schedule after the other: no stale graph."""
    layers = {"num_hidden_layers": 3, "mlp_layer_types": ["dense"] * 3}
    model, ids = build("deepseek_v32", **layers).double(), tokens(1, 40)
    half, lag = ReuseSchedule.from_pattern("FSF"), ReuseSchedule.uniform(3, 1, 1, lag_phase="all")

    def run(called, schedule):
        if schedule is None:
            return output(called, ids, use_cache=False)
        with apply_schedule(model, schedule):
            return output(called, ids, use_cache=False)

    expected = {schedule: run(model, schedule) for schedule in (None, half, lag)}
    assert not torch.allclose(expected[half], expected[lag], atol=1e-2)
    compiled = torch.compile(model, backend="eager")
    for schedule in (None, half, lag, None):
        assert torch.allclose(run(compiled, schedule), expected[schedule], atol=1e-8)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_a_model_compiled_by_inductor_follows_a_schedule():
    layers = {"num_hidden_layers": 2, "mlp_layer_types": ["dense"] * 2}
    model, ids = build("deepseek_v32", **layers), tokens(1, 24)
    stock = output(model, ids, use_cache=False)
    compiled = torch.compile(model)
    with apply_schedule(model, ReuseSchedule.from_pattern("FS")):
        expected = output(model, ids, use_cache=False)
        assert torch.allclose(output(compiled, ids, use_cache=False), expected, atol=1e-3)
    assert not torch.allclose(stock, expected, atol=1e-1)
