"""The margin of a verdict; Holm and Benjamini-Hochberg against published examples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as sps

from evalkit.core.errors import EvalkitError
from evalkit.stats import benjamini_hochberg, holm
from evalkit.stats.verdict import check_margin


def test_margin_must_be_a_share_of_the_score():
    for margin in (-0.1, 1.5, float("nan")):
        with pytest.raises(EvalkitError, match="margin"):
            check_margin(margin)


def test_holm_by_hand():
    # 4 x 0.005, 3 x 0.01, then the running maximum
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9]).tolist() == [0.9]
    assert holm([]).tolist() == []
    assert holm([0.5, 0.6, 0.9]).tolist() == [1.0, 1.0, 1.0]


def test_benjamini_hochberg_published_example():
    # the 15 p-values of Benjamini and Hochberg (1995), section 2.3: four are rejected at 0.05
    p = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344,
        0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000,
    ]  # fmt: skip
    assert int((benjamini_hochberg(p) <= 0.05).sum()) == 4
    assert int((holm(p) <= 0.05).sum()) == 3


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.randoms())
def test_adjustments_keep_order_and_agree_with_scipy(p: list, rnd: object):
    ours = benjamini_hochberg(p)
    assert ours == pytest.approx(sps.false_discovery_control(p, method="bh"))
    assert (holm(p) >= ours - 1e-12).all()
    assert (ours >= np.array(p) - 1e-12).all()
    order = np.random.default_rng(0).permutation(len(p))
    assert holm(np.array(p)[order]) == pytest.approx(holm(p)[order])


@pytest.mark.parametrize("bad", [[1.2], [-0.1], [float("nan")], [[0.1]]])
def test_adjustments_refuse_what_is_no_p_value(bad: list):
    with pytest.raises(EvalkitError, match="p-values"):
        holm(bad)
