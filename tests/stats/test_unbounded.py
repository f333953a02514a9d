"""Interval of a mean without bounds: the t interval of document means where documents are alike."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from evalkit.stats.unbounded import unbounded_mean


def test_equal_documents_give_students_interval_of_their_means():
    values = np.random.default_rng(0).normal(3.0, 2.0, (12, 5))
    found = unbounded_mean(values.ravel(), np.repeat(np.arange(12), 5), 0.9)
    wanted = ttest_1samp(values.mean(1), 0.0).confidence_interval(0.9)
    assert found.mean == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))


def test_a_longer_document_weighs_more_and_one_has_no_interval():
    found = unbounded_mean(np.array([1.0, 1.0, 1.0, 5.0]), ["a", "a", "a", "b"], 0.95)
    assert found.mean == 2.0
    assert found.low is not None and found.low < 2.0 < found.high
    alone = unbounded_mean(np.array([1.0, 3.0]), ["a", "a"], 0.95)
    assert (alone.mean, alone.low, alone.high) == (2.0, None, None)


def test_order_does_not_matter():
    values, labels = np.array([0.3, -4.0, 2.5, 9.0, 1.0]), np.array(["b", "a", "b", "c", "a"])
    order = [4, 2, 0, 3, 1]
    assert unbounded_mean(values, labels, 0.95) == unbounded_mean(
        values[order], labels[order], 0.95
    )
