"""KL: hand-computed values, gradients, masks, several consumers."""

from __future__ import annotations

import math

import pytest
import torch

from distill.losses.kl import kl, self_information


def problem(rows=5, keys=7, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    support = torch.arange(keys) <= torch.arange(rows)[:, None] + 1
    scores = torch.randn(rows, keys, generator=generator, dtype=dtype)
    target = torch.randn(rows, keys, generator=generator, dtype=dtype)
    target = target.masked_fill(~support, float("-inf")).softmax(-1)
    return target, scores, support


def test_by_hand():
    # p = (1/2, 1/2), q = softmax(0, ln 3) = (1/4, 3/4); the third key is not visible.
    target = torch.tensor([[0.5, 0.5, 0.0]])
    scores = torch.tensor([[0.0, math.log(3.0), 99.0]])
    support = torch.tensor([[True, True, False]])
    total, count = kl(target, scores, support)
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert total.item() == pytest.approx(expected, abs=1e-6)
    assert count.item() == 1


def test_zero_where_student_and_teacher_agree():
    _, scores, support = problem()
    target = scores.masked_fill(~support, float("-inf")).softmax(-1)
    total, count = kl(target, scores + 3.0, support)
    assert total.item() == pytest.approx(0.0, abs=1e-12)
    assert count.item() == 5


def test_gradients_in_float64():
    target, scores, support = problem()
    scores.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda s: kl(target, s, support)[0], scores)
    kl(target, scores, support)[0].backward()
    soft = scores.detach().masked_fill(~support, float("-inf")).softmax(-1)
    assert torch.allclose(scores.grad, soft - target, atol=1e-12)


def test_what_is_outside_the_support_is_not_read():
    target, scores, support = problem(dtype=torch.float32)
    wild = scores.masked_fill(~support, float("-inf")).requires_grad_(True)
    total, _ = kl(target, wild, support)
    assert torch.equal(total, kl(target, scores, support)[0])
    total.backward()
    assert torch.isfinite(wild.grad).all()
    assert (wild.grad[~support] == 0).all()


def test_an_all_masked_row_is_in_neither_sum_nor_count():
    target, scores, support = problem(dtype=torch.float32)
    support = support.clone()
    support[2] = False
    target[2] = 0
    scores.requires_grad_(True)
    total, count = kl(target, scores, support)
    others = [0, 1, 3, 4]
    rest, _ = kl(target[others], scores[others], support[others])
    assert count.item() == 4
    assert total.item() == pytest.approx(rest.item(), rel=1e-6)
    total.backward()
    assert (scores.grad[2] == 0).all()


def test_sums_add_up_over_any_split_and_weights_count():
    target, scores, support = problem(rows=6)
    whole = kl(target, scores, support)
    parts = [kl(target[p], scores[p], support[p]) for p in (slice(0, 1), slice(1, 4), slice(4, 6))]
    assert sum(p[0] for p in parts).item() == pytest.approx(whole[0].item(), abs=1e-12)
    assert sum(p[1] for p in parts).item() == whole[1].item() == 6
    weight = torch.tensor([1.0, 0.0, 2.0, 0.0, 0.0, 0.0])
    total, count = kl(target, scores, support, weight=weight)
    rows = [kl(target[i : i + 1], scores[i : i + 1], support[i : i + 1])[0].item() for i in (0, 2)]
    assert total.item() == pytest.approx(rows[0] + 2 * rows[1])
    assert count.item() == 3


def test_mean_of_kls_is_kl_to_the_mean_but_for_a_constant():
    """IndexCache, proposition 1: one gradient, values apart by the mean KL(p_c ‖ p̄)."""
    teachers = [problem(seed=s)[0] for s in (1, 2, 3)]
    _, scores, support = problem()
    scores.requires_grad_(True)
    mean = sum(teachers) / 3
    separate = sum(kl(t, scores, support)[0] for t in teachers) / 3
    information = sum(self_information(t) for t in teachers) / 3
    joined = kl(mean, scores, support, information=information)[0]
    assert joined.item() == pytest.approx(separate.item(), abs=1e-12)
    mixture = kl(mean, scores, support)[0]
    gradients = [
        torch.autograd.grad(value, scores, retain_graph=True)[0]
        for value in (separate, joined, mixture)
    ]
    assert torch.allclose(gradients[0], gradients[1], atol=1e-12)
    assert torch.allclose(gradients[0], gradients[2], atol=1e-12)
    constant = sum(torch.special.xlogy(t, t / mean.clamp(min=1e-300)).sum() for t in teachers) / 3
    assert (separate - mixture).item() == pytest.approx(constant.item(), abs=1e-12)


def test_scores_of_half_precision_are_summed_in_fp32():
    target, scores, support = problem(dtype=torch.float32)
    total, _ = kl(target, scores.bfloat16(), support)
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(kl(target, scores, support)[0].item(), rel=0.05)
