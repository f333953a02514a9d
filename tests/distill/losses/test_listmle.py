"""ListMLE: brute-force Plackett–Luce, ties, short rows, the tail, the band."""

from __future__ import annotations

import math

import pytest
import torch

from distill.losses.listmle import list_order, listmle, position_weights

ALL = torch.ones(1, 5, dtype=torch.bool)


def brute_force(scores, order, support):
    """−log of the product of exp(s_i) / Σ exp(s of what is left), one number per position."""
    left = [i for i in range(len(scores)) if support[i]]
    terms = []
    for key in order:
        total = sum(math.exp(scores[i]) for i in left)
        terms.append(-math.log(math.exp(scores[key]) / total))
        left.remove(key)
    return terms


def test_against_brute_force():
    scores = torch.tensor([[0.3, -1.0, 2.0, 0.5, 1.5]], dtype=torch.float64)
    teacher = torch.tensor([[5.0, 1.0, 3.0, 4.0, 2.0]])
    for length in (1, 3, 5):
        order = list_order(teacher, ALL, length)
        assert order.tolist()[0] == [0, 3, 2, 4, 1][:length]
        total, count = listmle(order, scores, ALL)
        terms = brute_force(scores[0].tolist(), order[0].tolist(), ALL[0].tolist())
        assert total.item() == pytest.approx(sum(terms) / length, abs=1e-12)
        assert count.item() == 1


def test_full_length_is_the_likelihood_of_the_whole_order():
    """The probabilities of all orders sum to one."""
    from itertools import permutations

    scores = torch.tensor([[0.1, -0.7, 1.2, 0.4]], dtype=torch.float64)
    support = torch.ones(1, 4, dtype=torch.bool)
    total = 0.0
    for order in permutations(range(4)):
        value, _ = listmle(torch.tensor([order]), scores, support)
        total += math.exp(-4 * value.item())
    assert total == pytest.approx(1.0, abs=1e-12)


def test_the_tail_moves_the_border():
    """A key outside the list is pushed down: without the tail its gradient would be zero."""
    scores = torch.tensor([[1.0, 0.0, 3.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    order = torch.tensor([[0, 1]])
    listmle(order, scores, ALL)[0].backward()
    assert scores.grad[0, 2] > 0.5
    assert scores.grad[0, 0] < 0


def test_gradients_in_float64():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(4, 6, generator=generator)
    support = torch.arange(6) <= torch.arange(4)[:, None] + 1
    order = list_order(teacher, support, 3)
    weights = position_weights(3, "discount")
    assert torch.autograd.gradcheck(lambda s: listmle(order, s, support)[0], scores)
    assert torch.autograd.gradcheck(
        lambda s: listmle(order, s, support, positions=weights)[0], scores
    )


def test_order_equals_a_stable_sort_with_ties_and_masks():
    generator = torch.Generator().manual_seed(1)
    teacher = torch.randint(0, 4, (20, 30), generator=generator).float()
    support = torch.rand(20, 30, generator=generator) < 0.7
    teacher[3] = 0.0
    expected = teacher.masked_fill(~support, float("-inf")).sort(
        dim=-1, descending=True, stable=True
    )
    for length in (1, 8, 30):
        order = list_order(teacher, support, length)
        real = support.gather(-1, order)
        assert torch.equal(order[real], expected.indices[:, :length][real])
        assert torch.equal(real, expected.values[:, :length] > float("-inf"))


def test_short_rows_count_what_they_have():
    support = torch.tensor([[True, True, False, False, False]])
    scores = torch.tensor([[0.2, 0.9, 50.0, 50.0, 50.0]], dtype=torch.float64, requires_grad=True)
    order = list_order(torch.tensor([[1.0, 2.0, 9.0, 9.0, 9.0]]), support, 4)
    total, count = listmle(order, scores, support)
    terms = brute_force(scores[0].tolist(), [1, 0], support[0].tolist())
    assert total.item() == pytest.approx(sum(terms) / 2, abs=1e-9)
    assert count.item() == 1
    total.backward()
    assert torch.isfinite(scores.grad).all()
    assert (scores.grad[0, 2:] == 0).all()


def test_an_all_masked_row_is_in_neither_sum_nor_count():
    support = torch.zeros(1, 5, dtype=torch.bool)
    scores = torch.randn(1, 5, requires_grad=True)
    total, count = listmle(list_order(scores.detach(), support, 3), scores, support)
    assert total.item() == count.item() == 0
    total.backward()
    assert (scores.grad == 0).all()


def test_large_scores_are_stable():
    scores = torch.tensor([[800.0, 799.0, -800.0, 0.0, 1.0]])
    order = torch.tensor([[0, 1, 4]])
    total, _ = listmle(order, scores, ALL)
    expected = (math.log1p(math.exp(-1.0)) + 0.0 + math.log1p(math.exp(-1.0))) / 3
    assert total.item() == pytest.approx(expected, abs=1e-4)


def test_sums_add_up_over_any_split():
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(6, 9, generator=generator, dtype=torch.float64)
    support = torch.arange(9) <= torch.arange(6)[:, None] + 2
    order = list_order(torch.randn(6, 9, generator=generator), support, 4)
    whole = listmle(order, scores, support)
    parts = [listmle(order[p], scores[p], support[p]) for p in (slice(0, 2), slice(2, 6))]
    assert sum(p[0] for p in parts).item() == pytest.approx(whole[0].item(), abs=1e-12)
    assert sum(p[1] for p in parts).item() == whole[1].item()


def test_a_band_looks_at_the_border_alone():
    weights = position_weights(8, "band", topk=4, band=2)
    assert weights.tolist() == [0, 0, 1, 1, 1, 1, 0, 0]
    scores = torch.randn(1, 9, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    support = torch.ones(1, 9, dtype=torch.bool)
    order = list_order(-torch.arange(9.0)[None], support, 8)
    total, _ = listmle(order, scores, support, positions=weights)
    terms = brute_force(scores[0].tolist(), order[0].tolist(), support[0].tolist())
    assert total.item() == pytest.approx(sum(terms[2:6]) / 4, abs=1e-12)
    # A row that ends before the band has nothing to say.
    short = torch.arange(9)[None] < 2
    assert listmle(list_order(scores, short, 8), scores, short, positions=weights)[1].item() == 0


def test_positions_beyond_the_visible_keys_do_not_count():
    generator = torch.Generator().manual_seed(3)
    scores, teacher = (torch.randn(2, 3, 5, generator=generator) for _ in range(2))
    support = torch.ones(2, 3, 5, dtype=torch.bool)
    order = list_order(teacher, support, 8)  # a list of eight where only five keys exist
    weights = torch.arange(8.0, 0.0, -1.0)
    value, count = listmle(order, scores, support, positions=weights)
    wanted, same = listmle(order, scores, support, positions=weights[:5])
    assert torch.equal(value, wanted)
    assert count == same == 6
