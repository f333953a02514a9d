"""`evalkit power`: pilot or assumption in, samples needed out."""

from __future__ import annotations

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.analysis.power import pilot_arm, pilot_spreads, planned_counts
from evalkit.core.errors import EvalkitError
from evalkit.stats import assumed_spread, samples_needed
from tests.command import evalkit
from tests.report.runs import ARMS, make


def line(printed, task):
    return next(row for row in printed.splitlines() if row.strip().startswith(f"{task} "))


def test_assumption(capsys):
    planned = ["--planned", "longbench-v2=503"]
    assert evalkit("power", "--discordance", 0.15, *planned, "--margin", 0.02) == 0
    printed = capsys.readouterr().out
    needed = samples_needed(0.02, assumed_spread(0.15))
    assert f"{needed:,}" in line(printed, "longbench-v2")
    # LongBench v2 moves in steps of 0.2 points; its noise is far coarser.
    assert "503 samples move in steps of 0.2 points" in printed
    assert "+-3.4 points, 17 steps" in printed


def test_pilot(tmp_path, capsys):
    store = make(tmp_path, tasks=("vt@4096", "needle@512"))
    assert evalkit("power", tmp_path, "--planned", "vt@4096=500") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("pilot: 1/2 + MLI k=1 against baseline")
    assert line(printed, "vt@4096").split()[1] == "500"
    assert line(printed, "needle@512").split()[1] == "40"
    comparison = compare_run(store)
    spread = pilot_spreads(comparison, "IndexCache 1/4")["vt@4096"]
    row = comparison.result.row("IndexCache 1/4", "vt@4096")
    assert spread.delta == pytest.approx(row.result.delta)
    assert spread.pilot == 40


def test_the_pilot_arm_is_one_that_is_not_lost(tmp_path):
    comparison = compare_run(make(tmp_path, n=200, tasks=("vt@4096",)))
    assert comparison.result.row("IndexCache 1/4").verdict == "worse"
    assert pilot_arm(comparison) == "1/2 + MLI k=1"
    assert pilot_arm(comparison, "IndexCache 1/4") == "IndexCache 1/4"
    with pytest.raises(EvalkitError, match="nobody"):
        pilot_arm(comparison, "nobody")


def test_planned_counts():
    assert planned_counts(["500", "a=20"], {"a": 1, "b": 2}) == {"a": 20, "b": 500}
    for text in ("x", "a=", "a=-1", "=5", "0"):
        with pytest.raises(EvalkitError):
            planned_counts([text], {})


@pytest.mark.parametrize(
    "options", [[], ["--discordance", "0.1"], ["--discordance", "2", "--planned", "a=5"]]
)
def test_refusals(options, capsys):
    assert evalkit("power", *options) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_one_arm_alone_is_no_pilot(tmp_path, capsys):
    make(tmp_path, tasks=("vt@4096",), arms=ARMS[:1])
    assert evalkit("power", tmp_path) == 2
