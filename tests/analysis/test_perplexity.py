"""Perplexity, its difference and the KL: by hand, and against whole distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.analysis.perplexity import divergence, perplexities
from evalkit.core.errors import EvalkitError
from evalkit.core.records import ItemRow, SampleRow
from evalkit.core.records.likelihood import Likelihood


def likelihood(logprobs, *distributions, top=None):
    """What an arm says; distributions as probabilities by token id, the likeliest `top` kept."""
    order = [np.argsort(-np.array(p), kind="stable")[:top] for p in distributions]
    values = [np.log(np.array(p)[o]) for p, o in zip(distributions, order, strict=True)]
    return Likelihood(
        np.array(logprobs),
        np.arange(len(distributions)),
        np.array(order, dtype=np.int32).reshape(len(distributions), -1),
        np.array(values, dtype=np.float32).reshape(len(distributions), -1),
    )


def answer(sample_id, said, **changes):
    text = said if isinstance(said, str) else said.text()
    row = SampleRow(sample_id, "prose@8", "x", 8, 0, text, "stop")
    return row._replace(**changes)


ITEMS = {i: ItemRow(i, "prose@8", "perplexity", (), i, {}) for i in ("prose@8/0", "prose@8/1")}


def test_by_hand():
    half, quarter = math.log(0.5), math.log(0.25)
    p, q = (0.5, 0.25, 0.15, 0.10), (0.25, 0.5, 0.15, 0.10)
    base = {"prose@8/0": likelihood([half, half], p), "prose@8/1": likelihood([half] * 4, p)}
    arm = {"prose@8/0": likelihood([quarter, half], q), "prose@8/1": likelihood([half] * 4, p)}
    answers = {
        name: {i: answer(i, said) for i, said in texts.items()}
        for name, texts in (("base", base), ("arm", arm))
    }
    first, second = perplexities(answers, ITEMS, "base")
    assert (first.arm, first.verdict, first.documents, first.tokens) == ("base", "baseline", 2, 6)
    assert first.perplexity == pytest.approx(2.0)
    assert first.delta is None
    assert second.perplexity == pytest.approx(2.0 * 2 ** (1 / 6))
    assert second.baseline_perplexity == pytest.approx(2.0)
    assert second.delta.mean == pytest.approx(math.log(2) / 6)
    assert second.kl.mean == pytest.approx(0.25 * math.log(2) / 2, abs=1e-6)
    assert second.verdict == "withheld"
    assert perplexities(answers, ITEMS, "base", repeat="arm")[1].verdict == "repeat"


def test_failed_documents_are_counted_and_leave_both_arms():
    said = likelihood([math.log(0.5)], (0.5, 0.5))
    base = {i: answer(i, said) for i in ITEMS}
    arm = base | {"prose@8/1": answer("prose@8/1", "", finish_reason="error", error="gone")}
    row = perplexities({"base": base, "arm": arm}, ITEMS, "base")[1]
    assert (row.documents, row.failed, row.tokens) == (1, 1, 1)
    assert (row.delta.mean, row.delta.low) == (0.0, None)


def test_a_record_that_was_edited_is_named():
    base = {i: answer(i, "green") for i in ITEMS}
    with pytest.raises(EvalkitError, match=r"arm base, prose@8/0: these are no log-probabilities"):
        perplexities({"base": base}, ITEMS, "base")


weights = st.lists(st.floats(0.01, 1.0), min_size=6, max_size=6)


@given(weights, weights, st.integers(1, 6))
def test_never_above_the_whole_and_equal_to_it_where_all_is_kept(a, b, top):
    p, q = (np.array(w) / np.sum(w) for w in (a, b))
    whole = float((p * np.log(p / q)).sum())
    kept = divergence(likelihood([-1.0], p, top=top), likelihood([-1.0], q, top=top))[0]
    assert 0.0 <= kept <= whole + 1e-5
    if top == 6:
        assert kept == pytest.approx(whole, abs=1e-5)


def test_the_record_is_read_back():
    said = likelihood([-1.25, -0.5], (0.7, 0.2, 0.1), (0.1, 0.8, 0.1))
    back = Likelihood.parse(said.text())
    for name in ("logprobs", "positions", "top_ids", "top_logprobs"):
        np.testing.assert_array_equal(getattr(back, name), getattr(said, name))
