"""index_scores: parity with the installed library, gradients, chunk invariance, memory."""

from __future__ import annotations

import pytest
import torch

from evalkit.dsa import (
    IndexFeatures,
    ReuseSchedule,
    UnsupportedModelError,
    apply_schedule,
    index_features,
    index_scores,
    scores,
    select,
)
from evalkit.dsa.families.sites import indexer_sites
from tests.dsa.tiny import CLASSES, build, output, tokens

SCORED = sorted(set(CLASSES) - {"glm5_next_text"})
LENGTH = 64


def captured(model, ids, **kwargs):
    """(features, the library's own selection) per ordinal of an all-full forward."""
    sites = indexer_sites(model)
    captures = {}

    def observe(ordinal, call, selection):
        indexer = sites.owners[ordinal].indexer
        captures[ordinal] = (index_features(model, indexer, call), selection.long())

    schedule = ReuseSchedule.uniform(sites.layout.layer_ids)
    with torch.no_grad(), apply_schedule(model, schedule, observe=observe):
        output(model, ids, use_cache=False, **kwargs)
    return captures


def without_invisible(family, selection):
    """The library leaves masked positions in early rows (MLA families); -1 marks them here."""
    if family == "deepseek_v4":
        return selection
    rows = torch.arange(selection.shape[1]).view(1, -1, 1)
    return torch.where(selection <= rows, selection, -1)


