"""RULER's summary numbers against the published leaderboard and by hand."""

import json

import pytest

from evalkit.tasks.ruler.aggregate import OFFICIAL_LENGTHS, aggregate, weighted
from evalkit.tasks.ruler.config import NAMES
from tests.paths import GOLDEN

LEADERBOARD = json.loads((GOLDEN / "ruler_leaderboard.json").read_text())


def cells(scores, lengths=OFFICIAL_LENGTHS, names=NAMES):
    """Every task of a length has the same score, but for a spread that cancels out."""
    found = {}
    for length, score in zip(lengths, scores, strict=True):
        for k, name in enumerate(names):
            spread = 0.01 * min(score, 1 - score) * (k - (len(names) - 1) / 2)
            found[f"{name}@{length}"] = score + spread
    return found


@pytest.mark.parametrize("model", LEADERBOARD["rows"])
def test_published_rows_are_reproduced(model):
    scores, average, increasing, decreasing, effective = LEADERBOARD["rows"][model]
    result = aggregate(cells([score / 100 for score in scores]))
    assert [100 * row.score for row in result.lengths] == pytest.approx(scores)
    assert 100 * result.average == pytest.approx(average, abs=0.1)
    assert 100 * result.weighted_increasing == pytest.approx(increasing, abs=0.1)
    assert 100 * result.weighted_decreasing == pytest.approx(decreasing, abs=0.1)
    assert result.effective_length == effective
    assert result.complete
    assert all("may be more than 131072" in note for note in result.notes)


def test_the_formulas_by_hand():
    assert weighted([0.6, 0.5, 0.4, 0.3, 0.2, 0.1]) == pytest.approx(
        (1 * 0.6 + 2 * 0.5 + 3 * 0.4 + 4 * 0.3 + 5 * 0.2 + 6 * 0.1) / 21
    )
    result = aggregate({"vt@4096": 1.0, "cwe@4096": 0.5, "vt@8192": 0.2, "cwe@8192": 0.0})
    assert [row.score for row in result.lengths] == [0.75, 0.1]
    assert result.weighted_increasing == pytest.approx((0.75 + 2 * 0.1) / 3)
    assert result.weighted_decreasing == pytest.approx((2 * 0.75 + 0.1) / 3)


def test_the_threshold_itself_is_effective():
    assert aggregate(cells([0.856], (4096,))).effective_length == 4096
    assert aggregate(cells([0.8559], (4096,))).effective_length is None


def test_missing_tasks_and_lengths_are_said():
    result = aggregate(cells([0.9, 0.8], (4096, 8192), ("vt", "cwe")))
    assert not result.complete
    tasks, lengths = result.notes
    assert tasks.startswith("at every length the score is the mean of 2 of 13 tasks; missing: niah")
    assert lengths == (
        "averages are over the lengths 4096, 8192, not the official six;"
        " missing: 16384, 32768, 65536, 131072"
    )
    uneven = cells([0.9] * 6)
    del uneven["qa_2@65536"]
    note, *_ = aggregate(uneven).notes
    assert note == "at length 65536 the score is the mean of 12 of 13 tasks; missing: qa_2"
    assert not aggregate(uneven).complete


def test_a_length_below_the_threshold_among_better_ones_is_said():
    result = aggregate(cells([0.9, 0.8, 0.9, 0.5, 0.5, 0.5]))
    assert result.effective_length == 16384
    assert result.notes == ("length 8192 is below the threshold, a longer one is not",)
    assert result.complete


def test_other_tasks_are_ignored():
    assert aggregate({"needle@4096": 1.0, "qasper": 0.5, "graphwalk_parents@512": 0}) is None
    assert aggregate({"needle@4096": 1.0, "vt@512": 0.5}).average == 0.5
