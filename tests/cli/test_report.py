"""`evalkit report`: files, refusals, merged runs, and an export that names nobody."""

from __future__ import annotations

import json

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.core.errors import EvalkitError
from evalkit.run.merge import open_runs
from evalkit.run.store import RunStore
from tests.command import evalkit
from tests.report.runs import ARMS, SECRET, make


def test_public_export_holds_no_text_and_no_host(tmp_path):
    make(tmp_path / "run", n=10, tasks=("needle@512", "vt@4096"), arms=ARMS[:4])
    assert evalkit("report", tmp_path / "run", "--public", "--out", tmp_path / "out") == 0
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"report.html", "results.csv", "evidence.json", "retention.tex"} <= names
    assert {"differences.png", "differences.svg", "heatmaps-needle.png"} <= names
    for path in files:
        data = path.read_bytes()
        for secret in (SECRET, "Secret question", "gold 1", "wrong 1", "window.broken", "/srv/"):
            assert secret.encode() not in data, (path.name, secret)
    evidence = json.loads((tmp_path / "out" / "evidence.json").read_text())
    arm = evidence["arms"][3]
    assert arm["model"] == "tiny-dsa"
    assert arm["schedule"]["pattern"] == "FSSSFSSS"
    assert arm["counts"] == {"error": 1}
    assert {row["method"] for row in evidence["rows"]} == {None, "exact"}


def test_plots_and_page(tmp_path, capsys):
    make(tmp_path, n=10, tasks=("vt@4096",), arms=ARMS[:3])
    assert evalkit("report", tmp_path) == 0
    assert "report.html" in capsys.readouterr().out
    for name in ("retention.png", "retention.svg", "differences.svg", "schedules.png"):
        assert (tmp_path / "plots" / name).stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--layout", "wide"], "known is retention"),
        (["--layout", "retention", "--out", "x.pdf"], "end it in"),
        (["--baseline", "nobody"], "no such arm"),
        (["--layout", "retention", "--public"], "leave --layout out"),
    ],
)
def test_refusals(tmp_path, capsys, options, words):
    make(tmp_path, n=4, tasks=("vt@4096",), arms=ARMS[:2])
    assert evalkit("report", tmp_path, *options) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arms": []}, "names no arm"),
        ({"recipe": {"compare": {"margin": "wide"}}}, "compare: margin: "),
    ],
)
def test_a_record_that_says_nothing_is_one_line(tmp_path, capsys, changes, words):
    make(tmp_path, n=4, tasks=("vt@4096",), arms=ARMS[:2])
    path = tmp_path / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    for command in ("compare", "report"):
        assert evalkit(command, tmp_path) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


def test_every_count_is_told_even_where_it_is_zero(tmp_path, capsys):
    make(tmp_path, n=4, tasks=("vt@4096",), arms=ARMS[:2])
    assert evalkit("compare", tmp_path) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "0 answers: failed, empty, cut at the token budget, with unclosed reasoning, with a"
        " truncated prompt, over-length" in printed
    )


def test_another_margin_needs_no_new_run(tmp_path, capsys):
    make(tmp_path, tasks=("vt@4096",), arms=ARMS[:4])
    assert evalkit("compare", tmp_path, "--set", "margin=0.2") == 0
    found = json.loads((tmp_path / "compare.json").read_text())
    assert found["settings"]["margin"] == 0.2
    words = {row["arm"]: row["verdict"] for row in found["rows"] if row["task"] == "macro"}
    assert words == {
        "baseline": "baseline",
        "again": "repeat",
        "IndexCache 1/2": "no worse",
        "IndexCache 1/4": "worse",
    }
    assert evalkit("report", tmp_path, "--no-plots", "--set", "margin=0.2") == 0
    assert "by a margin of 20 points" in (tmp_path / "report.html").read_text()
    assert evalkit("compare", tmp_path, "--set", "margins=high") == 2


def test_runs_over_other_tasks_become_one(tmp_path):
    a = make(tmp_path / "a", tasks=("vt@4096",), arms=ARMS[:3])
    b = make(tmp_path / "b", tasks=("needle@512",), arms=ARMS[:3])
    store = open_runs([a.path, b.path])
    comparison = compare_run(store)
    assert [arm.name for arm in comparison.arms] == ["baseline", "again", "IndexCache 1/2"]
    alone = compare_run(a).result.row("IndexCache 1/2", "vt@4096")
    assert comparison.result.row("IndexCache 1/2", "vt@4096") == alone
    assert comparison.result.row("IndexCache 1/2").n == 80
    assert store.read_run().merged == ("c" * 64,) * 2


def test_runs_of_other_arms_become_one(tmp_path):
    tasks = ("vt@4096",)
    a = make(tmp_path / "a", tasks=tasks, arms=ARMS[:2])
    b = make(tmp_path / "b", tasks=tasks, arms=(ARMS[0], ARMS[3]))
    comparison = compare_run(open_runs([a.path, b.path]))
    assert [arm.name for arm in comparison.arms] == ["baseline", "again", "IndexCache 1/4"]


def test_an_arm_that_answered_otherwise_keeps_apart(tmp_path):
    tasks = ("vt@4096",)
    a = make(tmp_path / "a", tasks=tasks, arms=ARMS[:2])
    b = make(tmp_path / "b", tasks=tasks, arms=ARMS[:1], seed=1)
    store = open_runs([a.path, b.path])
    names = [arm.name for arm in compare_run(store).arms]
    assert names == ["baseline", "again", "baseline (b)"]
    assert store.read_samples("baseline (b)") == RunStore(b.path).read_samples("baseline")


def test_other_gold_or_other_prompts_are_refused(tmp_path):
    tasks = ("vt@4096",)
    a = make(tmp_path / "a", tasks=tasks, arms=ARMS[:2])
    b = make(tmp_path / "b", tasks=tasks, arms=ARMS[2:3])
    samples = b.arm_dir(ARMS[2][0]) / "samples.jsonl"
    old = samples.read_text()
    samples.write_text(old.replace('"prompt_sha256": "0', '"prompt_sha256": "f'))
    with pytest.raises(EvalkitError, match="different prompts"):
        compare_run(open_runs([a.path, b.path]))
    items = b.path / "items.jsonl"
    items.write_text(items.read_text().replace("gold 1", "gilt 1"))
    with pytest.raises(EvalkitError, match="cannot be merged"):
        open_runs([a.path, b.path])