@pytest.mark.parametrize("family", SCORED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_selection_equals_the_librarys(family, dtype):
    model = build(family)
    if dtype != torch.float32:
        model = model.to(dtype)
        for owner in indexer_sites(model).owners:  # as `_keep_in_fp32_modules` keeps it on loading
            if family != "deepseek_v4":
                owner.indexer.weights_proj.float()
    for features, selection in captured(model, tokens(2, LENGTH)).values():
        ours = select(features, selection.shape[-1])
        expected = without_invisible(family, selection)
        assert torch.equal(ours.sort(-1).values, expected.sort(-1).values)


@pytest.mark.parametrize("family", ["deepseek_v32", "deepseek_v4"])
def test_rows_and_chunks_do_not_change_scores(family):
    features, _ = captured(build(family), tokens(2, LENGTH))[1]
    whole = index_scores(features)
    assert whole.dtype == torch.float32
    for chunk in (1, 4000, 10**6):
        assert torch.allclose(index_scores(features, chunk_elements=chunk), whole, atol=1e-6)
        assert torch.equal(select(features, 5, chunk_elements=chunk), select(features, 5))
    rows = torch.tensor([63, 5, 17])
    assert torch.allclose(index_scores(features, rows), whole[:, rows], atol=1e-6)
    uneven = torch.tensor([[1, 60, 33], [7, 7, 0]])
    picked = whole.gather(1, uneven.unsqueeze(-1).expand(-1, -1, whole.shape[-1]))
    assert torch.allclose(index_scores(features, uneven), picked, atol=1e-6)


def test_scores_by_hand():
    # Two heads, d = 1: I = Σ_h w_h ReLU(q_h k) · scale, row 1 may read keys 0 and 1.
    features = IndexFeatures(
        query=torch.tensor([[[[1.0], [1.0]], [[2.0], [-3.0]]]]),
        key=torch.tensor([[[1.0], [-2.0]]]),
        weight=torch.tensor([[[1.0, 1.0], [0.5, -1.0]]]),
        scale=0.5,
        positions=torch.tensor([0, 1]),
    )
    scores = index_scores(features)
    assert scores[0, 1].tolist() == [0.5, -3.0]  # 0.5·2·0.5, and -1·6·0.5
    assert scores[0, 0].tolist() == [1.0, float("-inf")]
    assert select(features, 2)[0].tolist() == [[0, -1], [0, 1]]


def test_compressed_keys_are_visible_when_their_window_is_closed():
    features = IndexFeatures(
        query=torch.ones(1, 9, 1, 1),
        key=torch.ones(1, 2, 1),
        weight=torch.ones(1, 9, 1),
        scale=1.0,
        positions=torch.arange(9),
        ratio=4,
    )
    seen = (index_scores(features)[0] > float("-inf")).sum(-1).tolist()
    assert seen == [0, 0, 0, 1, 1, 1, 1, 2, 2]


def test_padding_is_never_selected():
    features, _ = captured(build("deepseek_v32"), tokens(1, LENGTH))[2]
    valid = torch.ones(1, LENGTH, dtype=torch.bool)
    valid[:, :20] = False
    masked = IndexFeatures(
        features.query, features.key, features.weight, features.scale, features.positions, 1, valid
    )
    assert not ((select(masked, 8) >= 0) & (select(masked, 8) < 20)).any()


def test_gradients_in_float64_and_through_chunks():
    torch.manual_seed(0)
    leaves = [
        torch.randn(shape, dtype=torch.float64, requires_grad=True)
        for shape in ((1, 5, 3, 2), (1, 5, 2), (1, 5, 3))
    ]

    def scores(query, key, weight, chunk=1):
        features = IndexFeatures(query, key, weight, 0.7, torch.arange(5))
        result = index_scores(features, chunk_elements=chunk)
        return result.masked_fill(result == float("-inf"), 0.0)

    assert torch.autograd.gradcheck(scores, leaves)
    grads = []
    for chunk in (1, 10**6):
        loss = scores(*leaves, chunk=chunk).square().sum()
        grads.append(torch.autograd.grad(loss, leaves))
    for one, other in zip(*grads, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_parameters_of_the_indexer_get_gradients():
    model = build("glm_moe_dsa")
    sites, calls = indexer_sites(model), {}
    with (
        torch.no_grad(),
        apply_schedule(
            model, ReuseSchedule.uniform(8), observe=lambda o, call, _: calls.update({o: call})
        ),
    ):
        output(model, tokens(1, LENGTH), use_cache=False)
    indexer = sites.owners[3].indexer
    scores = index_scores(index_features(model, indexer, calls[3]), torch.tensor([40, 50]))
    scores[scores > float("-inf")].sum().backward()
    for name in ("wq_b", "wk", "weights_proj"):
        assert getattr(indexer, name).weight.grad.abs().sum() > 0


def test_a_family_without_scores_says_why():
    model = build("glm5_next_text")
    with pytest.raises(UnsupportedModelError, match="pools of tokens"):
        captured(model, tokens(1, LENGTH))


@pytest.mark.parametrize("keys", [0, 1, 30])
def test_all_heads_at_once_and_one_by_one(keys, monkeypatch):
    parts = torch.randn(2, 1, 4, 8), torch.randn(2, keys, 8), torch.randn(2, 1, 4)
    found = []
    for at_once in (0, 2**20):
        monkeypatch.setattr(scores, "_AT_ONCE", at_once)
        leaves = [part.clone().requires_grad_(True) for part in parts]
        result = index_scores(IndexFeatures(*leaves, 1.0, torch.arange(29, 30)))
        result.masked_fill(result.isinf(), 0).square().sum().backward()
        found.append((result.detach(), *(leaf.grad for leaf in leaves)))
    assert all(torch.allclose(*pair, atol=1e-4) for pair in zip(*found, strict=True))
    assert found[0][0].shape == (2, 1, keys)


def test_temporaries_are_bounded():
    """The largest intermediate holds one chunk of rows, whatever the length."""
    peaks = []
    for length in (128, 256):
        features = IndexFeatures(
            torch.randn(1, length, 4, 8),
            torch.randn(1, length, 8),
            torch.randn(1, length, 4),
            1.0,
            torch.arange(length),
        )
        sizes = []
        with Spy(sizes):
            select(features, 4, chunk_elements=8192)
        peaks.append(max(sizes))
    assert peaks[0] <= 8192
    assert peaks[1] <= 8192


class Spy(torch.utils._python_dispatch.TorchDispatchMode):
    """Records the number of elements of every tensor that an operation makes."""

    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else [result]:
            if isinstance(part, torch.Tensor) and "view" not in str(func):
                self.sizes.append(part.untyped_storage().nbytes() // part.element_size())
        return result
