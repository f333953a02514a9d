"""compare: the join, per-task and macro rows, verdicts, notes."""

from __future__ import annotations

import numpy as np
import pytest

from evalkit.core.errors import EvalkitError
from evalkit.stats import MACRO, ArmScores, Options, compare, paired_bootstrap

FAST = Options(n_resamples=2000, method="bca")


def arm(
    scores: dict[str, list[float]], *, skip: tuple[str, ...] = (), **columns: object
) -> ArmScores:
    ids = [f"{task}/{k}" for task, values in scores.items() for k in range(len(values))]
    flat = [value for values in scores.values() for value in values]
    keep = [k for k, name in enumerate(ids) if name not in skip]
    return ArmScores(
        ids=[ids[k] for k in keep],
        tasks=[ids[k].split("/")[0] for k in keep],
        scores=[flat[k] for k in keep],
        **columns,
    )


def data(seed: int, drop: float = 0.0) -> dict[str, list[float]]:
    common = np.random.default_rng(0)
    noise = np.random.default_rng(seed)
    result = {}
    for task, n in (("needle", 60), ("qa", 45), ("summary", 30)):
        base = common.random(n).round(2)
        change = noise.random(n) < 0.3
        result[task] = np.clip(
            np.where(change, base + noise.normal(-drop, 0.1, n), base), 0, 1
        ).tolist()
    return result


FULL, SHARED, AGGRESSIVE = data(1), data(2), data(3, drop=0.9)
ARMS = {"full": arm(FULL), "1/4": arm(SHARED), "1/16": arm(AGGRESSIVE)}


def test_rows_hold_scores_counts_and_differences():
    table = compare(ARMS, "full", FAST)
    assert [(row.arm, row.task) for row in table.rows] == [
        (name, task)
        for name in ("full", "1/4", "1/16")
        for task in ("needle", "qa", "summary", MACRO)
    ]
    row = table.row("1/4", "qa")
    assert row.score == pytest.approx(np.mean(SHARED["qa"]))
    assert row.baseline_score == pytest.approx(np.mean(FULL["qa"]))
    assert (row.n, row.errors) == (45, 0)
    assert row.result is not None
    assert row.result.n_differing == np.count_nonzero(np.subtract(SHARED["qa"], FULL["qa"]))
    assert row.result.delta == pytest.approx(row.score - row.baseline_score)
    macro = table.row("1/4")
    assert macro.score == pytest.approx(np.mean([np.mean(v) for v in SHARED.values()]))
    assert macro.n == 135
    base = table.row("full", "qa")
    assert (base.result, base.verdict, base.n) == (None, "baseline", 45)


def test_rows_equal_paired_bootstrap_of_the_same_samples():
    table = compare(ARMS, "full", FAST)
    keys = sorted(f"{task}/{k}" for task in FULL for k in range(len(FULL[task])))
    flat = {name: dict(zip(a.ids, a.scores, strict=True)) for name, a in ARMS.items()}
    alone = paired_bootstrap(
        [flat["1/16"][key] for key in keys],
        [flat["full"][key] for key in keys],
        strata=[key.split("/")[0] for key in keys],
        clusters=["sample " + key for key in keys],
        n_resamples=2000,
    )
    assert table.row("1/16").result == alone


def test_other_arms_and_sample_order_change_no_row():
    table = compare(ARMS, "full", FAST)
    two = compare({"1/16": ARMS["1/16"], "full": ARMS["full"]}, "full", FAST)
    for task in (*FULL, MACRO):
        assert table.row("1/16", task).result == two.row("1/16", task).result
    order = np.random.default_rng(0).permutation(135)
    shuffled = {
        name: ArmScores(*([column[k] for k in order] for column in (a.ids, a.tasks, a.scores)))
        for name, a in ARMS.items()
    }
    assert compare(shuffled, "full", FAST) == table


def test_verdicts_against_the_margin():
    table = compare(ARMS, "full", Options(margin=0.05, margins={"qa": 0.34}))
    assert table.row("1/16").verdict == "worse"
    assert table.row("1/4").verdict == "no worse"
    assert table.row("1/16", "qa").verdict == "no worse"
    assert "a loss is certain" in table.row("1/16", "qa").notes
    assert table.row("1/4").equivalent
    assert not table.row("1/16").equivalent


def test_a_verdict_does_not_depend_on_the_interval_of_the_table():
    rows = [compare(ARMS, "full", Options(0.1, method=m)).row("1/4") for m in ("auto", "t", "bca")]
    assert len({row.result.low for row in rows}) == 3
    assert len({(row.verdict, row.bound) for row in rows}) == 1


def test_a_run_compared_with_itself_allows_what_its_samples_cannot_show():
    table = compare({"full": ARMS["full"], "again": ARMS["full"]}, "full", FAST)
    row = table.row("again")
    assert (row.result.low, row.result.high, row.result.p_value) == (0.0, 0.0, 1.0)
    assert row.verdict == "undecided"  # 30 equal pairs do not exclude a loss of one point
    assert row.bound[0] < -0.01
    assert any("all differences equal" in note for note in row.notes)


