"""The chunked loss: equal to a dense one, whatever the chunks; no quadratic tensor."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from distill.losses import kl, list_order, listmle, position_weights
from distill.objective.loss import Objective, chunks, student_loss
from distill.objective.teachers import IndexTeacher, target
from evalkit.dsa import IndexFeatures, index_scores
from tests.dsa.test_scores import Spy

ROWS = torch.tensor([3, 9, 10, 17, 23])


def features(
    seed=0, batch=2, length=24, heads=3, dim=4, rows=ROWS, grad=False, dtype=torch.float64
):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((batch, len(rows), heads, dim), (batch, length, dim), (batch, len(rows), heads))
    parts = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    query, key, weight = (p.requires_grad_(grad) for p in parts)
    return IndexFeatures(query, key, weight, 0.5, rows)


def dense(student, teachers, share, length, positions, weight):
    """The same losses written plainly, everything at once."""
    scores = index_scores(student)
    support = scores.detach() > float("-inf")
    value = 0.0
    for teacher in teachers:
        wanted = index_scores(teacher)
        value = value + share * kl(wanted.softmax(-1), scores, support, weight=weight)[0]
        order = list_order(wanted, support, length)
        value = (
            value
            + (1 - share) * listmle(order, scores, support, positions=positions, weight=weight)[0]
        )
    return value / len(teachers)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("elements", [1, 70, 2**20])
def test_chunked_equals_dense_in_value_and_gradient(share, elements):
    student = features(grad=True)
    teachers = [features(seed=s) for s in (1, 2)]
    positions = position_weights(4, "discount")
    weight = torch.tensor([[1.0, 1, 0, 1, 1], [1, 1, 1, 1, 0.5]], dtype=torch.float64)
    parts = (student.query, student.key, student.weight)
    expected = dense(student, teachers, share, 4, positions, weight)
    gradients = torch.autograd.grad(expected, parts)

    objective = Objective(share, 4, positions, chunk_elements=elements)
    sums = student_loss(student, [IndexTeacher(t) for t in teachers], objective, weight=weight)
    value = share * sums.kl + (1 - share) * sums.listmle
    assert value == pytest.approx(expected.item(), rel=1e-9)
    assert sums.rows == pytest.approx(8.5)
    for part, gradient in zip(parts, gradients, strict=True):
        assert torch.allclose(part.grad, gradient, atol=1e-10)


def test_micro_batches_add_up():
    teachers = [IndexTeacher(features(seed=1))]
    weight = torch.ones(2, 5)
    whole = features(grad=True)
    total = student_loss(whole, teachers, Objective(), weight=weight)
    halves = features(grad=True)
    sums = []
    for i in (0, 1):

        def one(f, i=i):
            return replace(
                f, query=f.query[i : i + 1], key=f.key[i : i + 1], weight=f.weight[i : i + 1]
            )

        part = IndexTeacher(one(features(seed=1)))
        sums.append(student_loss(one(halves), [part], Objective(), weight=weight[i : i + 1]))
    assert sums[0].kl + sums[1].kl == pytest.approx(total.kl)
    assert sums[0].rows + sums[1].rows == total.rows
    assert torch.allclose(halves.query.grad, whole.query.grad, atol=1e-12)
    assert torch.allclose(halves.key.grad, whole.key.grad, atol=1e-12)


def test_a_mixture_has_the_gradient_of_the_mean_of_kls_and_one_list():
    weight = torch.ones(2, 5)
    gradients, counts = [], []
    for combine in ("mean", "mixture"):
        student = features(grad=True)
        teachers = [IndexTeacher(features(seed=s)) for s in (1, 2, 3)]
        student_loss(student, teachers, Objective(combine=combine), weight=weight)
        gradients.append(student.query.grad)
        goal = target(
            teachers, slice(0, 5), index_scores(student.__class__(*_parts(student))) > -1e30,
            combine=combine, length=3,
        )  # fmt: skip
        counts.append(len(goal.orders))
    assert torch.allclose(*gradients, atol=1e-12)
    assert counts == [3, 1]


def _parts(f):
    return (f.query.detach(), f.key.detach(), f.weight.detach(), f.scale, f.positions)


def test_chunks_cover_all_rows_and_keep_within_bounds():
    some = features(rows=torch.arange(24))
    seen = 0
    for part, keys in chunks(some, 200):
        assert part.start == seen
        assert keys == part.stop  # the last row sees itself
        assert 2 * (part.stop - part.start) * keys <= 200 or part.stop - part.start == 1
        seen = part.stop
    assert seen == 24


def test_no_tensor_grows_with_the_square_of_the_length():
    peaks = []
    for length in (64, 128):
        rows = torch.arange(length)
        student = features(length=length, heads=4, rows=rows, grad=True, dtype=torch.float32)
        teachers = [
            IndexTeacher(features(seed=s, length=length, heads=4, rows=rows, dtype=torch.float32))
            for s in (1, 2)
        ]
        sizes: list[int] = []
        with Spy(sizes):
            student_loss(
                student, teachers, Objective(0.5, 8, chunk_elements=1024),
                weight=torch.ones(2, length),
            )  # fmt: skip
        linear = 2 * length * 4 * 4  # the queries
        peaks.append(max(size for size in sizes if size != linear))
    assert peaks[0] <= 2048
    assert peaks[1] <= 2048
