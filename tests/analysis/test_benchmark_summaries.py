"""What the benchmarks report of their own, from scores alone."""

import json

import pytest

from evalkit.analysis.benchmark_summaries import summaries
from evalkit.core.records import ItemRow
from evalkit.stats import ArmScores, compare
from evalkit.tasks.longbench.suites import cell, suites
from evalkit.tasks.ruler.config import NAMES
from tests.paths import SHARED

SKIPPED = "llama3-8b-instruct_S21-22-23-24"


def arm(cells):
    """An arm of samples: {cell: scores}."""
    rows = [(task, k, score) for task, scores in cells.items() for k, score in enumerate(scores)]
    ids = [f"{task}/{k}" for task, k, _ in rows]
    return ArmScores(
        ids=ids,
        tasks=[task for task, _, _ in rows],
        scores=[score for _, _, score in rows],
        clusters=ids,
        errors=[False] * len(ids),
    )


def named(scored, items=None):
    return {found.name: found for found in summaries(scored, items or {})}


def test_ruler_by_length_with_both_averages_and_the_effective_length():
    cells = {f"{n}@{length}": [s] for n in NAMES for length, s in ((4096, 0.9), (8192, 0.6))}
    found = named({"base": arm(cells), "half": arm({k: [0.5] for k in cells})})["ruler"]
    assert found.grid.head[1:3] == ("4096", "8192")
    mean, increasing, decreasing = 0.75, (0.9 + 2 * 0.6) / 3, (2 * 0.9 + 0.6) / 3
    assert found.grid.rows[0] == (
        "base",
        "0.900",
        "0.600",
        f"{mean:.3f}",
        f"{increasing:.3f}",
        f"{decreasing:.3f}",
        "4096",
    )
    assert found.grid.rows[1][-1] == "none"
    assert found.data["base"]["effective_length"] == 4096
    assert found.data["half"]["complete"] is False
    assert any("not the official six" in note for note in found.notes)
    assert not any(note.startswith("base") for note in found.notes if "official six" in note)


def test_a_few_ruler_tasks_at_one_length_make_no_table():
    assert summaries({"base": arm({"vt@512": [1.0], "needle@512": [1.0]})}, {}) == ()


def test_longbench_macros_name_their_tasks():
    tasks = suites()["longbench-en"].tasks
    base = arm({cell(task): [0.5, 0.7] for task in tasks})
    worse = arm({cell(task): [0.5, 0.5] for task in tasks})
    found = named({"base": base, "1/4": worse})["longbench"]
    rows = {(row[0], row[1]): row for row in found.grid.rows if row[0]}
    assert rows["LongBench English", "base"][2] == "0.600"
    assert rows["LongBench English", "base"][5].startswith("narrativeqa, qasper, multifieldqa_en")
    assert ("LongBench, mean of 16 tasks", "base") in rows
    assert ("MLI 11 tasks (A), unconfirmed", "base") in rows
    assert ("LongBench Chinese", "base") not in rows
    first = next(row for row in found.grid.rows if row[1] == "1/4")
    assert first[1:4] == ("1/4", "0.500", "-0.100")
    assert found.data["MLI 11 tasks (A)"]["confirmed"] is False
    assert found.data["LongBench English"]["scores"] == pytest.approx({"base": 0.6, "1/4": 0.5})


def test_longbench_e_by_bin():
    cells = {cell("qasper", "0-4k"): [1.0], cell("qasper", "4-8k"): [0.5]}
    cells[cell("trec", "0-4k")] = [0.0]
    found = named({"base": arm(cells)})["longbench_e"]
    assert found.grid.rows == (("base", "0.500", "0.500", "–"),)
    assert found.notes == ("mean over the tasks qasper, trec",)


def v2(count=8):
    task = "longbench-v2/0shot"
    items = {
        f"{task}/{k}": ItemRow(
            sample_id=f"{task}/{k}",
            task=task,
            metric="choice",
            references=("C" if k % 4 else "A",),
            cluster="",
            meta={
                "difficulty": "easy" if k % 2 else "hard",
                "length": "short",
                "domain": "Code",
            },
        )
        for k in range(count)
    }
    return task, items


def test_longbench_v2_slices_beside_what_needs_no_model():
    task, items = v2()
    scored = {"base": arm({task: [1.0, 0.0] * 4}), "other": arm({task: [1.0] * 8})}
    found = named(scored, items)[task]
    assert found.grid.head == ("slice", "n", "base", "other")
    rows = {row[0]: row[1:] for row in found.grid.rows}
    assert rows["overall"] == ("8", "0.500", "1.000")
    assert rows["difficulty: hard"] == ("4", "1.000", "1.000")
    assert rows["difficulty: easy"] == ("4", "0.000", "1.000")
    assert rows["domain: Code"] == ("8", "0.500", "1.000")
    assert rows["always C"] == ("8", "0.750", "0.750")
    assert rows["chance"] == ("8", "0.250", "0.250")
    assert json.loads(json.dumps(found.data))["without a model"]["always A"] == 0.25


def test_many_arms_are_rows():
    task, items = v2()
    found = named({f"arm {k}": arm({task: [1.0] * 8}) for k in range(9)}, items)[task]
    assert found.grid.head == ("slice", "n", "arm", "score")
    assert {len(row) for row in found.grid.rows} == {4}


def compared(scored, items=None):
    """The tables with intervals, as a comparison has them."""
    base, *_ = scored

    def part(tasks):
        parts = {
            name: ArmScores(
                **{
                    key: [v for v, t in zip(getattr(a, key), a.tasks, strict=True) if t in tasks]
                    for key in ("ids", "tasks", "scores", "clusters", "errors")
                }
            )
            for name, a in scored.items()
        }
        return compare(parts, base)

    return {found.name: found for found in summaries(scored, items or {}, part)}


