"""What `evalkit compare` says where it cannot know, where nothing worked, and where it can."""

from __future__ import annotations

import json
import re
from itertools import product
from math import comb

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.config.run import CompareConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.report import html, verdict_text
from evalkit.report.public_export import results_csv
from evalkit.run.store import RunStore
from evalkit.stats import ArmScores, Options, compare
from tests.analysis.coded_runs import coded_run
from tests.command import evalkit
from tests.report.runs import schedule

EQUAL = {"qa": "+" * 400}


def rows_of(store: RunStore) -> dict[tuple[str, str], dict]:
    """compare.json of `evalkit compare`, by arm and task."""
    assert evalkit("compare", store.path) == 0
    rows = json.loads((store.path / "compare.json").read_text())["rows"]
    return {(row["arm"], row["task"]): row for row in rows}


def one(store: RunStore, task: str = "macro", arm: str = "arm") -> dict:
    return rows_of(store)[arm, task]


# --- S1 to S3: losses that no sample shows --------------------------------------------------------


def test_ten_shared_haystacks_without_a_difference_decide_nothing(tmp_path, capsys):
    arms = {"full": EQUAL, "arm": EQUAL}
    row = one(coded_run(tmp_path, arms, haystacks={"qa": 10}, margin=0.03))
    assert row["verdict"] == "undecided"
    assert row["bound_low"] == pytest.approx(0.025**0.1 - 1, abs=1e-4)
    assert row["ci_low"] == row["bound_low"]
    (reason,) = row["reasons"]
    assert (reason["kind"], reason["have"], reason["needed"]) == ("unseen_changes", 10, 122)
    assert "about 122 would" in capsys.readouterr().out


def test_a_small_task_keeps_the_average_undecided_and_is_named(tmp_path):
    sizes = (20, 45, 100, 224, 500)
    tasks = {f"t{k}": "+" * n for k, n in enumerate(sizes)}
    row = one(coded_run(tmp_path, {"full": tasks, "arm": tasks}, margin=0.02))
    assert row["verdict"] == "undecided"
    assert row["ci_low"] > -0.02 > row["bound_low"]  # the interval alone would have said no worse
    assert row["reasons"][0]["kind"] == "unseen_changes"
    assert list(row["reasons"][1]["needed"]) == ["t0"]


def test_graded_scores_rest_on_the_bound_and_say_how_many_samples_would_free_it(tmp_path, capsys):
    arms = {"full": {"qa": "+" * 200}, "arm": {"qa": "~~" + "+" * 198}}
    store = coded_run(tmp_path, arms, margin=0.01)
    row = one(store)
    assert (row["method"], row["verdict"]) == ("score", "undecided")
    assert row["ci_low"] > -0.01 > row["bound_low"]
    assert row["reasons"][0]["kind"] == "unseen_changes"
    assert 360 < row["reasons"][0]["needed"] < 400
    printed = " ".join(capsys.readouterr().out.split())
    assert "bound: what the verdict rests on" in printed
    # a recipe that knows better decides by the interval, and its reason is printed
    why = "each answer is checked by hand"
    settings = f"rare_losses_reason='{why}'"
    assert evalkit("compare", store.path, "--set", "rare_losses=excluded", "--set", settings) == 0
    assert why in " ".join(capsys.readouterr().out.split())
    row = json.loads((tmp_path / "compare.json").read_text())["rows"][-1]
    assert row["verdict"] == "no worse"
    assert row["bound_low"] == row["ci_low"]


def test_rare_losses_are_not_excluded_without_a_reason():
    for data in ({"rare_losses": "excluded"}, {"rare_losses_reason": "because"}):
        with pytest.raises(EvalkitError, match="go together"):
            parse(data, CompareConfig, "recipe")


# --- S5: one right/wrong task, every outcome counted ----------------------------------------------


