"""The loss under a policy: a plain second implementation, hand-made values, the full scan."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import pytest
import torch

from distill.errors import NonFiniteError
from distill.losses.kl import KL
from distill.objective.loss import Objective, WeightedLoss, student_loss
from distill.objective.teachers import IndexTeacher
from evalkit.config.selection import Selection
from evalkit.dsa import IndexFeatures
from evalkit.dsa.features import at_rows
from evalkit.dsa.scores import index_scores
from evalkit.selections.full import Full
from evalkit.selections.hisa import Hisa
from evalkit.selections.misa import Misa
from evalkit.selections.precision import Precision
from evalkit.selections.rounding import rotated
from evalkit.selections.temporal import Temporal
from tests.distill.objective.test_loss import features, objective
from tests.selections import reference

TOPK = 2
WEIGHT = torch.tensor([[1.0, 1, 0, 1, 1], [1, 1, 1, 1, 0.5]], dtype=torch.float64)


@dataclass
class Query:
    """One query: [H, d], [H], its visible keys [n][d]."""

    query: torch.Tensor
    weight: torch.Tensor
    keys: list[torch.Tensor]
    scale: float

    @classmethod
    def of(cls, f, batch, row):
        seen = int(f.positions[row]) + 1
        return cls(f.query[batch, row], f.weight[batch, row], list(f.key[batch, :seen]), f.scale)

    def scores(self, keys, heads=None):
        heads = range(len(self.query)) if heads is None else heads
        return torch.stack(
            [
                sum(self.weight[h] * torch.relu(self.query[h] @ k) * self.scale for h in heads)
                for k in keys
            ]
        )

    def means(self, groups):
        return [torch.stack([self.keys[i] for i in group]).mean(0) for group in groups]


def near(x, kind):
    """Rounded, with the gradient of what is not."""
    rows = [reference.rounded(row, kind) for row in x.detach().tolist()]
    return x + (torch.tensor(rows, dtype=x.dtype) - x.detach())


def rounded(policy, one):
    """What the policy sees of a query."""
    if policy.keys == policy.queries == "unrounded":
        return one
    keys = [near(rotated(k[None]), policy.keys)[0] for k in one.keys]
    return replace(one, query=near(rotated(one.query), policy.queries), keys=keys)


def plain_rankings(policy, one):
    """(scores, groups of keys that they stand for, how many are taken) per ranking of a query."""
    one, alone = rounded(policy, one), [[i] for i in range(len(one.keys))]
    every = (one.scores(one.keys), alone, TOPK)
    if isinstance(policy, Hisa):
        groups = reference.blocks_of(one.keys, policy.block)
        if len(groups) <= policy.blocks or policy.blocks == 2:
            return [every]
        free = groups[1:-1]
        means = [near(mean[None], policy.keys)[0] for mean in one.means(free)]
        return [(one.scores(means), free, policy.blocks - 2), every]
    if not isinstance(policy, Misa):
        return [every]
    if policy.candidates is not None and len(one.keys) <= policy.candidates:
        return [every]
    means = one.means(reference.blocks_of(one.keys, policy.block))
    heads = range(len(one.query))
    energy = {h: one.scores(means, [h]).abs().sum().item() for h in heads}
    heads = sorted(reference.best(energy, policy.heads))
    routed = one.scores(one.keys, heads)
    if policy.candidates is None:
        return [(routed, alone, TOPK)]
    return [(routed, alone, policy.candidates), every]


def plain_loss(policy, student, teachers, share):
    """share · KL + (1 - share) · ListMLE over 2 · taken, one query after another; both counts."""
    total, counts = 0.0, 0.0
    for b, row_weights in enumerate(WEIGHT):
        for r, weight in enumerate(row_weights):
            wanted = [Query.of(t, b, r) for t in teachers]
            wanted = [one.scores(one.keys).softmax(-1).detach() for one in wanted]
            for scores, groups, taken in plain_rankings(policy, Query.of(student, b, r)):
                losses = []
                for keys in wanted:
                    mass = torch.stack([keys[group].sum() for group in groups])
                    mass = mass / mass.sum()
                    kl = (mass * (mass.log() - scores.log_softmax(-1))).sum()
                    order = sorted(range(len(groups)), key=lambda i: (-float(mass[i]), i))
                    length = min(2 * taken, len(order))
                    best = scores[order]
                    terms = [best[i:].logsumexp(0) - best[i] for i in range(length)]
                    losses.append(share * kl + (1 - share) * sum(terms) / length)
                total = total + weight * sum(losses) / len(losses)
                counts += float(weight)
    return total, counts


POLICIES = {
    "blocks": Hisa(block=3, blocks=4),
    "blocks, nothing to choose": Hisa(block=3, blocks=2),
    "heads": Misa(heads=1, block=5),
    "two stages": Misa(heads=2, block=5, candidates=12),
    "fp8": Precision(keys="fp8", queries="fp8"),
    "fp4 keys": Precision(keys="fp4"),
    "blocks of fp8": Hisa(block=3, blocks=4, keys="fp8", queries="fp8"),
    "heads, fp4": Misa(heads=1, block=5, keys="fp4", queries="fp4"),
}


@pytest.mark.parametrize("elements", [1, 150, 2**20])
@pytest.mark.parametrize("name", POLICIES)
def test_a_plain_second_implementation_has_the_same_loss_and_gradient(name, elements):
    policy, student = POLICIES[name], features(grad=True)
    teachers = [features(seed=s) for s in (1, 2)]
    parts = (student.query, student.key, student.weight)
    expected, counts = plain_loss(policy, student, teachers, 0.6)
    gradients = torch.autograd.grad(expected, parts)

    under = objective(0.6, topk=TOPK, chunk_elements=elements, policy=policy)
    sums = student_loss(student, [IndexTeacher(t) for t in teachers], under, weight=WEIGHT)
    value = 0.6 * sums.of("kl").total + 0.4 * sums.of("listmle").total
    assert value == pytest.approx(expected.item(), rel=1e-9)
    assert sums.of("kl").weight == sums.of("listmle").weight == counts
    assert sums.queries == 8.5
    for part, gradient in zip(parts, gradients, strict=True):
        assert torch.allclose(part.grad, gradient, atol=1e-9)
        assert part.grad.abs().sum() > 0


@pytest.mark.parametrize(
    "policy",
    [
        Full(),
        Hisa(block=4, blocks=6),
        Hisa(block=1, blocks=24),
        Misa(heads=3, block=2),
        Misa(heads=1, block=2, candidates=24),
        Precision(),
        Temporal(every=1),
        Hisa(block=4, blocks=6, scales="fp32", rotate=False),
    ],
    ids=lambda p: str(p.section),
)
@pytest.mark.parametrize("elements", [1, 70, 2**20])
def test_where_nothing_is_left_out_it_is_the_full_scan_bit_for_bit(policy, elements):
    found = []
    for chosen in (None, policy):
        student = features(grad=True, dtype=torch.float32)
        teachers = [IndexTeacher(features(seed=s, dtype=torch.float32)) for s in (1, 2)]
        under = objective(0.5, chunk_elements=elements, policy=chosen)
        sums = student_loss(student, teachers, under, weight=WEIGHT.float())
        found.append((sums, student.query.grad, student.key.grad, student.weight.grad))
    (plain, *before), (cut, *after) = found
    assert cut == plain
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def made(keys):
    """One head of one channel whose scores are the keys; one query behind all of them."""
    key = torch.tensor(keys, dtype=torch.float64).view(1, -1, 1)
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    return IndexFeatures(one, key, one[..., 0], 1.0, torch.tensor([key.shape[1] - 1]))


def test_blocks_and_keys_by_hand():
    """Of four blocks of two the first and last are kept: one of the two others is to be chosen."""
    two, three = math.log(2), math.log(3)
    student, teacher = made([0, 0, two, two, 0, 0, 0, 0]), made([0, 0, 0, 0, three, three, 0, 0])
    under = Objective((WeightedLoss("kl", 1.0, KL()),), 1, policy=Hisa(block=2, blocks=3))
    sums = student_loss(student, [IndexTeacher(teacher)], under, weight=torch.ones(1, 1))
    # the student's means make 2 : 1 of them, the teacher's keys 2 : 6
    of_blocks = 1 / 4 * math.log((1 / 4) / (2 / 3)) + 3 / 4 * math.log((3 / 4) / (1 / 3))
    of_keys = (4 * math.log(10 / 12) + 2 * math.log(10 / 24) + 6 * math.log(30 / 12)) / 12
    assert sums.of("kl").total == pytest.approx(of_blocks + of_keys)
    assert (sums.of("kl").weight, sums.queries) == (2, 1)


class Odd(Selection):
    """Of another package: it says by its scores alone which keys it leaves out."""

    kind: Literal["odd"] = "odd"

    def scores(self, features, rows):
        scores = index_scores(at_rows(features, rows)).clone()
        scores[..., 1::2] = float("-inf")
        return scores


def test_a_policy_that_says_nothing_more_is_taught_about_what_it_can_select():
    student, teacher = made([1.0, 5.0, 0.5, 5.0]), made([0.5, 9.0, 1.5, 9.0])
    under = Objective((WeightedLoss("kl", 1.0, KL()),), 1, policy=Odd())
    sums = student_loss(student, [IndexTeacher(teacher)], under, weight=torch.ones(1, 1))
    p, q = (torch.tensor(x).double().softmax(0) for x in ([0.5, 1.5], [1.0, 0.5]))
    assert sums.of("kl").total == pytest.approx(float((p * (p / q).log()).sum()))


@pytest.mark.parametrize("policy", [Hisa(block=3, blocks=4), Odd()], ids=lambda p: p.name)
def test_a_key_that_is_nan_is_a_fault_and_not_one_that_is_left_out(policy):
    student = features()
    broken = replace(student, key=student.key.clone())
    broken.key[0, 4] = float("nan")
    with pytest.raises(NonFiniteError, match="index scores of the student"):
        teachers = [IndexTeacher(features(seed=1))]
        student_loss(broken, teachers, objective(policy=policy), weight=WEIGHT)