def some(scores, n):
    return {task: values[:n] for task, values in scores.items()}


def test_averages_over_categories_have_their_intervals():
    """Weights and all: by hand from the tasks' own intervals."""
    names = suites()["longbench-en"].tasks
    base = {cell(task): [1.0, 0.0] * 10 for task in names}
    worse = {task: [0.0, *v[1:]] if k % 3 else v for k, (task, v) in enumerate(base.items())}
    scored = {"base": arm(base), "1/4": arm(worse)}
    found = compared(scored)["longbench"]
    kept = found.data["LongBench English"]
    weights = kept["weights"]
    assert len({round(weight, 6) for weight in weights.values()}) > 1
    results = {row.task: row.result for row in compare(scored, "base").rows if row.result}
    delta = sum(weights[t] * results[t].delta for t in weights)
    down = sum((weights[t] * (results[t].delta - results[t].low)) ** 2 for t in weights)
    up = sum((weights[t] * (results[t].high - results[t].delta)) ** 2 for t in weights)
    assert kept["intervals"]["1/4"] == pytest.approx([delta - down**0.5, delta + up**0.5])
    row = next(r for r in found.grid.rows if r[1] == "1/4" and r[2] == f"{0.5 + delta:.3f}")
    assert row[3] == f"{delta:+.3f}"
    assert any("Zou and Donner 2008" in note for note in found.notes)


def test_an_arm_over_fewer_samples_has_its_own_n_and_a_paired_difference():
    """Its first ten samples are the easy ones: it equals the baseline on all that both have."""
    tasks = suites()["longbench-en"].tasks
    base = {cell(task): [1.0] * 10 + [0.0] * 10 for task in tasks}
    found = compared({"base": arm(base), "part": arm(some(base, 10))})["longbench"]
    row = next(r for r in found.grid.rows if r[1].startswith("part"))
    assert row[1] == f"part (n={10 * len(tasks)}, not {20 * len(tasks)})"
    assert row[2:4] == ("1.000", "+0.000")


def test_slices_over_fewer_questions_have_their_own_n():
    task, items = v2()
    scored = {"base": arm({task: [1.0, 0.0] * 4}), "part": arm({task: [1.0] * 5})}
    found = named(scored, items)[task]
    rows = {row[0]: row[1:] for row in found.grid.rows}
    assert rows["overall"] == ("8", "0.500", "1.000 (n=5)")
    assert rows["difficulty: hard"] == ("4", "1.000", "1.000 (n=3)")
    assert found.data["n"]["part"]["overall"] == 5
    many = {f"arm {k}": arm({task: [1.0] * (8 if k else 5)}) for k in range(9)}
    long = named(many, items)[task].grid.rows
    assert [row[1] for row in long if row[0] == "overall"] == ["5", *["8"] * 8]


def test_ruler_and_length_bins_name_arms_over_other_samples():
    cells = {f"vt@{length}": [1.0, 0.0] for length in (4096, 8192)}
    found = named({"base": arm(cells), "part": arm(some(cells, 1))})["ruler"]
    assert [row[0] for row in found.grid.rows] == ["base", "part (n=2, not 4)"]
    cells = {cell("qasper", "0-4k"): [1.0, 0.0]}
    found = named({"base": arm(cells), "part": arm(some(cells, 1))})["longbench_e"]
    assert [row[0] for row in found.grid.rows] == ["base", "part (n=1, not 2)"]


@pytest.mark.shared
@pytest.mark.slow
def test_two_published_runs_print_their_suites(tmp_path, capsys):

    from rich.console import Console

    from evalkit.analysis.compare import compare_run, write_json
    from evalkit.config.run import CompareConfig
    from evalkit.importers import import_predictions
    from evalkit.report import markdown, terminal
    from evalkit.run.scoring import score_run
    from evalkit.run.store import RunStore

    folder = SHARED / "data" / "longbench_predictions"
    if not folder.is_dir():
        pytest.skip("needs ../shared, which is not beside this checkout")
    store = RunStore(tmp_path)
    for path in sorted(folder.iterdir()):
        import_predictions("longbench", path, path.name, store)
    score_run(store)
    comparison = compare_run(store, "llama3-8b-instruct", CompareConfig(resamples=100))
    terminal.show(comparison, Console(width=200))
    printed = capsys.readouterr().out
    for value in ("LongBench English", "0.453", "0.509", "0.449", "unconfirmed", "0.469", "0.482"):
        assert value in printed
    assert "narrativeqa, qasper, multifieldqa_en" in printed
    assert "LongBench suites" in markdown.markdown(comparison)
    flat = {row[0]: row for row in comparison.summaries[0].grid.rows}
    assert flat["LongBench, mean of 21 tasks"][4] == ""  # the baseline's own
    write_json(store, comparison)
    kept = json.loads((tmp_path / "compare.json").read_text())["summaries"]["longbench"]
    english = kept["LongBench English"]["scores"]["llama3-8b-instruct"]
    assert round(100 * english, 2) == 45.28
    for name in ("LongBench English", "LongBench Chinese"):
        ((_, (low, high)),) = kept[name]["intervals"].items()
        scores = kept[name]["scores"]
        assert low < scores[SKIPPED] - scores["llama3-8b-instruct"] < high
        assert high - low < 0.05
    ((_, (low, high)),) = kept["MLI 11 tasks (A)"]["intervals"].items()
    assert low < kept["MLI 11 tasks (A)"]["scores"][SKIPPED] - 0.469 < high