@pytest.mark.parametrize(("gain", "loss"), [(0.0, 0.1), (0.05, 0.15)])
def test_false_verdicts_of_one_task_by_enumeration(gain: float, loss: float):
    n, false = 24, {"no worse": 0.0, "worse": 0.0}
    ids, tasks, options = [str(k) for k in range(n)], ["qa"] * n, Options(margin=loss - gain)
    for gained, lost in product(range(n + 1 if gain else 1), range(n + 1)):
        same = n - gained - lost
        if same < 0:
            continue
        arms = {
            "full": ArmScores(ids, tasks, [0] * gained + [1] * (n - gained)),
            "arm": ArmScores(ids, tasks, [1] * gained + [0] * lost + [1] * same),
        }
        chance = comb(n, gained) * comb(n - gained, lost) * gain**gained * loss**lost
        chance *= (1 - gain - loss) ** same
        decision = compare(arms, "full", options).row("arm").decision
        word = decision.evidence.word  # before a baseline with little to lose withholds it
        for name, holds in (("no worse", word.acceptable), ("worse", word == "worse")):
            false[name] += chance * holds
    assert max(false.values()) <= 0.025


# --- S6: what is not an answer is not evidence ----------------------------------------------------


def test_where_nothing_worked_nothing_is_equal(tmp_path, capsys):
    arms = {"full": {"qa": "x" * 60}, "arm": {"qa": "x" * 60}}
    store = coded_run(tmp_path, arms, margin=0.02)
    row = one(store)
    assert (row["verdict"], row["reasons"][0]["kind"]) == ("withheld", "unusable")
    said = "60 answers of the baseline and 60 answers of the arm failed or are missing"
    assert said in " ".join(capsys.readouterr().out.split())
    lines = verdict_text.headline(compare_run(store))
    assert not any("lowest retention" in line for line in lines)
    assert "1 is withheld" in lines[0]


def test_the_lowest_retention_is_one_that_holds_among_all_arms_tried(tmp_path):
    lost = {"full": 0, "half": 0, "quarter": 1, "eighth": 200}
    arms = {name: {"qa": "-" * k + "+" * (200 - k)} for name, k in lost.items()}
    store = coded_run(tmp_path, arms, margin=0.03)
    run = json.loads((store.path / "run.json").read_text())
    for stored, retention in zip(run["arms"], ("1", "1/2", "1/4", "1/8"), strict=True):
        stored["schedule"] = schedule(retention, 0)
    (store.path / "run.json").write_text(json.dumps(run))
    found = compare_run(store)
    words = [found.result.row(name).verdict for name in list(lost)[1:]]
    assert words == ["no worse", "no worse", "worse"]  # each alone
    lines = verdict_text.headline(found)[1:4]
    assert lines == [  # p of 1/4 is 0.016, twice that as the second of three
        "The lowest retention that is no worse is 1/2: half.",
        "At 1/4 quarter is no worse alone, not as one of 3 arms tried.",
        "The highest retention at which an arm is worse is 1/8: eighth.",
    ]


def test_whoever_takes_the_second_run_as_baseline_has_both(tmp_path):
    arms = {"full": "+" * 400, "again": "-" * 60 + "+" * 340, "arm": "-" * 60 + "+" * 340}
    codes = {name: {"qa": text} for name, text in arms.items()}
    store = coded_run(tmp_path, codes, margin=0.03, repeat_of_baseline="again")
    for baseline, other in (("full", "again"), ("again", "full")):
        found = compare_run(store, baseline).result
        assert found.row("arm").verdict == "withheld"  # no worse than one, worse than the other
        assert found.row(other).verdict == "repeat"


def test_a_failing_baseline_hides_no_loss(tmp_path):
    arms = {"full": {"qa": "x" * 25 + "+" * 475}, "arm": {"qa": "-" * 25 + "+" * 475}}
    row = one(coded_run(tmp_path, arms, margin=0.03))
    assert row["delta"] == 0.0
    assert row["verdict"] == "withheld"
    assert (row["reasons"][0]["arm"], row["reasons"][0]["baseline"]) == (0, 25)
    assert row["bound_low"] < -0.05


