"""Sparse attention equals attention under a mask: outputs, caches, padding, gradients, memory."""

from __future__ import annotations

from functools import cache, partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.dsa import ReuseSchedule, apply_schedule, select
from evalkit.dsa.families.registry import FAMILIES
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.sparse_attention import sparse_attention
from evalkit.dsa.transformers_model import new_cache, text_config_of
from tests.dsa.test_gradients import assert_equal, checkpointed, gradients, loss_of, plain
from tests.dsa.test_scores import Spy
from tests.dsa.tiny import CLASSES, TOPK, build, output, tokens

SPARSE = sorted(f for f in CLASSES if FAMILIES[f].sparse)
LENGTH = 48


@cache
def tiny(family):
    """In double precision no selection hangs on rounding."""
    return build(family).double()


def schedule_of(model):
    return ReuseSchedule.uniform(indexer_sites(model).layout.layer_ids, "1/2", 1)


def both(model, ids, *, chunked=False, feed=None, **inputs):
    """Outputs under masked and under sparse attention."""
    found = []
    for sparse in (False, True):
        under = apply_schedule(model, schedule_of(model), chunked=chunked, sparse=sparse)
        with torch.no_grad(), under:
            if feed is None:
                found.append(output(model, ids, use_cache=False, **inputs))
            else:
                found.append(in_pieces(model, ids, feed, **inputs))
    return found


def in_pieces(model, ids, ends, mask=None):
    """Output with a cache, filled in pieces."""
    mask = torch.ones_like(ids) if mask is None else mask
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    store, parts, start = new_cache(model), [], 0
    for end in ends:
        parts.append(
            output(
                model,
                ids[:, start:end],
                attention_mask=mask[:, :end],
                position_ids=positions[:, start:end],
                cache=store,
                use_cache=True,
            )
        )
        start = end
    return torch.cat(parts, 1)


def test_the_families_with_positions_are_sparse():
    assert SPARSE == [
        "axk2",
        "deepseek_v32",
        "dots3_note_text",
        "glm_moe_dsa",
        "hy_v4",
        "hy_v4_vl_text",
        "mistral_large4_text",
    ]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("family", SPARSE)
def test_equals_masked_attention(family, chunked):
    ids = tokens(2, LENGTH)
    masked, sparse = both(tiny(family), ids, chunked=chunked)
    assert torch.allclose(masked, sparse, atol=1e-9)
    masked, sparse = both(tiny(family), ids, chunked=chunked, feed=[20, 33, 46, 47, 48])
    assert torch.allclose(masked, sparse, atol=1e-9)


def padded(lengths, width):
    mask = torch.zeros(len(lengths), width, dtype=torch.long)
    for row, length in enumerate(lengths):
        mask[row, width - length :] = 1
    return mask


@settings(deadline=None, max_examples=15)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    ends=st.sets(st.integers(1, 39), max_size=4),
    topk=st.sampled_from([1, 5, 16, 64]),
    chunked=st.booleans(),
    elements=st.sampled_from([1, 2**9, 2**22]),
)
def test_any_lengths_pieces_padding_and_chunks(lengths, ends, topk, chunked, elements):
    model, width = shallow(topk), max(lengths)
    mask = padded(lengths, width)
    feed = [*sorted(e for e in ends if e < width), width]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CHUNK_ELEMENTS", "GATHERED_ELEMENTS"):
            patch.setattr(f"evalkit.dsa.sparse_attention.{name}", elements)
        masked, sparse = both(
            model, tokens(len(lengths), width), chunked=chunked, feed=feed, mask=mask
        )
    real = mask.bool()
    assert torch.allclose(masked[real], sparse[real], atol=1e-9)
    assert torch.isfinite(sparse).all()


@cache
def shallow(topk):
    layers = {"num_hidden_layers": 3, "mlp_layer_types": ["dense"] * 3}
    return build("deepseek_v32", index_topk=topk, **layers).double()


@pytest.mark.parametrize("family", ["deepseek_v4", "glm5_next_text"])
def test_other_families_stay_as_they_are(family):
    masked, sparse = both(tiny(family), tokens(2, LENGTH))
    assert torch.equal(masked, sparse)


