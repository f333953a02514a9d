"""Copied indexers: their queries and keys are the attention's, their selections sparse."""

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from distill.retrofit.convert import FAMILIES, Indexers, convert
from distill.retrofit.dense import load_dense
from distill.retrofit.indexers import head_groups
from evalkit.dsa import apply_schedule, index_features
from evalkit.dsa.families.sites import indexer_sites
from tests.distill.retrofit.dense_models import save_dense, token_ids

LENGTH = 32


def pairs_of(model, ids):
    """(features of every indexer, its attention's weights [B, H, T, T]) of one forward."""
    where, features = indexer_sites(model), {}

    def observe(ordinal, call, *_):
        features[ordinal] = index_features(model, where.owners[ordinal].indexer, call)

    with torch.no_grad(), apply_schedule(model, where.layout.native, observe=observe):
        attentions = model(ids, output_attentions=True).attentions
    return [(features[i], attentions[i]) for i in range(len(attentions))]


@pytest.mark.parametrize("family", FAMILIES)
def test_index_logits_are_the_attention_logits_but_for_the_key_norm(tmp_path, family):
    save_dense(tmp_path / "dense", num_attention_heads=6, num_key_value_heads=3)
    convert(load_dense(str(tmp_path / "dense")), tmp_path / "dsa", family, Indexers())
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "dsa", attn_implementation="eager")
    for layer in model.model.layers:
        layer.self_attn.indexer.k_norm = _Identity()
    for features, attention in pairs_of(model.eval(), token_ids(LENGTH)):
        logits = torch.einsum("bthd,bsd->bhts", features.query, features.key) * 8**-0.5
        hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        expected = logits.masked_fill(hidden, float("-inf")).softmax(-1)
        torch.testing.assert_close(attention, expected, rtol=1e-4, atol=1e-5)


def test_head_weights_are_positive_and_alike(tmp_path):
    save_dense(tmp_path / "dense")
    convert(load_dense(str(tmp_path / "dense")), tmp_path / "dsa", "deepseek_v32", Indexers())
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "dsa", attn_implementation="eager")
    for features, _ in pairs_of(model.eval(), token_ids(LENGTH)):
        assert (features.weight > 0).all()
        assert torch.equal(features.weight, features.weight[..., :1].expand_as(features.weight))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_copy_keeps_more_attention_than_random_positions(tmp_path, family):
    save_dense(tmp_path / "dense")
    convert(
        load_dense(str(tmp_path / "dense")), tmp_path / "dsa", family, Indexers(topk=LENGTH // 4)
    )
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "dsa", index_topk=LENGTH)
    model.set_attn_implementation("eager")
    features, attention = pairs_of(model.eval(), token_ids(LENGTH))[0]
    last = attention[:, :, -1].sum(1)  # [B, T] of the last query, over heads
    scores = (features.query[:, -1] @ features.key.transpose(1, 2)).relu()
    scores = (features.weight[:, -1, :, None] * scores).sum(1)
    chosen = scores.topk(LENGTH // 4).indices
    share = last.gather(1, chosen).sum() / last.sum()
    best = last.topk(LENGTH // 4).values.sum() / last.sum()
    assert best >= share > 0.5 * (best + 0.25)


def test_fewer_heads_take_the_sum_of_their_queries():
    assert head_groups(9, 3, 9) == tuple((head,) for head in range(9))
    assert head_groups(9, 3, 3) == ((0, 3, 6), (1, 4, 7), (2, 5, 8))
    assert head_groups(9, 3, 1) == (tuple(range(9)),)
    assert head_groups(4, 1, 2) == ((0, 1), (2, 3))
    for index_heads in range(1, 10):
        parts = head_groups(9, 3, index_heads)
        assert len(parts) == index_heads
        assert sorted(head for part in parts for head in part) == list(range(9))


def test_a_merged_head_scores_the_sum_of_its_heads_logits(tmp_path):
    save_dense(tmp_path / "dense")
    dense = load_dense(str(tmp_path / "dense"))
    convert(dense, tmp_path / "four", "deepseek_v32", Indexers(heads=4))
    convert(dense, tmp_path / "two", "deepseek_v32", Indexers(heads=2))
    logits = []
    for name in ("four", "two"):
        model = AutoModelForCausalLM.from_pretrained(tmp_path / name, attn_implementation="eager")
        features, _ = pairs_of(model.eval(), token_ids(LENGTH))[0]
        logits.append(torch.einsum("bthd,bsd->bhts", features.query, features.key))
    four, two = logits
    expected = torch.stack([four[:, list(heads)].sum(1) for heads in head_groups(4, 2, 2)], 1)
    torch.testing.assert_close(two, expected, rtol=1e-4, atol=1e-4)


class _Identity(nn.Module):
    """In the place of the indexer's key norm, whose weight tells a dtype."""

    weight = torch.ones(1)

    def forward(self, x):
        return x
