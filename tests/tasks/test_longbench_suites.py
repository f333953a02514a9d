"""Macro means of published cells, and what is missing or unconfirmed."""

import json

import pytest

from evalkit.tasks.longbench import complete, macros, suites, tasks
from evalkit.tasks.longbench.suites import cell

# Twenty-one invented cells, and their means by hand.
CELLS = {cell(name): 10.0 + i for i, name in enumerate(tasks())}


def test_means_by_hand():
    found = {macro.name: macro for macro in complete(CELLS)}
    order = list(tasks())

    def mean(*names):
        return sum(10 + order.index(name) for name in names) / len(names)

    english = [
        mean("narrativeqa", "qasper", "multifieldqa_en"),
        mean("hotpotqa", "2wikimqa", "musique"),
        mean("gov_report", "qmsum", "multi_news"),
        mean("trec", "triviaqa", "samsum"),
        mean("passage_count", "passage_retrieval_en"),
        mean("lcc", "repobench-p"),
    ]
    assert found["LongBench English"].value == pytest.approx(sum(english) / 6)
    assert len(found["LongBench English"].weights) == 16
    chinese = [
        mean("multifieldqa_zh"),
        mean("dureader"),
        mean("vcsum"),
        mean("lsht"),
        mean("passage_retrieval_zh"),
        mean("lcc", "repobench-p"),
    ]
    assert found["LongBench Chinese"].value == pytest.approx(sum(chinese) / 6)
    assert found["LongBench, mean of 21 tasks"].value == pytest.approx(20)


def test_weights_sum_to_one_and_give_the_value():
    for name, suite in suites().items():
        scores = {cell(t, b): 0.5 for t in suite.tasks for b in (None, "0-4k", "4-8k", "8k+")}
        for macro in macros(name, scores):
            assert sum(macro.weights.values()) == pytest.approx(1)
            assert macro.value == pytest.approx(0.5)
            assert macro.listed.count(",") == len(macro.weights) - 1


def test_the_eleven_task_macros_are_called_unconfirmed():
    for name in ("mli-11a", "mli-11b"):
        (macro,) = macros(name, CELLS)
        assert len(macro.weights) == 11
        assert not macro.confirmed
        assert macro.label.endswith(", unconfirmed")
        assert "longbench/qasper" in macro.listed


def test_a_missing_cell_is_named_and_there_is_no_value():
    some = {k: v for k, v in CELLS.items() if k != "longbench/lcc"}
    (macro,) = macros("longbench-16", some)
    assert macro.value is None
    assert macro.missing == ("longbench/lcc",)
    assert "LongBench English" not in {m.name for m in complete(some)}


def test_longbench_e_has_a_mean_per_bin():
    scores = {cell(t, "4-8k"): 0.25 for t in suites()["longbench-e"].tasks}
    values = {macro.name: macro.value for macro in macros("longbench-e", scores)}
    assert values == {
        "LongBench-E 0-4k": None,
        "LongBench-E 4-8k": pytest.approx(0.25),
        "LongBench-E 8k+": None,
    }


@pytest.mark.shared
def test_means_of_a_published_run(shared):
    folder = shared / "data" / "longbench_predictions" / "llama3-8b-instruct"
    published = json.loads((folder / "result.json").read_text())
    found = complete({cell(name): value for name, value in published.items()})
    assert {macro.name: round(macro.value, 2) for macro in found} == {
        "LongBench English": 45.28,
        "LongBench Chinese": 50.89,
        "LongBench, six categories of both languages": 47.48,
        "LongBench, mean of 21 tasks": 45.97,
        "LongBench, mean of 16 tasks": 44.93,
        "MLI 11 tasks (A)": 46.91,
        "MLI 11 tasks (B)": 48.22,
    }
