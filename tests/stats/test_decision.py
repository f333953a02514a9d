"""Verdicts that rest on bounds: words, reasons, unusable answers, repeats, families, floors."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from evalkit.stats import MACRO, Options, Row, compare, holm
from evalkit.stats.decision import Decision, Evidence, Repeat, Views, as_family, decide, weigh
from evalkit.stats.gaffke import BoundedUnits
from evalkit.stats.trinomial import PairedCounts
from evalkit.stats.verdict import (
    MoreUnits,
    NothingToLose,
    OneOfMany,
    RareLossesExcluded,
    RepeatDiffers,
    SmallerLoss,
    SmallTasks,
    UnseenChanges,
    Unusable,
    Verdict,
    as_record,
)
from tests.stats.arms import arm, margin, only, right

# --- one right/wrong task ------------------------------------------------------------------------


def test_equal_answers_decide_from_the_least_number_on():
    few, enough = only(*right(60)), only(*right(370))
    assert few.verdict == "undecided"
    assert few.decision.reasons == (MoreUnits(60, 370, "samples"),)
    assert only(*right(369)).verdict == "undecided"  # the number is exact
    assert enough.verdict == "no worse"
    assert enough.result.method == "exact"
    assert enough.result.low == pytest.approx(enough.decision.evidence.low)


def test_the_interval_of_the_table_is_the_bound_of_the_verdict():
    for lost, gained in ((3, 1), (12, 0), (0, 5)):
        row = only(*right(200, lost, gained), margin(0.05))
        evidence = row.decision.evidence
        assert (row.result.low, row.result.high) == (evidence.low, evidence.high)
        assert row.result.p_value == min(1.0, 2 * min(evidence.p_better, evidence.p_lower))


def test_five_words():
    assert only(*right(200, 30), margin(0.02)).verdict == Verdict.WORSE
    assert only(*right(400, 12), margin(0.06)).verdict == Verdict.NO_WORSE
    assert only(*right(400, 0, 30), margin(0.02)).verdict == Verdict.BETTER
    assert only(*right(200, 4), margin(0.02)).verdict == Verdict.UNDECIDED
    assert only([0.0] * 400, [0.0] * 400, margin(0.05)).verdict == Verdict.WITHHELD
    assert [v.acceptable for v in Verdict] == [True, True, False, False, False]
    assert [v.decided for v in Verdict] == [True, True, True, False, False]
    assert json.dumps(Verdict.NO_WORSE) == '"no worse"'


def test_a_certain_loss_is_said_within_the_margin_and_beyond():
    within = only(*right(1000, 20), margin(0.05))
    assert within.verdict == "no worse"
    assert within.decision.reasons == (SmallerLoss(),)
    open_ = only(*right(400, 12), margin(0.02))
    assert open_.verdict == "undecided"
    assert open_.decision.reasons[0] == SmallerLoss()
    assert isinstance(open_.decision.reasons[1], MoreUnits)


# --- S1: shared haystacks ------------------------------------------------------------------------


def test_few_haystacks_without_a_difference_decide_nothing():
    n = 400
    clusters = [f"h{k // 40}" for k in range(n)]
    row = only(*right(n), margin(0.03), clusters=clusters)
    assert row.verdict == "undecided"
    assert row.decision.evidence.low == pytest.approx(0.025**0.1 - 1, abs=1e-5)  # a lost haystack
    assert row.decision.reasons == (UnseenChanges(10, 122, "haystacks"),)
    assert (row.result.low, row.result.method) == (row.decision.evidence.low, "gaffke")
    many = only(*right(1220), margin(0.03), clusters=[f"h{k // 10}" for k in range(1220)])
    assert many.verdict == "no worse"


def test_clusters_of_one_sample_change_nothing():
    a, b = right(300, 5, 2)
    alone = only(a, b, margin(0.05))
    single = only(a, b, margin(0.05), clusters=[f"h{k}" for k in range(300)])
    assert (single.verdict, single.result) == (alone.verdict, alone.result)


# --- S2: macro averages --------------------------------------------------------------------------

SIZES = (20, 26, 34, 45, 59, 77, 100, 131, 171, 224, 292, 382, 500)


def macro(sizes: tuple[int, ...], options: Options, lost: int = 0) -> Row:
    base = {f"t{k:02d}": [1.0] * n for k, n in enumerate(sizes)}
    scores = {task: [0.0] * lost + values[lost:] for task, values in base.items()}
    return compare({"full": arm(base), "arm": arm(scores)}, "full", options).row("arm")


def test_a_small_task_keeps_the_average_undecided_and_is_named():
    row = macro(SIZES, margin(0.01))
    assert row.verdict == "undecided"
    # all of the loss may sit in the task of 20: (1 - 13 m)^20 = 0.025 at m = 0.013
    assert row.decision.evidence.low == pytest.approx(-(1 - 0.025 ** (1 / 20)) / 13, rel=0.1)
    small = row.decision.reasons[1]
    assert isinstance(small, SmallTasks)
    assert set(small.needed) == {"t00", "t01"}
    size = small.needed["t00"][1]
    assert macro(tuple(max(size, n) for n in SIZES), margin(0.01)).verdict == "no worse"
    assert macro(tuple(max(size - 2, n) for n in SIZES), margin(0.01)).verdict == "undecided"


def test_the_average_of_equal_tasks_is_tested_as_one_task_of_all_pairs():
    row = macro((50,) * 4, margin(0.05), lost=1)
    one = only(*right(200, 4), margin(0.05))
    assert row.decision.evidence.method == "exact"
    assert row.result.low == one.result.low
    assert row.result.method == "exact"


def test_a_macro_average_of_one_task_has_its_verdict():
    arms = {"full": arm({"qa": right(90)[1]}), "arm": arm({"qa": right(90, 3)[0]})}
    table = compare(arms, "full", margin(0.08))
    assert table.row("arm").decision == table.row("arm", "qa").decision
    other = compare(arms, "full", replace(margin(0.08), margins={MACRO: 0.2}))
    assert other.row("arm").verdict != other.row("arm", "qa").verdict


# --- S3: graded scores ---------------------------------------------------------------------------


def graded(n: int, seed: int = 0) -> tuple[list[float], list[float]]:
    rng = np.random.default_rng(seed)
    base = rng.uniform(0.3, 0.7, n)
    noise = np.where(rng.random(n) < 0.3, rng.uniform(-0.03, 0.03, n), 0.0)
    return (base + noise).tolist(), base.tolist()


def test_graded_scores_show_both_bounds_and_decide_by_the_one_that_holds():
    row = only(*graded(200), margin(0.01))
    assert row.result.method == "score"
    assert row.result.low > -0.003  # what losses of the kind seen allow
    assert row.decision.evidence.low == pytest.approx(0.025 ** (1 / 200) - 1, abs=1e-3)
    assert row.verdict == "undecided"
    (reason,) = row.decision.reasons
    assert isinstance(reason, UnseenChanges)
    assert (reason.have, reason.noun) == (200, "samples")
    assert 360 <= reason.needed <= 385
    assert only(*graded(reason.needed + 25), margin(0.01)).verdict == "no worse"


def test_a_few_gains_not_seen_keep_a_small_loss_from_being_worse():
    base = [0.5] * 200
    row = only([0.47, 0.46] * 100, base, margin(0.02))
    assert row.result.high < -0.02
    assert row.verdict == "undecided"
    reason = row.decision.reasons[1]
    assert isinstance(reason, UnseenChanges)
    assert not reason.losses
    assert "gained whole" in str(reason)
    more = [0.47, 0.46] * (reason.needed // 2 + 10)
    assert only(more, [0.5] * len(more), margin(0.02)).verdict == "worse"


def test_one_graded_sample_that_differs_by_a_hundredth_decides_nothing():
    base = [0.5] * 50
    row = only([0.49, *base[1:]], base, margin(0.01))
    assert row.verdict == "undecided"
    assert row.decision.evidence.low < -0.07


def test_a_recipe_that_excludes_rare_losses_decides_by_the_interval():
    options = margin(0.01, rare_losses_excluded="answers are cut to one line")
    row = only(*graded(200), options)
    assert row.verdict == "no worse"
    assert row.decision.evidence.method == "score"
    assert row.decision.evidence.low == pytest.approx(row.result.low)
    assert RareLossesExcluded("answers are cut to one line") in row.decision.reasons
    assert any("answers are cut to one line" in note for note in row.notes)
    # on right/wrong scores a loss is always whole
    assert only(*right(60), options).decision == only(*right(60), margin(0.01)).decision


# --- several arms --------------------------------------------------------------------------------


def test_family_of_all_arms_holds_together_by_holm():
    base = {"qa": right(400)[1]}
    arms = {"full": arm(base)}
    arms |= {f"arm{k}": arm({"qa": right(400, k)[0]}) for k in range(5)}
    each = compare(arms, "full", margin(0.02))
    together = compare(arms, "full", margin(0.02, family="all"))
    raw = [each.row(f"arm{k}", "qa").decision.evidence.p_no_worse for k in range(5)]
    adjusted = [together.row(f"arm{k}", "qa").decision.p_no_worse_adjusted for k in range(5)]
    assert adjusted == pytest.approx(holm(raw))
    row = next(together.row(f"arm{k}", "qa") for k in range(5) if raw[k] <= 0.025 < adjusted[k])
    assert row.verdict == "undecided"
    assert row.decision.reasons[0] == OneOfMany(5, Verdict.NO_WORSE)
    assert each.row("arm0", "qa").decision.p_no_worse_adjusted is None


def test_the_repeat_is_in_no_family():
    base = {"qa": right(400)[1]}
    arms = {"full": arm(base), "again": arm(base), "arm": arm({"qa": right(400, 1)[0]})}
    row = compare(arms, "full", margin(0.03, family="all", repeat="again")).row("arm", "qa")
    assert row.decision.p_no_worse_adjusted == row.decision.evidence.p_no_worse


# --- the pieces ----------------------------------------------------------------------------------


def test_evidence_against_two_references_is_the_weaker_of_each():
    one, two = PairedCounts(0, 2, 300), PairedCounts(1, 0, 300)
    both = weigh([Views(one, one), Views(two, two)], 0.03, 0.025)
    assert both.low == one.lower(0.025)
    assert both.high == max(-one.mirrored().lower(0.025), -two.mirrored().lower(0.025))
    assert both.p_no_worse == max(one.p(-0.03), two.p(-0.03))
    assert both.method == "exact"


def test_decide_withholds_only_where_drift_is_shown():
    base, again = PairedCounts(0, 0, 500), PairedCounts(0, 10, 500)
    for shown, word in ((True, Verdict.WITHHELD), (False, Verdict.UNDECIDED)):
        repeat = Repeat(Views(again, again), 0.02, 0.02, shown)
        found = decide(Views(base, base), 0.02, repeat=repeat)
        assert (found.verdict, found.reasons) == (word, (RepeatDiffers(0.02, 0.02),))


def test_family_of_one_is_the_arm_alone():
    test = BoundedUnits(np.array([0.0]), np.array([400.0]), 1.0)
    alone = decide(Views(test, test), 0.02)
    (found,) = as_family([alone])
    assert (found.verdict, found.evidence) == (alone.verdict, alone.evidence)
    assert isinstance(found, Decision)
    assert isinstance(found.evidence, Evidence)


def test_reasons_read_as_one_clause():
    for reason in (
        MoreUnits(60, 370, "samples"),
        MoreUnits(60, None, "samples"),
        UnseenChanges(10, 122, "haystacks"),
        SmallTasks({"vt": (20, 29)}, "samples"),
        Unusable(3, 0),
        NothingToLose(0.25, 0.25, -0.02),
        RepeatDiffers(0.003, 0.003),
        OneOfMany(12, Verdict.NO_WORSE),
    ):
        text = str(reason)
        assert text
        assert "\n" not in text
        assert not text.endswith(".")
        record = as_record(reason)
        assert json.loads(json.dumps(record))["text"] == text
    assert as_record(MoreUnits(60, 370, "samples")) == {
        "kind": "more_units",
        "have": 60,
        "needed": 370,
        "noun": "samples",
        "text": "about 370 samples like these 60 would decide",
    }
    assert str(SmallTasks({"vt": (20, 29)}, "samples")) == (
        "more samples of the smallest tasks would decide: vt 20 → 29"
    )


# --- haystacks that several tasks share ----------------------------------------------------------


def test_a_haystack_in_two_tasks_is_one_unit_of_the_average():
    base = {"a": [1.0] * 200, "b": [1.0] * 200}
    shared = [f"h{k % 20}" for k in range(400)]  # both tasks use the same 20 haystacks
    own = [f"{'ab'[k // 200]} h{k % 20}" for k in range(400)]
    rows = {}
    for name, clusters in (("shared", shared), ("own", own)):
        arms = {"full": arm(base, clusters=clusters), "arm": arm(base, clusters=clusters)}
        rows[name] = compare(arms, "full", margin(0.1)).row("arm")
    assert rows["own"].decision.evidence.low == pytest.approx(0.025 ** (1 / 40) - 1, abs=1e-5)
    assert rows["shared"].decision.evidence.low == pytest.approx(0.025 ** (1 / 20) - 1, abs=1e-5)
    assert rows["own"].verdict == "no worse"
    assert rows["shared"].verdict == "undecided"
    assert any("clusters span tasks" in note for note in rows["shared"].notes)


def test_samples_of_several_tasks_are_weighted_as_their_tasks():
    # 10 samples of task a and 40 of b share haystacks: a's weigh 2.5, b's 0.625
    base = {"a": [1.0] * 10, "b": [1.0] * 40}
    clusters = [f"h{k}" for k in range(10)] + [f"h{k % 10}" for k in range(40)]
    scores = {"a": [0.0] + [1.0] * 9, "b": [0.0] * 4 + [1.0] * 36}
    arms = {"full": arm(base, clusters=clusters), "arm": arm(scores, clusters=clusters)}
    row = compare(arms, "full", margin(0.1)).row("arm")
    units = row.decision.evidence.against[0].worst
    assert units.mean == pytest.approx(row.result.delta) == pytest.approx(-0.1)
    assert sum(units.counts) == 10
    assert units.largest == pytest.approx(1.0)
    # haystack 0 loses its sample of a and one of b, three others lose one of b
    assert sorted(units.values) == pytest.approx([-0.625, -0.125, 0.0])