@pytest.mark.parametrize(
    ("code", "verdict"),
    [("x", "withheld"), ("u", "withheld"), ("c", "withheld"), (".", "withheld"), ("-", "worse")],
)
def test_half_of_the_answers_gone_is_no_loss_of_quality(tmp_path, code, verdict):
    arms = {"full": {"qa": "+" * 300}, "arm": {"qa": code * 150 + "+" * 150}}
    assert one(coded_run(tmp_path, arms, margin=0.05))["verdict"] == verdict


def test_a_few_failures_that_change_nothing_leave_the_verdict(tmp_path):
    arms = {"full": {"qa": "+" * 500}, "arm": {"qa": "xx" + "+" * 498}}
    assert one(coded_run(tmp_path, arms, margin=0.03))["verdict"] == "no worse"


# --- S7: nothing to lose --------------------------------------------------------------------------


def test_a_baseline_at_zero_cannot_show_a_loss(tmp_path, capsys):
    tasks = {"dead": "-" * 400, "qa": "+" * 400}
    rows = rows_of(coded_run(tmp_path, {"full": tasks, "arm": tasks}, margin=0.05))
    assert rows["arm", "dead"]["verdict"] == "withheld"
    assert rows["arm", "dead"]["reasons"][0]["kind"] == "nothing_to_lose"
    assert rows["arm", "qa"]["verdict"] == rows["arm", "macro"]["verdict"] == "no worse"
    assert "1 of 2 tasks cannot show a loss: dead" in capsys.readouterr().out


def test_a_baseline_at_chance_cannot_show_a_loss(tmp_path):
    tasks = {"qa": "+---" * 100}  # one letter of four
    store = coded_run(tmp_path, {"full": tasks, "arm": tasks}, metric="choice", margin=0.05)
    row = one(store, "qa")
    assert row["verdict"] == "withheld"
    assert row["reasons"][0]["floor"] == 0.25


# --- S8: a baseline that runs twice ---------------------------------------------------------------


def test_drift_widens_and_leaves_a_loss_beyond_it(tmp_path, capsys):
    arms = {
        "full": {"qa": "+" * 1000},
        "again": {"qa": "-" * 9 + "+" * 991},  # shown to differ
        "lost": {"qa": "-" * 955 + "+" * 45},
        "close": {"qa": "+" * 990 + "-" * 10},
    }
    rows = rows_of(coded_run(tmp_path, arms, margin=0.03, repeat_of_baseline="again"))
    assert rows["lost", "macro"]["verdict"] == "worse"
    assert rows["close", "macro"]["verdict"] == "no worse"
    # it has to hold against both runs: the bound is the wider one
    assert rows["close", "macro"]["bound_high"] > rows["close", "macro"]["ci_high"]
    assert rows["again", "macro"]["verdict"] == "repeat"
    assert "drifted" not in capsys.readouterr().out


def test_another_baseline_has_no_repeat(tmp_path):
    arms = {"full": EQUAL, "again": {"qa": "-" * 60 + "+" * 340}, "arm": EQUAL, "other": EQUAL}
    store = coded_run(tmp_path, arms, margin=0.05, repeat_of_baseline="again")
    rows = {row.arm: row for row in compare_run(store, "arm").result.rows if row.task == "qa"}
    assert rows["other"].verdict == "no worse"  # `again` repeats `full`, not `arm`
    assert rows["again"].verdict == "worse"


# --- S9: words -----------------------------------------------------------------------------------

FALSE = ("is no difference", "covers more than", "noise floor", "p (Holm)", "is possible")


