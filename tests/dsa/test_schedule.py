"""ReuseSchedule against hand-computed maps, refusals by layer, and properties."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dsa import ReuseSchedule, ScheduleError
from evalkit.dsa.schedule import parse_retention

C4 = tuple(range(2, 43, 2))  # DeepSeek-V4-Flash: 43 layers, compressed-sparse on 2, 4, …, 42


def test_plain_dsa_is_all_full_and_reads_itself():
    schedule = ReuseSchedule.uniform(6)
    assert schedule.pattern == "FFFFFF"
    assert schedule.source == (0, 1, 2, 3, 4, 5)
    assert (schedule.retention, schedule.lag) == (1, 0)


def test_indexcache_quarter_by_hand():
    schedule = ReuseSchedule.uniform(10, "1/4")
    assert schedule.pattern == "FSSSFSSSFS"
    assert schedule.full_layers == (0, 4, 8)
    assert schedule.source == (0, 0, 0, 0, 4, 4, 4, 4, 8, 8)
    assert schedule.retention == Fraction(3, 10)
    assert schedule.consumers(4) == (4, 5, 6, 7)


def test_mli_example_of_the_paper():
    # F = {0, 4, 8, 12}, k = 1: layers 4-7 read 0, 8-11 read 4, 12-15 read 8, 0-3 stay serial.
    schedule = ReuseSchedule.uniform(16, "1/4", lag=1)
    assert schedule.source == (0,) * 8 + (4,) * 4 + (8,) * 4
    assert schedule.sources("prefill") == (0,) * 4 + (4,) * 4 + (8,) * 4 + (12,) * 4
    assert schedule.consumers(0) == tuple(range(8))
    assert schedule.consumers(4) == (8, 9, 10, 11)
    assert schedule.consumers(12) == ()
    assert schedule.consumers(12, "prefill") == (12, 13, 14, 15)
    assert schedule.lag == 1


def test_lag_two_leaves_the_first_two_full_layers_serial():
    schedule = ReuseSchedule.uniform(6, lag=2)
    assert schedule.source == (0, 1, 0, 1, 2, 3)
    assert schedule.lags == (0, 0, 2, 2, 2, 2)
    assert schedule.lag == 2


def test_lag_phase_all_acts_in_prefill_too():
    schedule = ReuseSchedule.uniform(4, lag=1, lag_phase="all")
    assert schedule.sources("prefill") == schedule.source == (0, 0, 1, 2)


def test_lag_may_differ_by_layer():
    schedule = ReuseSchedule.from_pattern("FFFF", lag=[0, 0, 1, 3])
    assert schedule.source == (0, 1, 1, 0)
    assert schedule.lag == (0, 0, 1, 3)


def test_a_lag_that_no_layer_can_follow_is_lag_zero():
    assert ReuseSchedule.uniform(4, "1/4", lag=1) == ReuseSchedule.uniform(4, "1/4")


def test_explicit_sources():
    schedule = ReuseSchedule.from_sources([0, 0, 2, 0])
    assert schedule.pattern == "FSFS"
    assert schedule.source == (0, 0, 2, 0)
    assert schedule.sources("prefill") == schedule.source


def test_deepseek_v4_counts_c4_layers_only():
    schedule = ReuseSchedule.uniform(C4, retention="1/2")
    assert len(schedule.full_layers) == 11
    assert schedule.shared_layer_ids == (4, 8, 12, 16, 20, 24, 28, 32, 36, 40)
    assert schedule.full_layer_ids[:3] == (2, 6, 10)


def test_equal_counts_are_not_equal_schedules():
    # 78 layers, 21 full ones each: frequency 4 at offset 2 and at offset 3 (GLM-5.2).
    one = ReuseSchedule.from_pattern("FF" + "SSSF" * 19)
    two = ReuseSchedule.from_pattern("FFF" + "SSSF" * 18 + "SSS")
    assert sum(one.computes) == sum(two.computes) == 21
    assert one != two
    assert hash(one) != hash(two)


def test_writing_does_not_matter_behaviour_does():
    assert ReuseSchedule.from_pattern("FSFS") == ReuseSchedule.uniform(4, 0.5)
    assert ReuseSchedule.from_sources([0, 0, 2, 2]) == ReuseSchedule.uniform(4, Fraction(1, 2))
    assert len({ReuseSchedule.uniform(4, "1/2"), ReuseSchedule.from_pattern("FSFS")}) == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ReuseSchedule.from_pattern("SF"), "layer 0 is shared"),
        (lambda: ReuseSchedule.from_pattern("SF", layers=[2, 4]), "layer 2 (ordinal 0) is shared"),
        (lambda: ReuseSchedule.from_pattern("FXS"), "'X' at layer 1"),
        (lambda: ReuseSchedule.from_pattern("Fs"), "'s' at layer 1"),
        (lambda: ReuseSchedule.from_pattern("FS", layers=3), "too short, nothing for layer 2"),
        (lambda: ReuseSchedule.from_pattern("FSS", layers=2), "too long at layer 2"),
        (lambda: ReuseSchedule.from_pattern(""), "empty pattern"),
        (lambda: ReuseSchedule.from_pattern("FF", lag=-1), "lag -1 at layer 0"),
        (lambda: ReuseSchedule.from_pattern("FF", lag=1.5), "lag 1.5: it must be a whole number"),
        (lambda: ReuseSchedule.from_pattern("FF", lag=True), "lag True: it must be a whole number"),
        (lambda: ReuseSchedule.from_pattern("FF", lag=[0, 0.5]), "it must be a whole number"),
        (lambda: ReuseSchedule.from_pattern("FF", lag=[0, -2]), "lag -2 at layer 1"),
        (lambda: ReuseSchedule.from_pattern("FF", lag=[0]), "1 lags for 2"),
        (lambda: ReuseSchedule.from_sources([0, 2, 2]), "layer 1 reads layer 2, which comes after"),
        (lambda: ReuseSchedule.from_sources([0, 9]), "layer 1 reads ordinal 9"),
        (
            lambda: ReuseSchedule.from_sources([0, 0, 1], computes=[True, False, False]),
            "layer 2 reads layer 1, which does not run its indexer",
        ),
        (lambda: ReuseSchedule.uniform(8, "3/4"), "is not 1/n"),
        (lambda: ReuseSchedule.uniform(8, "a lot"), "write it as 1/n"),
        (lambda: ReuseSchedule.uniform(0), "no indexer-bearing layers"),
        (lambda: ReuseSchedule.uniform([4, 2]), "must rise"),
        (lambda: ReuseSchedule.uniform(4).consumers(9), "layer 9 is not full"),
        (lambda: ReuseSchedule.parse("FFFF lag=x"), "cannot read the numbers"),
        (lambda: ReuseSchedule.parse("FFFF lag=1_0"), "cannot read the numbers"),
        (lambda: ReuseSchedule.parse("FFFF lag=¹"), "cannot read the numbers"),
        (lambda: ReuseSchedule.parse("FSFF sources=0,,2,3"), "cannot read the numbers"),
        (lambda: ReuseSchedule.parse("FSFF sources="), "cannot read the numbers"),
        (lambda: ReuseSchedule.parse("FFFF speed=1"), "cannot read 'speed=1'"),
        (lambda: ReuseSchedule.parse("FFFF lag=1 phase=some"), "use decode or all"),
    ],
)
def test_impossible_schedules_are_refused_by_name(make, words):
    with pytest.raises(ScheduleError) as caught:
        make()
    assert words in str(caught.value)


patterns = st.text("FS", min_size=0, max_size=40).map(lambda tail: "F" + tail)


@given(patterns, st.integers(0, 6), st.sampled_from(["decode", "all"]))
def test_semantics_against_a_second_implementation(pattern, k, phase):
    schedule = ReuseSchedule.from_pattern(pattern, lag=k, lag_phase=phase)
    full = [i for i, letter in enumerate(pattern) if letter == "F"]
    for layer in range(len(pattern)):
        nearest = max(f for f in full if f <= layer)
        chain = [f for f in full if f <= nearest]
        expected = chain[-1 - k] if len(chain) > k else nearest
        assert schedule.source[layer] == expected
        assert schedule.nearest[layer] == nearest
    assert sorted(c for f in full for c in schedule.consumers(f)) == list(range(len(pattern)))


@given(
    patterns,
    st.lists(st.integers(0, 5), min_size=41, max_size=41),
    st.sampled_from(["decode", "all"]),
    st.integers(1, 3),
)
def test_print_and_parse_are_inverse(pattern, lags, phase, stride):
    schedule = ReuseSchedule.from_pattern(
        pattern,
        lag=lags[: len(pattern)],
        lag_phase=phase,
        layers=[stride * i for i in range(len(pattern))],
    )
    assert ReuseSchedule.parse(str(schedule)) == schedule
    assert (
        ReuseSchedule.from_sources(
            schedule.source,
            computes=schedule.computes,
            layers=schedule.layer_ids,
            lag_phase=schedule.lag_phase,
        )
        == schedule
    )


@pytest.mark.parametrize(
    ("given", "share"),
    [
        ("1/4", Fraction(1, 4)),
        (0.25, Fraction(1, 4)),
        (1, 1),
        ("2/3", Fraction(2, 3)),
        (" 1 / 8 ", Fraction(1, 8)),
    ],
)
def test_a_retention_is_an_exact_fraction(given, share):
    assert parse_retention(given) == share


@pytest.mark.parametrize("given", ["0", "-1/4", "3/2", "2", "1/0", "half", "", "nan", "inf"])
def test_a_retention_outside_of_0_to_1_is_refused(given):
    with pytest.raises(ScheduleError, match="retention"):
        parse_retention(given)
