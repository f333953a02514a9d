"""The table of goals: its verdicts, and digits that do not hide them."""

from __future__ import annotations

import argparse
import importlib.util
import sys

import pytest

from tests.paths import ROOT


@pytest.fixture
def table(monkeypatch):
    spec = importlib.util.spec_from_file_location("run_all", ROOT / "benchmarks" / "run_all.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run_all", module)  # dataclasses ask for it
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("value", "text"), [(0.128, "0.13"), (0.999, "1.00"), (1.0004, "1.0004"), (1.2, "1.20")]
)
def test_a_miss_is_not_rounded_away(table, value, text):
    assert table.Goal("", "", "", most=1).digits(value) == text


@pytest.mark.parametrize(
    ("quick", "verdicts"),
    [
        (False, ["met", "**missed**", "**missed**", "not at this size"]),
        (True, ["met", "**missed**", "goal is for 32k", "not at this size"]),
    ],
)
def test_a_goal_of_a_size_is_neither_met_nor_missed_at_another(
    table, tmp_path, monkeypatch, quick, verdicts
):
    (tmp_path / "small.py").write_text('print(\'{"speed": 2.0, "memory": 2.0}\')\n')
    monkeypatch.setattr(table, "HERE", tmp_path)
    goals = (
        table.Goal("", "", "speed", least=2),
        table.Goal("", "", "memory", most=1),
        table.Goal("", "", "memory", most=1, size="32k"),
        table.Goal("", "", "elsewhere", most=1),
    )
    args = argparse.Namespace(quick=quick)
    rows = table.rows(table.Benchmark("small", goals), args)
    assert [verdict for _, _, verdict in rows] == verdicts