def test_layers_without_an_indexer_attend_to_what_they_did():
    kinds = ["indexed_attention", "full_attention", "sliding_attention", "indexed_attention"]
    layers = {"num_hidden_layers": 4, "mlp_layer_types": ["dense"] * 4, "layer_types": kinds}
    model = build("dots3_note_text", **layers, use_sliding_window=True, sliding_window=6).double()
    for chunked in (False, True):
        masked, sparse = both(model, tokens(2, LENGTH), chunked=chunked)
        assert torch.allclose(masked, sparse, atol=1e-9)


def test_the_model_is_left_as_it_was():
    model = tiny("deepseek_v32")
    owners, config = indexer_sites(model).owners, text_config_of(model)
    before = config._attn_implementation, [dict(vars(owner)) for owner in owners]

    def fail(*_):
        raise ZeroDivisionError

    under = apply_schedule(model, schedule_of(model), sparse=True, observe=fail)
    with pytest.raises(ZeroDivisionError), under:
        model(tokens(1, LENGTH))
    assert (config._attn_implementation, [dict(vars(owner)) for owner in owners]) == before


def test_packed_texts_do_not_see_each_other():
    ids, model = tokens(1, LENGTH), tiny("deepseek_v32")
    positions = torch.cat([torch.arange(20), torch.arange(28)])[None]
    masked, sparse = both(model, ids, position_ids=positions)
    assert torch.allclose(masked, sparse, atol=1e-9)
    assert not torch.allclose(both(model, ids)[1], sparse, atol=1e-3)


# -- the function alone -------------------------------------------------------------------------

HEADS, NOPE, ROPE, RANK, VALUE = 3, 5, 4, 7, 6


class Attention(torch.nn.Module):
    """What sparse attention asks of a layer."""

    qk_nope_head_dim, v_head_dim = NOPE, VALUE

    def __init__(self, project):
        super().__init__()
        self.kv_b_proj = project

    def expand_kv(self, latent, rotated):
        both = self.kv_b_proj(latent[:, 0]).unflatten(-1, (HEADS, NOPE + VALUE)).transpose(1, 2)
        key = torch.cat([both[..., :NOPE], rotated.expand(-1, HEADS, -1, -1)], -1)
        return key, both[..., NOPE:]


class Wrapped(torch.nn.Linear):
    """Holds its weight in a form of its own."""

    def forward(self, x):
        return torch.nn.functional.linear(x, 2 * self.weight)


