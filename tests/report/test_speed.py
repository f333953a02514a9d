"""bench.json and overlap.json appear on the page beside quality."""

from __future__ import annotations

import json

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.core.errors import EvalkitError
from evalkit.report import html
from evalkit.report.panels import speed
from evalkit.report.plots import write
from tests.report.runs import ARMS, make

RATIO = {"value": 1.137, "low": 1.11, "high": 1.16}
BENCH = {
    "baseline": "baseline",
    "drift": {"holds": True},
    "arms": [
        {"name": "baseline", "ratios": {}},
        {"name": "IndexCache 1/2", "ratios": {"whole": RATIO}},
        {"name": "never evaluated", "ratios": {"steady": RATIO}},
    ],
}


def test_speed_stands_beside_quality(tmp_path):
    store = make(tmp_path, tasks=("vt@4096",), arms=ARMS[:3])
    comparison = compare_run(store)
    assert '<section id="speed">' not in html.page(store, comparison)
    (tmp_path / "bench.json").write_text(json.dumps(BENCH))
    text = html.page(store, comparison)
    assert '<section id="speed">' in text
    rows = speed.table(speed.read(tmp_path), comparison).rows
    assert rows[1][1:3] == ("1.137", "[1.110, 1.160]")
    assert rows[1][5] == comparison.result.row("IndexCache 1/2").verdict
    assert "NOT EVALUATED" in rows[2]
    files = write.write(store, comparison, tmp_path / "plots")
    assert tmp_path / "plots" / "speed.svg" in files


def test_drift_is_said(tmp_path):
    store = make(tmp_path, tasks=("vt@4096",), arms=ARMS[:3])
    (tmp_path / "bench.json").write_text(json.dumps(BENCH | {"drift": {"holds": False}}))
    assert "no speeds are compared" in html.page(store, compare_run(store))


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "bench.json").write_text("{")
    with pytest.raises(EvalkitError, match=r"bench\.json"):
        speed.read(tmp_path)
