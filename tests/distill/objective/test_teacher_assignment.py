"""Teachers: what a consumer's indexer or attention says, and which layer teaches for which."""

from __future__ import annotations

import pytest
import torch

from distill.losses.base import Needs
from distill.objective.query_sampling import QueryGroup
from distill.objective.teacher_assignment import TeacherAssignment, teachers_of_batch
from distill.objective.teachers import consumer_targets
from evalkit.dsa import ReuseSchedule, UnsupportedModelError, apply_schedule, index_scores
from evalkit.dsa.attention import attention_seen, attention_share
from evalkit.dsa.families.sites import indexer_sites
from tests.distill.helpers import LENGTH, batch, features_of, schedule_of
from tests.dsa.tiny import build

POSITIONS = torch.tensor([[9, 20, 47], [10, 11, 33]])


def native_of(model):
    return indexer_sites(model).layout.native


def group(phase="prefill"):
    return QueryGroup(phase, POSITIONS, torch.ones(2, 3))


def test_consumers_of_both_phases():
    model = build("deepseek_v32")
    schedule = schedule_of(model, "1/2", lag=1)  # F at 0 2 4 6
    assignment = TeacherAssignment.of(native_of(model), schedule, (0, 2, 6))
    assert assignment.teachers("prefill", 2) == (2, 3)
    assert assignment.teachers("decode", 2) == (4, 5)
    assert assignment.teachers("decode", 0) == (0, 1, 2, 3)
    assert assignment.teachers("decode", 6) == ()
    assert assignment.indexers_for(2) == {2, 3, 4, 5}


def test_a_layer_without_indexer_is_taught_by_its_native_source():
    types = ["full", "shared"] * 4
    model = build("glm_moe_dsa", indexer_types=types)
    schedule = ReuseSchedule.from_pattern("FSSSFSSS")
    assignment = TeacherAssignment.of(native_of(model), schedule, (0, 4))
    assert assignment.consumers["prefill", 4] == (4, 5, 6, 7)
    assert assignment.teachers("prefill", 4) == (4, 4, 6, 6)
    assert assignment.teachers("prefill", 4, "attention") == (4, 5, 6, 7)
    teachers = teachers_of_batch(model, batch(), [group()], assignment, ("indexer",))
    assert {layer for _, _, layer in teachers} == {0, 2, 4, 6}


@pytest.mark.parametrize("family", ["deepseek_v32", "glm_moe_dsa", "deepseek_v4"])
def test_index_teachers_score_as_the_layer_does(family):
    model = build(family)
    layers = schedule_of(model).layer_ids
    assignment = TeacherAssignment.of(
        native_of(model), schedule_of(model, f"1/{len(layers)}"), (0,)
    )
    teachers = teachers_of_batch(model, batch(), [group()], assignment, ("indexer",))
    for layer in range(len(layers)):
        whole = index_scores(features_of(model, batch(), layer))
        expected = whole.gather(1, POSITIONS.unsqueeze(-1).expand(-1, -1, whole.shape[-1]))
        teacher = teachers["indexer", "prefill", layer]
        assert torch.allclose(teacher.scores(slice(0, 3), teacher.keys), expected, atol=1e-6)
        part = teacher.scores(slice(1, 2), 12 if family != "deepseek_v4" else 3)
        assert torch.allclose(part, expected[:, 1:2, : part.shape[-1]], atol=1e-6)


def test_attention_teacher_equals_the_librarys_attention_weights():
    model = build("deepseek_v32")
    assignment = TeacherAssignment.of(native_of(model), schedule_of(model, "1/8"), (0,))
    teachers = teachers_of_batch(
        model, batch(), [group()], assignment, ("attention", "attention_dense")
    )
    weights = {}
    model.config._attn_implementation = "eager"
    handles = [
        layer.self_attn.register_forward_hook(lambda _m, _a, out, i=i: weights.update({i: out[1]}))
        for i, layer in enumerate(model.model.layers)
    ]
    with torch.no_grad(), apply_schedule(model, schedule_of(model, 1), chunked=True):
        model(batch().ids, use_cache=False)
    for handle in handles:
        handle.remove()
    model.config._attn_implementation = "sdpa"
    for layer in range(8):
        mean = weights[layer].mean(1)
        expected = mean.gather(1, POSITIONS.unsqueeze(-1).expand(-1, -1, LENGTH))
        share = teachers["attention", "prefill", layer].scores(slice(0, 3), LENGTH).exp()
        assert torch.allclose(share, expected, atol=1e-5)
        dense = teachers["attention_dense", "prefill", layer].scores(slice(0, 3), LENGTH).exp()
        assert torch.allclose(dense.sum(-1), torch.ones(2, 3), atol=1e-5)
        assert (dense > 0).sum() > (share > 0).sum()


def test_attention_share_by_hand():
    # One key head for two query heads; the first head sees ln 3 more on key 1.
    query = torch.tensor([[[[1.0]], [[0.0]]]])
    key = torch.tensor([[[[0.0], [torch.log(torch.tensor(3.0))], [9.0]]]])
    allowed = torch.tensor([[[True, True, False]]])
    share = attention_share(query, key, 1.0, allowed).exp()
    assert torch.allclose(share[0, 0], torch.tensor([(0.25 + 0.5) / 2, (0.75 + 0.5) / 2, 0.0]))


def test_seeing_attention_leaves_nothing_behind():
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = ALL_ATTENTION_FUNCTIONS["sdpa"]
    with pytest.raises(RuntimeError, match="stop"), attention_seen(build("deepseek_v32"), _stop):
        raise RuntimeError("stop")
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is before
    with (
        pytest.raises(UnsupportedModelError, match="no attention teacher"),
        attention_seen(build("deepseek_v4"), _stop),
    ):
        pass


def _stop(*_):
    raise AssertionError


def test_the_target_is_the_mean_of_the_consumers():
    model = build("deepseek_v32")
    assignment = TeacherAssignment.of(native_of(model), schedule_of(model, "1/4"), (4,))
    teachers = teachers_of_batch(model, batch(), [group()], assignment, ("indexer",))
    own = [teachers["indexer", "prefill", i] for i in (4, 5, 6, 7)]
    support = own[0].scores(slice(0, 3), LENGTH) > float("-inf")
    targets = consumer_targets(own, slice(0, 3), support, Needs(mean=True, order=4))
    expected = sum(t.scores(slice(0, 3), LENGTH).softmax(-1) for t in own) / 4
    assert torch.allclose(targets.mean, expected, atol=1e-6)
    assert len(targets.orders) == 4