def test_the_default_interval_says_what_equal_scores_leave_open():
    table = compare({"full": ARMS["full"], "again": ARMS["full"]}, "full")
    row = table.row("again", "needle")
    assert row.result.method == "exact"
    assert row.result.n_differing == 0
    assert row.bound_is_interval
    assert row.result.low == pytest.approx(-(1 - 0.025 ** (1 / 60)), rel=0.03)
    assert row.verdict == "undecided"  # 60 equal pairs do not exclude a loss of one point


def test_baseline_and_repeat_are_named_in_the_place_of_a_verdict():
    table = compare({**ARMS, "again": ARMS["full"]}, "full", Options(repeat="again"))
    assert {row.verdict for row in table.rows if row.arm == "full"} == {"baseline"}
    assert {row.verdict for row in table.rows if row.arm == "again"} == {"repeat"}


def test_errors_are_counted_and_all_errors_are_named():
    zero = {task: [0.0] * len(values) for task, values in FULL.items()}
    broken = arm(zero, errors=[True] * 135)
    table = compare({"full": ARMS["full"], "broken": broken}, "full", FAST)
    row = table.row("broken", "qa")
    assert (row.errors, row.score) == (45, 0.0)
    assert "every sample of the arm is an error" in row.notes
    assert table.row("broken").errors == 135
    assert table.row("broken").verdict == "withheld"  # nothing is known of its quality


def test_missing_samples_are_joined_away_and_named():
    short = arm(SHARED, skip=("qa/3", "qa/7"))
    table = compare({"full": ARMS["full"], "1/4": short}, "full", FAST)
    row = table.row("1/4", "qa")
    assert row.n == 43
    assert "2 of 45 samples of 'full' are missing in '1/4'" in row.notes
    assert row.baseline_score == pytest.approx(np.mean(np.delete(FULL["qa"], [3, 7])))
    assert table.row("1/4").n == 133
    assert any("missing" in note for note in table.row("1/4").notes)
    assert table.row("full", "qa").n == 45


def test_a_task_missing_in_one_arm_is_left_out_of_its_macro_average_and_named():
    less = arm({task: values for task, values in SHARED.items() if task != "qa"})
    table = compare({"full": ARMS["full"], "less": less, "1/4": ARMS["1/4"]}, "full", FAST)
    row = table.row("less", "qa")
    assert (row.result, row.score, row.n, row.verdict) == (None, None, 0, "withheld")
    assert "all samples of 'full' are missing in 'less'" in row.notes
    assert "macro over 2 of 3 tasks" in table.row("less").notes
    assert table.row("less").score == pytest.approx(
        (np.mean(SHARED["needle"]) + np.mean(SHARED["summary"])) / 2
    )
    assert table.row("1/4").result == compare(ARMS, "full", FAST).row("1/4").result


def test_clusters_are_resampled_together_and_empty_ones_are_single_samples():
    haystacks = [f"h{k // 5}" if k < 60 else "" for k in range(135)]
    arms = {"full": arm(FULL, clusters=haystacks), "1/4": arm(SHARED, clusters=haystacks)}
    table = compare(arms, "full", FAST)
    assert table.row("1/4", "needle").result.n_clusters == 12
    assert table.row("1/4", "qa").result.n_clusters == 45


def test_signature_holds_every_choice():
    options = Options(margin=0.02, margins={"qa": 0.05}, method="percentile", seed=7)
    signature = compare(ARMS, "full", options).signature
    for part in (
        "method:percentile",
        "seed:7",
        "resamples:10000",
        "margin:0.02",
        "margin[qa]:0.05",
    ):
        assert part in signature.split("|")


def one(ids: list[str], tasks: list[str], scores: list[float], clusters: tuple = ()) -> ArmScores:
    return ArmScores(ids, tasks, scores, clusters)


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ({"other": one(["a"], ["t"], [1])}, "not among the arms: other"),
        ({"full": one([], [], [])}, "no scored samples"),
        ({"full": one(["a", "a"], ["t", "t"], [1, 0])}, "a is there more than once"),
        ({"full": one(["a", "b"], ["t"], [1, 0])}, "1 tasks for 2 sample ids"),
        ({"full": one(["a"], ["t"], [2])}, "score 2.0 of a"),
        ({"full": one(["a"], ["t"], [float("nan")])}, "score nan of a"),
        ({"full": one(["a"], ["macro"], [1])}, "not of a task"),
        ({"full": one(["a"], ["t"], [1]), "x": one(["b"], ["t"], [1])}, "share no sample"),
        (
            {"full": one(["a"], ["t"], [1]), "x": one(["a"], ["u"], [1])},
            "task t in arm 'full' but task u",
        ),
        (
            {"full": one(["a"], ["t"], [1], ("h",)), "x": one(["a"], ["t"], [1], ("g",))},
            "cluster h in arm 'full' but cluster g",
        ),
    ],
)
def test_refusals_say_why(arms: dict, message: str):
    with pytest.raises(EvalkitError, match=message):
        compare(arms, "full", FAST)


@pytest.mark.parametrize(
    "options",
    [
        Options(margin=-1),
        Options(method="t-test"),
        Options(family="arms"),
    ],
)
def test_options_out_of_range_are_refused(options: Options):
    with pytest.raises(EvalkitError):
        compare(ARMS, "full", options)


def test_an_unknown_row_is_refused():
    with pytest.raises(EvalkitError, match="no row"):
        compare(ARMS, "full", FAST).row("1/4", "poetry")