def test_the_five_words_and_no_false_one_in_every_output(tmp_path, capsys):
    arms = {
        "full": {"qa": "+" * 490 + "-" * 10},
        "again": {"qa": "+" * 490 + "-" * 10},
        "a better arm": {"qa": "+" * 500},
        "an equal arm": {"qa": "+" * 488 + "-" * 12},
        "a worse arm": {"qa": "+" * 300 + "-" * 200},
        "an open arm": {"qa": "+" * 480 + "-" * 20},
        "a failed arm": {"qa": "x" * 500},
    }
    store = coded_run(tmp_path, arms, margin=0.03, repeat_of_baseline="again")
    rows = rows_of(store)
    words = [rows[arm, "qa"]["verdict"] for arm in arms]
    assert words == [
        *("baseline", "repeat", "better", "no worse", "worse", "undecided", "withheld"),
    ]
    comparison = compare_run(store)
    page = html.page(store, comparison)
    texts = [capsys.readouterr().out, (tmp_path / "report.md").read_text(), page]
    texts.append(results_csv(comparison))
    for text in texts:
        assert all(word in text for word in words)
        assert not any(phrase in text for phrase in FALSE)
    for word in words[2:]:
        assert re.search(rf'>{word}</span>\s*<span class="arm"><b>', page)
    assert "p (no worse)" in texts[0]


def test_arms_that_are_tried_together_may_be_judged_together(tmp_path, capsys):
    arms = {"full": {"qa": "+" * 400}, "again": {"qa": "+" * 400}}
    arms |= {f"arm{k}": {"qa": "-" * k + "+" * (400 - k)} for k in range(6)}
    store = coded_run(tmp_path, arms, margin=0.02, repeat_of_baseline="again")
    alone = rows_of(store)
    assert evalkit("compare", store.path, "--set", "family=all") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "p (no worse, Holm)" in printed
    assert "the verdicts of all arms on a task hold together" in printed
    rows = json.loads((tmp_path / "compare.json").read_text())["rows"]
    together = {(row["arm"], row["task"]): row for row in rows}
    first = alone["arm0", "qa"]["p_no_worse"]
    assert together["arm0", "qa"]["p_no_worse"] == pytest.approx(6 * first)  # not 7: no repeat
    lost = [k for k in range(6) if alone[f"arm{k}", "qa"]["verdict"] == "no worse"]
    kept = [k for k in range(6) if together[f"arm{k}", "qa"]["verdict"] == "no worse"]
    assert set(kept) < set(lost)
    assert together[f"arm{lost[-1]}", "qa"]["reasons"][0]["kind"] == "one_of_many"


# --- S15: a setting that did nothing --------------------------------------------------------------

PROBE = "all continuations equal full's: the setting probably did nothing"


def test_an_arm_whose_setting_did_nothing_has_no_verdict(tmp_path, capsys):
    finding = {"what": "probe", "holds": None, "text": PROBE, "did_nothing": True}
    unproved = {"verdict": "unknown", "reason": "not proved", "probe": {}, "servers": []}
    arms = {"full": EQUAL, "arm": EQUAL, "silent": EQUAL}
    checks = {"arm": {**unproved, "findings": [finding]}, "silent": {**unproved, "findings": []}}
    rows = rows_of(coded_run(tmp_path, arms, checks=checks, margin=0.05))
    assert rows["arm", "macro"]["verdict"] == "withheld"
    assert rows["arm", "macro"]["reasons"][0]["why"] == PROBE
    assert rows["silent", "macro"]["verdict"] == "no worse"  # a server that does not tell
    printed = capsys.readouterr().out
    assert "asked, not proved" in printed
    proved = {"arm": {**checks["arm"], "verdict": "engaged"}}
    assert one(coded_run(tmp_path / "2", arms, checks=proved, margin=0.05))["verdict"] == "no worse"


# --- S4: stopped when decided ---------------------------------------------------------------------


