"""Gaffke's bound: closed forms, Clopper-Pearson, brute-force error rates, properties."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as sps

from evalkit.stats.gaffke import BoundedUnits, dirichlet_quantile, dirichlet_tail

ALPHA = 0.025
values = st.lists(st.sampled_from([k / 8 for k in range(-8, 9)]), min_size=1, max_size=12)


def bound(differences: list[float] | np.ndarray, largest: float = 1.0) -> BoundedUnits:
    distinct, counts = np.unique(differences, return_counts=True)
    return BoundedUnits(distinct, counts.astype(float), largest)


def tail_by_residues(z: list[float], t: float) -> float:
    """P(sum D_i z_i <= t), D uniform on the simplex, all z different: a sum over the z above t."""
    above = [
        math.prod((a - t) / (a - b) for j, b in enumerate(z) if j != i)
        for i, a in enumerate(z)
        if a > t
    ]
    return 1.0 - math.fsum(above)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_tail_against_the_closed_form(n: int):
    rng = np.random.default_rng(n)
    for _ in range(20):
        z = rng.uniform(-1, 1, n).tolist()
        for t in np.linspace(min(z), max(z), 9)[1:-1]:
            expected = tail_by_residues(z, float(t))
            assert dirichlet_tail(z, np.ones(n), float(t)) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("n", [1, 2, 5, 20, 100, 1000, 10_000])
def test_tail_of_two_values_is_a_beta_distribution(n: int):
    for losses in {k for k in (0, 1, 2, n // 4, n - 1) if k < n}:
        for p in (0.2, 0.025, 1e-3, 1e-6):
            t = -sps.beta.isf(p, losses + 1, n - losses)
            got = dirichlet_tail([-1.0, 0.0], [losses + 1, n - losses], t)
            assert got == pytest.approx(p, rel=1e-3)
    for shapes in ((2.5, 3.7), (0.4, 11.0)):  # shapes need not be whole
        t = -sps.beta.isf(0.03, *shapes)
        assert dirichlet_tail([-1.0, 0.0], shapes, t) == pytest.approx(0.03, rel=2e-3)


def test_tail_against_simulation():
    rng = np.random.default_rng(0)
    z = np.append(rng.choice([-0.5, 0.0, 0.1, 0.4], 30), -1.0)
    drawn = rng.dirichlet(np.ones(31), 200_000) @ z
    for t in (-0.2, -0.1, 0.0):
        expected = float(np.mean(drawn <= t))
        assert dirichlet_tail(z, np.ones(31), t) == pytest.approx(expected, abs=0.004)


def test_tail_at_and_beyond_the_ends():
    assert dirichlet_tail([-1.0, 0.5], [1, 3], -1.1) == 0.0
    assert dirichlet_tail([-1.0, 0.5], [1, 3], 0.6) == 1.0
    assert dirichlet_tail([0.2], [5], 0.2) == 1.0
    assert dirichlet_quantile([0.2, 0.2], [5, 1], ALPHA) == 0.2


@pytest.mark.parametrize(("losses", "n"), [(0, 1), (0, 60), (1, 60), (7, 60), (59, 60), (3, 2000)])
def test_right_wrong_units_give_clopper_and_pearson(losses: int, n: int):
    units = bound([-1.0] * losses + [0.0] * (n - losses))
    exact = sps.binomtest(losses, n).proportion_ci(1 - 2 * ALPHA, method="exact")
    assert units.lower(ALPHA) == pytest.approx(-exact.high, abs=1e-6)


def test_nothing_varies_by_hand():
    # n equal units exclude a loss of m when (1 - m)^n <= alpha
    for n in (5, 60, 400):
        assert bound([0.0] * n).lower(ALPHA) == pytest.approx(ALPHA ** (1 / n) - 1, abs=1e-6)
        assert bound([0.0] * n).p(-0.05) == pytest.approx(0.95**n, rel=1e-4)
    heavy = bound([0.0] * 100, largest=3.0)  # a unit that weighs three
    assert heavy.lower(ALPHA) == pytest.approx(3 * (ALPHA**0.01 - 1), rel=1e-4)


def test_large_samples_tend_to_the_normal_bound():
    d = np.random.default_rng(1).uniform(-0.4, 0.3, 20_000)
    normal = d.mean() - 1.959964 * d.std() / math.sqrt(len(d))
    assert bound(d).lower(ALPHA) == pytest.approx(normal, abs=1e-4)


@given(values, st.floats(-0.99, 0.5), st.floats(0.01, 3.0))
def test_p_value_follows_units_null_and_scale(d: list[float], null: float, scale: float):
    p = bound(d).p(null)
    assert 0.0 <= p <= 1.0
    assert bound(d[::-1]).p(null) == p
    assert bound(d).p(null + 0.05) >= p - 1e-9
    lost = [max(-1.0, d[0] - 0.25), *d[1:]]
    assert bound(lost).p(null) >= p - 1e-3
    scaled = bound([x * scale for x in d], scale)
    assert scaled.p(null * scale) == pytest.approx(p, abs=1e-3)


@given(values, st.sampled_from([0.001, 0.025, 0.2]))
def test_bound_is_where_the_p_value_is_alpha(d: list[float], alpha: float):
    units = bound(d)
    low = units.lower(alpha)
    if max(d) == -1.0:
        assert low == -1.0
        return
    assert -1.0 <= low <= max(d)
    assert units.p(low) <= alpha + 1e-6
    assert units.p(low + 1e-4) > alpha or low + 1e-4 >= max(d)


def false_claims(levels: tuple[float, ...], chances: np.ndarray, n: int) -> float:
    """Chance that the bound lies above the mean, by enumerating all samples of three values."""
    mean, wrong = float(np.dot(levels, chances)), 0.0
    for counts in product(range(n + 1), repeat=2):
        if sum(counts) <= n:
            k = np.array([*counts, n - sum(counts)])
            there = k > 0
            units = BoundedUnits(np.array(levels)[there], k[there].astype(float), 1.0)
            if units.p(mean) <= ALPHA:
                wrong += float(sps.multinomial.pmf(k, n, chances))
    return wrong


@pytest.mark.parametrize("levels", [(-1.0, 0.0, 1.0), (-1.0, -0.1, 0.3), (-0.6, 0.0, 0.05)])
def test_no_three_valued_distribution_breaks_the_level(levels: tuple[float, ...]):
    rng = np.random.default_rng(0)
    for n in (3, 8, 15):
        for chances in rng.dirichlet([0.6, 1.0, 1.0], 12):
            assert false_claims(levels, chances, n) <= ALPHA + 1e-9
