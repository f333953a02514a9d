"""The table of the MLI paper: golden files, order of rows, arms that lack a benchmark."""

from __future__ import annotations

import csv
import io
import os
from fractions import Fraction

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.analysis.grouping import benchmark_of, place, retention
from evalkit.core.records import ArmEntry
from evalkit.report.retention_table import csv_text, latex, markdown, retention_table
from tests.paths import GOLDEN
from tests.report.runs import entry, make

WRITERS = {"md": markdown, "tex": latex, "csv": csv_text}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return retention_table(compare_run(make(tmp_path_factory.mktemp("run"))))


@pytest.mark.parametrize("kind", WRITERS)
def test_golden(table, kind):
    path, text = GOLDEN / f"retention.{kind}", WRITERS[kind](table)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_rows_go_from_the_baseline_down(table):
    assert table.benchmarks == ("LongBench", "RULER", "LongBench v2", "needle")
    assert [(str(line.retention), line.kind) for line in table.lines] == [
        ("1", "baseline"),
        ("1", "MLI k=1"),
        ("1/2", "IndexCache"),
        ("1/2", "IndexCache + MLI k=1"),
        ("1/4", "IndexCache"),
        ("1/4", "IndexCache, distilled"),
    ]


def test_csv_holds_the_same_numbers(table):
    rows = list(csv.DictReader(io.StringIO(csv_text(table))))
    assert len(rows) == 6 * 4
    found = next(r for r in rows if (r["kind"], r["benchmark"]) == ("IndexCache", "RULER"))
    row = table.lines[2].cells[1]
    assert float(found["delta"]) == pytest.approx(row.result.delta, abs=1e-6)
    assert float(found["ci_low"]) == pytest.approx(row.result.low, abs=1e-6)
    assert found["n"] == "80"


def test_latex_escapes_names(tmp_path):
    arms = (("base_1", "1", 0, False, 1.0), ("50% & #1_$x$", "1/2", 0, False, 0.5))
    store = make(tmp_path, n=6, arms=arms, tasks=("my_task",))
    run = store.read_run()
    other = {**run.arms[1].stored, "schedule": None}  # its name is all that is known
    store.write_run(run.with_arm(ArmEntry.parse(other)))
    text = latex(retention_table(compare_run(store)))
    assert r"50\% \& \#1\_\$x\$" in text
    assert r"my\_task" in text


@pytest.mark.parametrize(
    ("pattern", "share"),
    [
        ("FFFF", Fraction(1)),
        ("FSFSF", Fraction(1, 2)),  # 3 of 5, but every second
        ("FSSSSSSS", Fraction(1, 8)),
        ("FSSFSSSF", Fraction(3, 8)),
    ],
)
def test_retention_of_a_pattern(pattern, share):
    assert retention(pattern) == share


def test_families():
    assert place(ArmEntry.parse(entry("x", "1/4", 0, True))).family == "IndexCache, distilled"
    assert place(ArmEntry.parse(entry("x", "1/2", 2, False))).family == "MLI k=2"
    assert place(ArmEntry.parse({"name": "x", "schedule": None})).family is None


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("niah_single_1@4096", "RULER"),
        ("longbench/hotpotqa", "LongBench"),
        ("longbench-e/qasper@0-4k", "LongBench-E"),
        ("longbench-v2/0shot_cot", "LongBench v2"),
        ("needle-far@32768chars", "needle"),
        ("graphwalk@8192", "graphwalk"),
    ],
)
def test_benchmark_of(task, name):
    assert benchmark_of(task) == name
