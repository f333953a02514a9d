"""The chunked loss: equal to a dense one, whatever the chunks; no quadratic tensor."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from distill.errors import DistillError, at
from distill.losses.base import Needs
from distill.losses.kl import KL, kl
from distill.losses.listmle import ListMLE, list_order, listmle, position_weights
from distill.objective.loss import LossSums, Objective, WeightedLoss, chunks, student_loss
from distill.objective.teachers import IndexTeacher, consumer_targets
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


def objective(share=1.0, positions="uniform", list_length=2.0, topk=2, **options):
    """share · KL + (1 - share) · ListMLE over a list of list_length · topk keys."""
    lists = ListMLE(list_length=list_length, positions=positions)
    losses = WeightedLoss("kl", share, KL()), WeightedLoss("listmle", 1 - share, lists)
    return Objective(losses, topk, **options)


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

    chunked = objective(share, "discount", chunk_elements=elements)
    sums = student_loss(student, [IndexTeacher(t) for t in teachers], chunked, weight=weight)
    value = share * sums.of("kl").total + (1 - share) * sums.of("listmle").total
    assert value == pytest.approx(expected.item(), rel=1e-9)
    assert sums.queries == pytest.approx(8.5)
    for part, gradient in zip(parts, gradients, strict=True):
        assert torch.allclose(part.grad, gradient, atol=1e-10)


def test_micro_batches_add_up():
    teachers = [IndexTeacher(features(seed=1))]
    weight = torch.ones(2, 5)
    whole = features(grad=True)
    total = student_loss(whole, teachers, objective(), weight=weight)
    halves = features(grad=True)
    sums = []
    for i in (0, 1):

        def one(f, i=i):
            return replace(
                f, query=f.query[i : i + 1], key=f.key[i : i + 1], weight=f.weight[i : i + 1]
            )

        part = IndexTeacher(one(features(seed=1)))
        sums.append(student_loss(one(halves), [part], objective(), weight=weight[i : i + 1]))
    for name in ("kl", "listmle"):
        parts = [one.of(name).total for one in sums]
        assert sum(parts) == pytest.approx(total.of(name).total)
    assert sums[0].queries + sums[1].queries == total.queries
    assert torch.allclose(halves.query.grad, whole.query.grad, atol=1e-12)
    assert torch.allclose(halves.key.grad, whole.key.grad, atol=1e-12)


def test_a_mixture_has_the_gradient_of_the_mean_of_kls_and_one_list():
    weight = torch.ones(2, 5)
    gradients, counts = [], []
    for combine in ("mean", "mixture"):
        student = features(grad=True)
        teachers = [IndexTeacher(features(seed=s)) for s in (1, 2, 3)]
        student_loss(student, teachers, objective(combine=combine), weight=weight)
        gradients.append(student.query.grad)
        support = index_scores(student.__class__(*_parts(student))) > -1e30
        needs = Needs(mean=True, order=3)
        counts.append(len(consumer_targets(teachers, slice(0, 5), support, needs, combine).orders))
    assert torch.allclose(*gradients, atol=1e-12)
    assert counts == [3, 1]


def _parts(f):
    return (f.query.detach(), f.key.detach(), f.weight.detach(), f.scale, f.positions)


def test_chunks_cover_all_queries_and_keep_within_bounds():
    some = features(rows=torch.arange(24))
    seen = 0
    for part, keys in chunks(some, 200):
        assert part.start == seen
        assert keys == part.stop  # the last query sees itself
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
            bounded = objective(0.5, topk=4, chunk_elements=1024)
            student_loss(student, teachers, bounded, weight=torch.ones(2, length))
        linear = 2 * length * 4 * 4  # the queries
        peaks.append(max(size for size in sizes if size != linear))
    assert peaks[0] <= 2048
    assert peaks[1] <= 2048


def test_a_loss_of_weight_zero_is_measured_and_trains_nothing():
    weight, teachers = torch.ones(2, 5), [IndexTeacher(features(seed=s)) for s in (1, 2)]
    both, alone = features(grad=True), features(grad=True)
    measured = student_loss(both, teachers, objective(1.0), weight=weight)
    trained = student_loss(alone, teachers, objective(1.0).trained(), weight=weight)
    assert torch.equal(both.query.grad, alone.query.grad)
    assert measured.of("kl") == trained.of("kl")
    assert measured.mean("listmle") > 0
    assert trained.mean("listmle") is None
    assert trained.means(("kl", "listmle")) == {"kl": trained.mean("kl"), "listmle": None}


def test_each_loss_gets_the_list_that_it_asks_for():
    """Of two lists of different lengths the longer one is made; each loss sees its own part."""
    teachers, weight = [IndexTeacher(features(seed=1))], torch.ones(2, 5)
    losses = [WeightedLoss(str(m), 1.0, ListMLE(list_length=m)) for m in (2.0, 1.0)]
    together = student_loss(features(), teachers, Objective(tuple(losses), 2), weight=weight)
    for entry in losses:
        alone = student_loss(features(), teachers, Objective((entry,), 2), weight=weight)
        assert together.of(entry.name) == alone.of(entry.name)


def test_sums_go_through_a_vector_and_back():
    sums = LossSums(3.0)
    sums.of("b").add(1.5, 2.0)
    names = ("a", "b")
    again = LossSums.from_vector(names, sums.vector(names))
    assert again.queries == 3.0
    assert again.means(names) == {"a": None, "b": 0.75}


@pytest.mark.parametrize(("total", "words"), [(float("nan"), "NaN"), (float("inf"), "infinite")])
def test_a_loss_that_is_not_finite_is_named(total, words):
    sums = LossSums(1.0)
    sums.of("kl").add(0.5, 1.0)
    sums.check_finite()
    sums.of("listmle").add(total, 1.0)
    with pytest.raises(DistillError, match=f"^layer 8: the loss listmle is {words}"), at("layer 8"):
        sums.check_finite()