def stopped(path, arms, margin=0.1, **more) -> dict[tuple[str, str], dict]:
    """A run of 200 samples that was stopped where the codes end in dots."""
    ids = {task: [f"{task}/{k}" for k in range(len(c))] for task, c in arms["full"].items()}
    record = {"question": "tasks", "order": ids, "clusters": {t: [""] * 200 for t in ids}}
    return rows_of(coded_run(path, arms, until_decided=record, margin=margin, **more))


def test_what_withholds_a_verdict_does_so_where_arms_are_stopped(tmp_path):
    full, part = "+" * 200, "+" * 100 + "." * 100
    plain = stopped(tmp_path / "1", {"full": {"qa": full}, "arm": {"qa": part}})["arm", "qa"]
    assert (plain["verdict"], plain["n"], plain["method"]) == ("no worse", 100, "sequence")
    assert plain["notes"] == []  # samples that were not asked are not missing
    for name, arms in (
        ("failures", {"full": {"qa": "x" * 40 + "+" * 160}, "arm": {"qa": "-" * 40 + part[40:]}}),
        ("floor", {"full": {"qa": "-" * 200}, "arm": {"qa": "-" * 100 + "." * 100}}),
        (
            "again",
            {
                "full": {"qa": "-+++" * 50},
                "arm": {"qa": "-+++" * 25 + "." * 100},
                "again": {"qa": full},
            },
        ),
    ):
        more = {"repeat_of_baseline": "again"} if name == "again" else {}
        row = stopped(tmp_path / name, arms, **more)["arm", "qa"]
        assert row["verdict"] != "no worse", name
        assert row["reasons"][0]["kind"] in ("unusable", "nothing_to_lose", "repeat_differs")


def test_samples_that_were_not_drawn_from_the_first_on_have_no_verdict(tmp_path):
    arms = {"full": {"qa": "+" * 200}, "arm": {"qa": "." * 5 + "+" * 195}}
    row = stopped(tmp_path, arms)["arm", "qa"]
    assert row["verdict"] == "withheld"
    assert "the first samples in the order drawn are missing" in row["notes"][-1]


def test_a_task_that_was_merged_in_was_asked_whole(tmp_path):
    full = {"a": "+" * 200, "b": "+" * 200}
    ids = [f"a/{k}" for k in range(200)]
    record = {"question": "tasks", "order": {"a": ids}, "clusters": {"a": [""] * 200}}
    arms = {"full": full, "arm": {"a": "+" * 100 + "." * 100, "b": "+" * 200}}
    rows = rows_of(coded_run(tmp_path, arms, until_decided=record, margin=0.1))
    assert {row["verdict"] for (arm, _), row in rows.items() if arm == "arm"} == {"no worse"}
    assert (rows["arm", "a"]["n"], rows["arm", "b"]["n"]) == (100, 200)


def test_the_average_of_stopped_tasks_is_judged_by_its_own_margin(tmp_path):
    lost = "-" + "+" * 39
    full = {"a": "+" * 200, "b": "+" * 200}
    rows = stopped(
        tmp_path, {"full": full, "arm": {"a": lost * 5, "b": lost * 5}}, margins={"macro": 0.005}
    )
    assert rows["arm", "a"]["verdict"] == rows["arm", "b"]["verdict"] == "no worse"
    assert rows["arm", "macro"]["delta"] == pytest.approx(-0.025)
    assert rows["arm", "macro"]["verdict"] != "no worse"


def test_an_arm_that_draws_everything_keeps_the_sequences_verdict(tmp_path):
    arms = {"full": {"qa": "+" * 200}, "arm": {"qa": "-+++" * 50}}
    row = stopped(tmp_path, arms)["arm", "qa"]
    assert (row["n"], row["method"], row["verdict"]) == (200, "sequence", "worse")
    assert row["delta"] == pytest.approx(-0.25)
    # what looks have spent is not there at the end: the interval is wider than without them
    plain = one(coded_run(tmp_path / "plain", arms, margin=0.1), "qa")
    assert row["ci_low"] < plain["ci_low"] < plain["ci_high"] < row["ci_high"]
