"""Confidence sequences and stopping: second implementations, error rates, order, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evalkit.core.errors import EvalkitError
from evalkit.stats import QUESTIONS, DrawnTask, confidence_sequence, sampling_order
from evalkit.stats.confidence_sequence import first_refuted, log_capital, sequence_ends
from tests.stats.sequences import states


def differences(n: int, discordance: float, delta: float, seed: int = 0) -> np.ndarray:
    u = np.random.default_rng(seed).random(n)
    gain, loss = (discordance + delta) / 2, (discordance - delta) / 2
    return np.where(u < gain, 1.0, np.where(u > 1 - loss, -1.0, 0.0))


def capital_by_loop(x: np.ndarray, m: float, size: int | None, alpha: float) -> list[float]:
    """The two bettors of Waudby-Smith and Ramdas, one sample at a time."""
    capitals, seen, found = [1.0, 1.0], [], []
    spread = 0.25
    for t, value in enumerate(x, start=1):
        mean = (0.5 + sum(seen)) / t
        variance = spread / t
        if size is None:
            mu, center = m, mean
        else:
            mu = (size * m - sum(seen)) / (size - t + 1)
            center = (size * mean - sum(seen)) / (size - t + 1)
        plug_in = math.sqrt(2 * math.log(2 / alpha) / (variance * t * math.log(1 + t)))
        agrapa = (center - mu) / (variance + (center - mu) ** 2)
        bets = (min(plug_in, 0.5 / mu), min(max(agrapa, 0.0), 0.9 / mu))
        capitals = [c * (1 + bet * (value - mu)) for c, bet in zip(capitals, bets, strict=True)]
        found.append(sum(capitals) / 2)
        seen.append(value)
        spread += (value - (0.5 + sum(seen)) / (t + 1)) ** 2
    return found


@pytest.mark.parametrize("size", [None, 120])
def test_capital_against_a_plain_loop(size: int | None):
    x = (differences(80, 0.3, -0.1) + 1) / 2
    ours = log_capital(x, np.array([0.48, 0.5]), size, 0.95)
    for row, m in zip(ours, (0.48, 0.5), strict=True):
        assert np.exp(row) == pytest.approx(capital_by_loop(x, m, size, 0.05))


@pytest.mark.parametrize("size", [None, 120])
def test_capital_of_both_bettors_against_confseq(size: int | None, monkeypatch):
    # its C++ part does not build on Python 3.11 and later; the Python part needs an old NumPy name
    monkeypatch.setattr(np, "float_", np.float64, raising=False)
    betting = pytest.importorskip("confseq.betting", reason="confseq is not installed")
    bets = pytest.importorskip("confseq.betting_strategies")
    x, m = (differences(80, 0.3, -0.1) + 1) / 2, 0.5
    options = {"alpha": 0.05, "theta": 1, "N": size}
    plug_in = betting.betting_mart(
        x, m, lambdas_fn_positive=lambda x, _: bets.lambda_predmix_eb(x, alpha=0.025), **options
    )
    agrapa = betting.betting_mart(
        x,
        m,
        lambdas_fn_positive=lambda x, m: np.maximum(bets.lambda_aKelly(x, m, N=size), 0.0),
        trunc_scale=0.9,
        **options,
    )
    ours = np.exp(log_capital(x, np.array([m]), size, 0.95)[0])
    assert ours == pytest.approx((plug_in + agrapa) / 2)


# confseq 0.0.11, mean of the capitals of its plug-in and aGRAPA bettors after 10, 40, 80 samples
CAPITALS = {
    (None, 0.4): [0.63021527, 0.45308855, 0.82947335],
    (None, 0.5): [0.28684802, 0.15293541, 0.14738081],
    (120, 0.4): [0.66484236, 0.63865731, 5.5107523],
    (120, 0.5): [0.28882531, 0.15224863, 0.14762386],
}


@pytest.mark.parametrize(("size", "m"), list(CAPITALS))
def test_capital_against_recorded_values_of_confseq(size: int | None, m: float):
    x = (differences(80, 0.3, -0.1) + 1) / 2
    ours = np.exp(log_capital(x, np.array([m]), size, 0.95)[0])
    assert ours[[9, 39, 79]] == pytest.approx(CAPITALS[size, m])


# confseq 0.0.11, hedged_cs(x, alpha=0.05, N=size): its plug-in bettor alone, as differences
HEDGED = {
    None: {50: (-0.228, 0.116), 100: (-0.212, 0.014), 199: (-0.178, -0.020)},
    200: {50: (-0.208, 0.096), 100: (-0.182, -0.010), 199: (-0.100, -0.090)},
}


@pytest.mark.parametrize("size", [None, 200])
def test_sequence_is_close_to_the_published_hedged_capital_sequence(size: int | None):
    low, high = confidence_sequence(differences(200, 0.2, -0.1, seed=3), size=size)
    for t, (reference_low, reference_high) in HEDGED[size].items():
        assert low[t - 1] == pytest.approx(reference_low, abs=0.02)
        assert high[t - 1] == pytest.approx(reference_high, abs=0.02)


def test_sequence_narrows_and_holds_the_mean():
    d = differences(400, 0.2, -0.1, seed=1)
    low, high = confidence_sequence(d)
    assert (np.diff(low) >= 0).all()
    assert (np.diff(high) <= 0).all()
    assert (low <= -0.1).all()
    assert (high >= -0.1).all()
    assert high[-1] - low[-1] < 0.3


def test_whole_benchmark_leaves_nothing_open():
    d = differences(150, 0.3, 0.0, seed=2)
    low, high = confidence_sequence(d, size=150)
    assert low[-1] == high[-1] == pytest.approx(d.mean())
    wide = confidence_sequence(d)
    assert high[-2] - low[-2] < 0.5 * (wide[1][-2] - wide[0][-2])


@pytest.mark.parametrize("size", [None, 100])
def test_sequence_mirrors_and_stays_in_range(size: int | None):
    d = differences(100, 0.4, 0.1, seed=4)
    low, high = confidence_sequence(d, size=size)
    low2, high2 = confidence_sequence(-d, size=size)
    assert low == pytest.approx(-high2)
    assert high == pytest.approx(-low2)
    for extreme in (np.ones(60), -np.ones(60), np.zeros(60)):
        low, high = confidence_sequence(extreme, size=size)
        assert np.isfinite([low, high]).all()
        assert (low >= -1).all()
        assert (high <= 1).all()
        assert (low <= high).all()


@pytest.mark.parametrize("size", [None, 400])
def test_last_ends_agree_with_the_sequence(size: int | None):
    for seed, delta in ((0, 0.0), (1, -0.3), (2, 0.15)):
        d = differences(200, 0.4, delta, seed)
        low, high = confidence_sequence(d, size=size)
        ends = sequence_ends(d, size=size)
        assert ends == pytest.approx((low[-1], high[-1]), abs=0.005)
        assert low[-1] - 1e-9 <= ends[0] < ends[1] <= high[-1] + 1e-9
    assert sequence_ends(d, size=200) == (pytest.approx(d.mean()), pytest.approx(d.mean()))


def test_first_refuted_agrees_with_the_sequence():
    d = differences(300, 0.1, 0.08, seed=5)
    (low, _), x = confidence_sequence(d, breaks=2000), (d + 1) / 2
    at = first_refuted(x, np.array([0.5]), None, 0.95)[0]
    assert low[int(at) + 5] >= -0.002
    assert low[int(at) - 5] < 0.0


def run(d: np.ndarray, margin: float) -> dict:
    return states(d, margin, len(d))


def test_a_clear_loss_stops_early_and_the_verdict_stays():
    d = differences(500, 0.5, -0.4, seed=1)
    seen = [states(d[:n], 0.05, 500) for n in (10, 60, 100, 500)]
    for question in QUESTIONS:
        verdicts = [state[question].verdict for state in seen]
        assert verdicts[0] == "undecided"
        assert verdicts[2:] == ["worse", "worse"]
        counts = {state[question].decided_at for state in seen[2:]}
        assert len(counts) == 1
        assert counts.pop() < 100


def test_equal_arms_are_no_worse_after_about_4_over_margin_samples():
    state = states(np.zeros(300), 0.05, 300)
    for question in QUESTIONS:
        assert state[question].verdict == "no worse"
        assert 60 < state[question].decided_at < 120


def test_the_two_questions_differ():
    d = np.random.default_rng(0).permutation([1.0] * 15 + [-1.0] * 15 + [0.0] * 170)
    state = run(d, 0.03)
    assert state["benchmark"].verdict == "no worse"
    assert state["benchmark"].low == state["benchmark"].high == 0.0
    assert state["tasks"].verdict == "undecided"
    assert state["tasks"].low < -0.03 < state["tasks"].high


def test_a_benchmark_exactly_at_the_margin_stays_undecided():
    d = np.array([0.0] * 98 + [-1.0] * 2)
    known = DrawnTask(d, 100)
    assert known.p(-0.02, "benchmark", 0.025) == 1.0
    assert known.mirrored().p(0.02, "benchmark", 0.025) == 1.0


def test_clusters_are_the_units():
    values = differences(60, 0.4, -0.1, seed=3)
    d, clusters = np.repeat(values, 5), np.repeat([f"h{k}" for k in range(60)], 5).tolist()
    copies = states(d, 0.05, 300, clusters=clusters)
    alone = states(values, 0.05, 60)
    for question in QUESTIONS:
        assert copies[question].verdict == alone[question].verdict
        assert copies[question].low == pytest.approx(alone[question].low)
    part = states(d[:203], 0.05, 300, clusters=clusters)
    whole = states(d[:200], 0.05, 300, clusters=clusters)
    assert part["tasks"].low == whole["tasks"].low  # the open cluster does not count yet
    none = states(d[:3], 0.05, 300, clusters=clusters)
    assert (none["tasks"].low, none["tasks"].high) == (-1.0, 1.0)


def test_unequal_clusters_keep_the_mean_over_samples():
    d = np.array([1.0] * 6 + [0.0] * 2 + [-1.0] * 2)
    clusters = ["a"] * 6 + ["b"] * 2 + ["c"] * 2
    state = states(d, 0.0, 10, clusters=clusters)["benchmark"]
    assert state.low == state.high == pytest.approx(0.4)


def test_sampling_order_is_seeded_and_free_of_input_order():
    ids = [f"qa/{k}" for k in range(50)]
    order = [ids[k] for k in sampling_order(ids, seed=1)]
    assert sorted(order) == sorted(ids)
    assert order != [ids[k] for k in sampling_order(ids, seed=2)]
    backwards = ids[::-1]
    assert [backwards[k] for k in sampling_order(backwards, seed=1)] == order
    more = ids + [f"qa/{k}" for k in range(50, 60)]
    assert [name for k in sampling_order(more, seed=1) if (name := more[k]) in ids] == order


def test_sampling_order_keeps_clusters_together():
    ids = [f"qa/{k}" for k in range(40)]
    clusters = [f"h{k % 8}" if k < 32 else "" for k in range(40)]
    order = [clusters[k] or ids[k] for k in sampling_order(ids, clusters=clusters)]
    changes = sum(order[k] != order[k - 1] for k in range(1, 40))
    assert changes == 15


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], 0.1, 10), "empty"),
        (([0.1, 2.0], 0.1, 10), "in \\[-1, 1\\]"),
        (([0.1] * 11, 0.1, 10), "11 samples drawn of a benchmark of 10"),
        (([0.1], -0.1, 10), "margin"),
    ],
)
def test_refusals(arguments: tuple, message: str):
    with pytest.raises(EvalkitError, match=message):
        states(*arguments)


def test_clusters_out_of_order_are_refused():
    with pytest.raises(EvalkitError, match="one after the other"):
        states([0.0] * 3, 0.1, 3, clusters=["a", "b", "a"])
    with pytest.raises(EvalkitError, match="2 clusters"):
        states([0.0] * 3, 0.1, 3, clusters=["a", "b"])


def false_decisions(question: str, margin: float, discordance: float, runs: int) -> float:
    """Share of runs with a wrong verdict at any look, the true difference being at the margin."""
    rng = np.random.default_rng(7)
    wrong, size = 0, 300
    null = np.array([(1 - margin) / 2])
    for _ in range(runs):
        if question == "tasks":
            u = rng.random(size)
            gain, loss = (discordance - margin) / 2, (discordance + margin) / 2
            d, population = np.where(u < gain, 1.0, np.where(u > 1 - loss, -1.0, 0.0)), None
        else:
            k = round(discordance * size / 2)
            gap = round(margin * size / 2)
            counts = [k - gap, k + gap, size - 2 * k]
            d, population = rng.permutation(np.repeat([1.0, -1.0, 0.0], counts)), size
        x = (d + 1) / 2
        above = first_refuted(x, null, population, 0.95)[0]
        below = first_refuted(1 - x, 1 - null, population, 0.95)[0]
        wrong += min(above, below) < size
    return wrong / runs


@pytest.mark.parametrize("question", list(QUESTIONS))
def test_false_decisions_under_continuous_looking(question: str):
    # at the margin either verdict is false; 5 % nominal, 3 standard errors of 800 runs on top
    assert false_decisions(question, 0.04, 0.2, 800) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 800)