def case(rows, keys, k, seed=0, kind=torch.nn.Linear, batch=2):
    torch.manual_seed(seed)
    layer = Attention(kind(RANK, HEADS * (NOPE + VALUE), bias=False)).double()
    query = torch.randn(batch, HEADS, rows, NOPE + ROPE, dtype=torch.float64)
    latent, rotated = (torch.randn(batch, 1, keys, d, dtype=torch.float64) for d in (RANK, ROPE))
    indices = torch.stack([torch.randperm(keys)[:k] for _ in range(batch * rows)]).view(
        batch, rows, k
    )
    indices[:, ::3, k // 2 :] = -1
    indices[:, 1::3, k // 2 :] = 0  # a gap, said otherwise
    indices[:, 0] = -1
    mask = torch.rand(batch, 1, rows, keys) > 0.2
    return layer, query, latent, rotated, indices, mask


def plainly(layer, query, latent, rotated, indices, mask, scale, sink=None):
    """Set semantics, one row at a time."""
    key, value = layer.expand_kv(latent, rotated)
    out = torch.zeros(query.shape[0], query.shape[2], HEADS, VALUE, dtype=torch.float64)
    for b, row in [(b, r) for b in range(query.shape[0]) for r in range(query.shape[2])]:
        chosen = [s for s in set(indices[b, row].tolist()) if s >= 0 and mask[b, 0, row, s]]
        for head in range(HEADS) if chosen else ():
            logits = key[b, head, chosen] @ query[b, head, row] * scale
            total = logits if sink is None else torch.cat([logits, sink[head : head + 1]])
            out[b, row, head] = total.softmax(0)[: len(chosen)] @ value[b, head, chosen]
    return out


@pytest.mark.parametrize("shape", [(9, 40, 6), (12, 12, 12), (1, 30, 8), (1, 5, 5)])
@pytest.mark.parametrize("kind", [torch.nn.Linear, Wrapped])
@pytest.mark.parametrize("sink", [None, torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)])
def test_rows_attend_to_sets_of_keys(shape, kind, sink):
    layer, *inputs = case(*shape, kind=kind)
    with torch.no_grad():
        wanted = plainly(layer, *inputs, 0.4, sink)
        ours, none = sparse_attention(
            layer, *inputs[:3], inputs[4], scaling=0.4, indices=inputs[3], s_aux=sink
        )
        additive = torch.where(inputs[4], 0.0, torch.finfo(torch.float32).min)
        again, _ = sparse_attention(
            layer, *inputs[:3], additive, scaling=0.4, indices=inputs[3].int(), s_aux=sink
        )
    assert none is None
    assert torch.allclose(ours, wanted, atol=1e-12)
    assert torch.equal(ours, again)
    assert not ours[:, 0].any()  # a row without a key


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("shape", [(9, 40, 6), (12, 12, 12)])
def test_precisions(dtype, atol, shape):
    layer, *inputs = case(*shape)
    with torch.no_grad():
        wanted = plainly(layer, *inputs, 0.4)
        query, latent, rotated = (part.to(dtype) for part in inputs[:3])
        ours, _ = sparse_attention(
            layer.to(dtype), query, latent, rotated, inputs[4], scaling=0.4, indices=inputs[3]
        )
    assert ours.dtype == dtype
    assert torch.allclose(ours.double(), wanted, atol=atol * float(wanted.abs().max()))


@pytest.mark.parametrize("shape", [(3, 24, 3), (4, 4, 4)])
def test_gradients_of_the_function(shape):
    layer, query, latent, rotated, indices, mask = case(*shape, batch=1)
    parts = [part.requires_grad_() for part in (query, latent, rotated)]
    weight = layer.kv_b_proj.weight

    def run(*inputs):
        return sparse_attention(layer, *inputs[:3], mask, scaling=0.4, indices=indices)[0]

    assert torch.autograd.gradcheck(run, (*parts, weight), fast_mode=True)


# -- gradients of models, memory ----------------------------------------------------------------


@pytest.mark.parametrize("family", SPARSE)
def test_gradients_are_those_of_masked_attention(family):
    model = tiny(family).train()
    masked, sparse = (
        plain(model, schedule_of(model), chunked=True, sparse=sparse) for sparse in (False, True)
    )
    model.eval()
    assert masked.keys() == sparse.keys()
    for name, gradient in masked.items():
        assert torch.allclose(sparse[name], gradient, rtol=1e-6, atol=1e-9), name


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("chunked", [True, False])
def test_what_runs_again_after_the_block_is_sparse_again(reentrant, chunked):
    model = build("glm_moe_dsa").double().train()
    schedule, options = schedule_of(model), {"chunked": chunked, "sparse": True}
    expected = plain(model, schedule, **options)
    checkpointed(model, reentrant)
    with apply_schedule(model, schedule, **options):
        loss = loss_of(model)
    assert_equal(gradients(model, loss), expected)


def test_no_tensor_grows_with_the_square_of_the_length(monkeypatch):
    monkeypatch.setattr("evalkit.dsa.apply.select", partial(select, chunk_elements=2**12))
    for name in ("CHUNK_ELEMENTS", "GATHERED_ELEMENTS"):
        monkeypatch.setattr(f"evalkit.dsa.sparse_attention.{name}", 2**12)
    model, masks, largest = shallow(TOPK), [], []
    for length in (128, 256, 512):
        sizes = []
        under = apply_schedule(
            model,
            schedule_of(model),
            chunked=True,
            sparse=True,
            observe=lambda _, call, __: masks.append(call.mask.shape),
        )
        with torch.no_grad(), under, Spy(sizes):
            model.model(tokens(1, length), use_cache=False)
        largest.append(max(sizes))
    assert {shape[1] for shape in masks} == {1}
    assert largest[1] <= 2 * largest[0]
    assert largest[2] <= 2 * largest[1]
    assert largest[2] < 512 * 512
