"""Verdicts that are withheld or widened: unusable answers, nothing to lose, repeats, doubts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evalkit.stats import ArmScores, Comparison, compare
from evalkit.stats.headroom import nothing_to_lose
from evalkit.stats.trinomial import PairedCounts
from evalkit.stats.unusable import difference_ends
from evalkit.stats.verdict import (
    NotEngaged,
    NothingToLose,
    RepeatDiffers,
    TasksWithoutHeadroom,
    Unusable,
)
from tests.stats.arms import arm, margin, only, right

# --- S6: answers that are no evidence ------------------------------------------------------------


def test_ends_of_unusable_answers_by_hand():
    worst, best = difference_ends(
        [1.0, 0.0, 0.4, 0.9], [0.5, 1.0, 0.7, 0.2], [False, True, False, True], [0, 0, 1, 1]
    )
    assert worst == pytest.approx([0.5, -1.0, 0.4 - 1.0, -1.0])
    assert best == pytest.approx([0.5, 0.0, 0.4, 1.0])


def failing(scores: list[float], failed: int) -> ArmScores:
    n = len(scores)
    return arm(
        {"qa": [0.0] * failed + scores[failed:]}, errors=[True] * failed + [False] * (n - failed)
    )


def test_a_run_in_which_nothing_worked_has_no_verdict():
    arms = {"full": failing([1.0] * 500, 500), "arm": failing([1.0] * 500, 500)}
    row = compare(arms, "full", margin(0.02)).row("arm", "qa")
    assert row.verdict == "withheld"
    assert Unusable(500, 500) in row.decision.reasons


def test_a_failing_baseline_hides_no_loss():
    # 25 answers of the baseline fail just where the arm loses: scored 0, no sample differs
    arms = {"full": failing([1.0] * 500, 25), "arm": arm({"qa": [0.0] * 25 + [1.0] * 475})}
    row = compare(arms, "full", margin(0.03)).row("arm", "qa")
    assert row.result.n_differing == 0
    assert row.verdict == "withheld"
    assert row.decision.reasons == (Unusable(0, 25),)
    assert str(row.decision.reasons[0]).startswith("25 answers of the baseline failed")
    assert row.decision.evidence.low < -0.05


def test_failures_that_cannot_change_the_verdict_leave_it():
    arms = {"full": arm({"qa": [1.0] * 500}), "arm": failing([1.0] * 500, 2)}
    assert compare(arms, "full", margin(0.03)).row("arm", "qa").verdict == "no worse"
    arms["arm"] = failing([0.0] * 500, 20)
    assert compare(arms, "full", margin(0.03)).row("arm", "qa").verdict == "worse"


def test_an_infrastructure_fault_is_not_sold_as_a_loss():
    arms = {"full": arm({"qa": [1.0] * 500}), "arm": failing([1.0] * 500, 250)}
    row = compare(arms, "full", margin(0.03)).row("arm", "qa")
    assert row.result.delta == -0.5
    assert row.verdict == "withheld"


def test_missing_samples_count_as_unusable():
    short = arm({"qa": [1.0] * 470})
    row = compare({"full": arm({"qa": [1.0] * 500}), "arm": short}, "full", margin(0.03)).row("arm")
    assert (row.n, row.verdict) == (470, "withheld")
    assert row.decision.reasons[0] == Unusable(30, 0)


def test_answers_may_be_unusable_without_an_error():
    base = {"qa": [1.0] * 500}
    cut = arm({"qa": [0.0] * 30 + [1.0] * 470}, unusable=[True] * 30 + [False] * 470)
    row = compare({"full": arm(base), "arm": cut}, "full", margin(0.03)).row("arm", "qa")
    assert (row.verdict, row.errors) == ("withheld", 0)


# --- S7: tasks that can show nothing -------------------------------------------------------------


def test_a_baseline_at_zero_or_chance_withholds():
    zero = only([0.0] * 500, [0.0] * 500, margin(0.02))
    assert zero.verdict == "withheld"
    assert zero.decision.reasons[0] == NothingToLose(0.0, 0.0, 0.0)
    few = only([0.0] * 20, [0.0] * 20, margin(0.02))  # undecided but for the floor
    assert few.decision.reasons == (NothingToLose(0.0, 0.0, 0.0),)  # no number of samples decides
    letters = [1.0, 0.0, 0.0, 0.0] * 125
    floors = {f"qa/{k:04d}": 0.25 for k in range(500)}
    assert only(letters, letters, margin(0.02, floors=floors)).verdict == "withheld"
    assert only(letters, letters, margin(0.02)).verdict == "no worse"


def test_headroom_is_a_bound_and_not_a_point():
    assert nothing_to_lose([1.0] * 8 + [0.0] * 12, 0.01, 0.25) is not None  # 0.40 of 20 samples
    assert nothing_to_lose([1.0] * 80 + [0.0] * 120, 0.01, 0.25) is None
    found = nothing_to_lose([1.0] * 8 + [0.0] * 12, 0.01, 0.25)
    assert (found.score, found.floor) == (0.4, 0.25)
    assert found.shown == pytest.approx(0.1912 - 0.25, abs=2e-4)  # Clopper-Pearson of 8 in 20
    # the best constant answer is paired sample by sample
    labels = [1.0, 0.0] * 100
    assert nothing_to_lose(labels, 0.01, labels) is not None
    # shared haystacks are the units
    clusters = np.arange(200) // 50
    assert nothing_to_lose([1.0] * 200, 0.5, 0.0) is None
    assert nothing_to_lose([1.0] * 200, 0.5, 0.0, clusters=clusters) is not None


def test_the_average_names_the_tasks_that_can_show_nothing():
    base = {"dead": [0.0] * 400, "qa": [1.0] * 400}
    table = compare({"full": arm(base), "arm": arm(base)}, "full", margin(0.02))
    assert table.row("arm", "dead").verdict == "withheld"
    row = table.row("arm")
    assert row.verdict == "no worse"
    assert TasksWithoutHeadroom(("dead",), 2) in row.decision.reasons
    none = {"dead": [0.0] * 400, "dumb": [0.0] * 400}
    table = compare({"full": arm(none), "arm": arm(none)}, "full", margin(0.02))
    assert table.row("arm").verdict == "withheld"


# --- S8: a baseline that differs from its repeat -------------------------------------------------


Scores = list[float]


def repeated(scores: Scores, base: Scores, again: Scores, m: float) -> Comparison:
    arms = {"full": arm({"qa": base}), "again": arm({"qa": again}), "arm": arm({"qa": scores})}
    return compare(arms, "full", margin(m, repeat="again"))


def test_a_loss_beyond_margin_and_noise_stays_worse():
    base = [1.0] * 1000
    again = [0.0] * 8 + [1.0] * 992  # shown to differ
    table = repeated([0.0] * 900 + [1.0] * 100, base, again, 0.01)
    assert table.row("arm", "qa").verdict == "worse"
    assert table.row("again", "qa").verdict == "repeat"  # no hypothesis of its own
    assert table.row("again", "qa").decision is None


def test_a_claim_has_to_hold_against_both_runs_of_the_baseline():
    base, worse_again = [1.0] * 1000, [0.0] * 60 + [1.0] * 940
    row = repeated([0.0] * 60 + [1.0] * 940, base, worse_again, 0.02).row("arm", "qa")
    assert row.verdict == "withheld"  # worse than one run, equal to the other
    assert row.decision.reasons[0] == RepeatDiffers(-0.06, 0.06)
    evidence = row.decision.evidence
    assert evidence.low == pytest.approx(only([0.0] * 60 + [1.0] * 940, base).result.low)
    assert evidence.high == pytest.approx(only([1.0] * 1000, base).result.high)


def test_p_values_are_those_of_the_weaker_comparison():
    base, again = [1.0] * 400, [1.0] * 397 + [0.0] * 3
    row = repeated([1.0] * 395 + [0.0] * 5, base, again, 0.03).row("arm", "qa")
    assert row.decision.evidence.p_no_worse == max(
        PairedCounts(0, 5, 400).p(-0.03), PairedCounts(0, 2, 400).p(-0.03)
    )
    assert row.decision.evidence.p_worse == 1.0


def test_an_equal_repeat_changes_nothing():
    a, b = right(300, 6, 2)
    row = repeated(a, b, b, 0.05).row("arm", "qa")
    assert replace(row.decision, evidence=None) == replace(
        only(a, b, margin(0.05)).decision, evidence=None
    )
    assert row.decision.evidence.low == only(a, b, margin(0.05)).decision.evidence.low


def drifting(again: dict[str, list[float]], scores: dict[str, list[float]], m: float):
    base = {task: right_of(300) for task in scores}
    arms = {"full": arm(base), "again": arm(again), "arm": arm(scores)}
    return compare(arms, "full", margin(m, repeat="again")).row("arm").decision


def right_of(count: int, n: int = 400) -> list[float]:
    return [1.0] * count + [0.0] * (n - count)


def test_tasks_that_drift_apart_do_not_hide_a_loss_of_the_average():
    # the arm drifted with the first task only and loses 5 points of both: against each of the two
    # runs its average is the same as the baseline's
    again = {"a": right_of(340), "b": right_of(260)}
    found = drifting(again, {"a": right_of(320), "b": right_of(280)}, 0.04)
    assert (found.verdict, found.reasons[0]) == (
        "withheld",
        RepeatDiffers(0.0, pytest.approx(0.1), ("a", "b")),
    )
    assert "differs from it on a, b: not both" in str(found.reasons[0])
    # the mirror: it lost 10 points to each average, and 5 if it drifted with the second task only
    found = drifting(again, {"a": right_of(280), "b": right_of(240)}, 0.04)
    assert found.verdict == "withheld"
    # a loss beyond all of it stays worse
    assert drifting(again, {"a": right_of(150), "b": right_of(150)}, 0.04).verdict == "worse"


def test_drifts_too_small_to_be_shown_add_up():
    # six tasks of 100: no task shows its drift of 3, up in three and down in three, and the
    # average has none. An arm that drifted with the first three only would otherwise gain 1.5
    base = {task: right_of(60, 100) for task in "abcdef"}
    again = {task: right_of(63 if task in "abc" else 57, 100) for task in "abcdef"}
    scores = {task: right_of(62 if task in "abc" else 59, 100) for task in "abcdef"}
    arms = {"full": arm(base), "again": arm(again), "arm": arm(scores)}
    found = compare(arms, "full", margin(0.02, repeat="again")).row("arm").decision
    assert found.verdict == "undecided"
    (reason, *_) = found.reasons
    assert reason == RepeatDiffers(pytest.approx(0.0), pytest.approx(0.03))
    assert "by 3 points a task, one way or the other" in str(reason)
    # against each task's harder run it lost 1 point in all six
    assert found.evidence.against[1].worst.mean == pytest.approx(-0.01)
    assert (
        compare({**arms, "again": arm(base)}, "full", margin(0.02, repeat="again"))
        .row("arm")
        .decision.verdict
        == "no worse"
    )


def test_tasks_that_drift_one_way_are_judged_against_both_runs():
    again, scores = ({task: right_of(count) for task in "ab"} for count in (340, 330))
    found = drifting(again, scores, 0.04)
    assert found.evidence.low == pytest.approx(PairedCounts(0, 20, 800).lower(0.025))
    assert found.evidence.high == pytest.approx(-PairedCounts(0, 60, 800).lower(0.025))


def test_a_second_run_that_lacks_a_task_still_counts_in_the_average():
    scores = {"a": right_of(320), "b": right_of(300)}
    assert drifting({"a": right_of(300)}, scores, 0.04).verdict == "better"
    found = drifting({"a": right_of(360)}, scores, 0.04)
    assert (found.verdict, found.reasons[0]) == ("withheld", RepeatDiffers(0.15, 0.15, ()))


def test_answers_that_failed_do_not_make_the_second_run_another_one():
    ids, tasks = [f"{k:03d}" for k in range(400)], ["qa"] * 400
    failed = [k < 20 for k in range(400)]
    base = ArmScores(ids, tasks, [0.0] * 20 + [1.0] * 380, errors=failed)
    sound = ArmScores(ids, tasks, [1.0] * 400)
    options = margin(0.2, repeat="again")
    row = compare({"full": base, "again": base, "arm": sound}, "full", options).row("arm")
    assert row.verdict == "no worse"


def test_an_arm_that_is_not_engaged_has_no_verdict():
    row = only(*right(500), margin(0.02, withheld={"arm": NotEngaged("all continuations equal")}))
    assert row.verdict == "withheld"
    assert row.decision.reasons[0] == NotEngaged("all continuations equal")
    assert row.decision.evidence.low > -0.02  # what was measured stays
