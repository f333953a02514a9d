"""No number stands beside another over other samples without its own n."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from evalkit.analysis.compare import compare_run
from evalkit.analysis.grouping import by_benchmark
from evalkit.report import tables
from evalkit.report.plots import curves
from evalkit.report.plots.heatmap import difference, maps_of
from evalkit.report.retention_table import csv_text, latex, markdown, retention_table
from tests.report.runs import ARMS, make

TASKS = ("needle@512", "vt@4096", "vt@8192")
PART = "IndexCache 1/2"


@pytest.fixture
def store(tmp_path):
    """An arm that answered the first 10 of 40 needles, and vt at one length of two."""
    store = make(tmp_path, tasks=TASKS, arms=(ARMS[0], ARMS[2], ARMS[5]))
    for name in ("samples", "scores"):
        path = store.arm_dir(PART) / f"{name}.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:10] + lines[40:80]))
    return store


@pytest.fixture
def comparison(store):
    return compare_run(store)


def on(comparison, tasks, limit):
    """The baseline's mean score on the first samples of some tasks, task by task."""
    scored = comparison.scored["baseline"]
    by_task = {
        t: [s for s, u in zip(scored.scores, scored.tasks, strict=True) if u == t] for t in tasks
    }
    return np.mean([np.mean(values[:limit]) for values in by_task.values()])


def test_the_retention_layout_names_the_samples_of_an_arm(comparison):
    text = markdown(retention_table(comparison))
    (line,) = [line for line in text.splitlines() if "1/2" in line]
    *_, ruler, needle, _ = [cell.strip() for cell in line.split("|")]
    assert ruler.endswith(f"(n=40 of 80, where baseline has {on(comparison, ['vt@4096'], 40):.3f})")
    assert needle.endswith(
        f"(n=10 of 40, where baseline has {on(comparison, ['needle@512'], 10):.3f})"
    )
    (mli,) = [line for line in text.splitlines() if "MLI" in line]
    assert "n=" not in mli
    assert "(n=10 of 40, where baseline has" in latex(retention_table(comparison))
    rows = csv.DictReader(io.StringIO(csv_text(retention_table(comparison))))
    assert {r["benchmark"]: r["n"] for r in rows if r["arm"] == PART} == {
        "RULER": "40",
        "needle": "10",
    }


def test_the_table_of_arms_and_of_tasks(comparison):
    by_arm = {row[0]: row for row in tables.summary(comparison).rows}
    assert by_arm["baseline"][3].replace(".", "").isdigit()
    assert by_arm[PART][3].endswith(" (n=50)")
    assert "n=" not in by_arm["MLI k=1"][3]
    grid = tables.by_task(comparison)
    assert grid.head[1] == "needle@512 (n=40)"
    by_arm = {row[0]: row for row in grid.rows}
    assert " (n=10) " in by_arm[PART][1]
    assert "n=" not in by_arm[PART][2]
    assert any("own n is over fewer samples" in line for line in tables.notes(comparison))


def test_equal_samples_need_no_word(tmp_path):
    comparison = compare_run(make(tmp_path, tasks=TASKS, arms=ARMS[:3]))
    assert not any("own n" in line for line in tables.notes(comparison))
    assert "n=" not in markdown(retention_table(comparison))


def test_the_curve_shows_the_paired_difference(comparison):
    """Beside the baseline's line over all samples an arm stands by what it lost on those shared."""
    figure = curves.retention_curves(comparison, by_benchmark(comparison))
    panel = figure.axes[0]
    points = {line.get_label(): line.get_ydata() for line in panel.get_lines()}
    base = points.pop("baseline: baseline")[0]
    macro = {r.arm: r for r in comparison.result.rows if r.task == "macro"}
    assert points["IndexCache"][-1] - base == pytest.approx(macro[PART].result.delta)


def test_a_heat_map_of_differences_leaves_out_cells_over_other_samples(store):
    maps = maps_of(store, ["baseline", PART])["needle"]
    assert maps["baseline"].counts.ravel().tolist() == [8] * 5
    assert maps[PART].counts.ravel().tolist() == [2] * 5
    assert np.isnan(difference(maps[PART], maps["baseline"])).all()
    assert not np.isnan(difference(maps["baseline"], maps["baseline"])).any()
