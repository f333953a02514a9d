"""metrics.jsonl: versions, what a resumed run keeps, rows of every event."""

from __future__ import annotations

import json

from distill.init.candidates import CandidateChoice
from distill.training.events import (
    CandidateChosen,
    LayerDone,
    LayerEvaluated,
    LayerStep,
    LayerStepDone,
    LogitsCompared,
    StepDone,
)
from distill.training.metrics_log import METRICS_FILE, MetricsLog, read_metrics

OLD = [
    {"kind": "probe", "step": 0, "what": "undistilled", "recall": 0.5},
    {"kind": "train", "step": 1, "kl": 0.25},
    {"kind": "probe", "step": 1, "what": "students", "recall": 0.75},
    {"kind": "look", "layer": 8, "step": 2, "kl": 0.5},
    {"kind": "judged", "layer": 8, "step": 2, "logit_kl": 0.125},
    {"kind": "probe", "layer": 8, "before": {}, "after": {}},
]
TODAY = ["evaluation", "train", "evaluation", "evaluation", "logit_kl", "layer"]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_of_0_1_are_read_under_the_names_of_today(tmp_path):
    path = tmp_path / METRICS_FILE
    path.write_text("".join(json.dumps(row) + "\n" for row in OLD))
    rows = read_metrics(path)
    assert [row["kind"] for row in rows] == TODAY
    assert [{**row, "kind": ""} for row in rows] == [{**row, "kind": ""} for row in OLD]
    assert lines(path) == OLD


def test_a_resumed_log_keeps_what_is_done_and_says_its_version(tmp_path):
    path = tmp_path / METRICS_FILE
    path.write_text("".join(json.dumps(row) + "\n" for row in OLD[:3]) + '{"kind": "tr')
    log = MetricsLog(tmp_path)
    log.resume(lambda row: row["step"] == 0)
    log.append({"kind": "train", "step": 1})
    assert lines(path)[0] == {"kind": "format", "version": 2}
    assert read_metrics(path) == [OLD[0] | {"kind": "evaluation"}, {"kind": "train", "step": 1}]
    log.resume(lambda row: row["step"] == 0)
    assert [row["kind"] for row in lines(path)] == ["format", "evaluation"]
    log.start()
    assert read_metrics(path) == []


def test_a_log_that_was_lost_begins_again(tmp_path):
    MetricsLog(tmp_path).resume(lambda _: True)
    assert lines(tmp_path / METRICS_FILE) == [{"kind": "format", "version": 2}]


def test_events_are_rows():
    choice = CandidateChosen(seconds=1.23456, choice=CandidateChoice(8, "12", {"own": 0.5}))
    assert choice.row() == {
        "kind": "choice",
        "layer": 8,
        "chosen": "12",
        "scores": {"own": 0.5},
        "measure": "logit KL",
        "seconds": 1.235,
    }
    layers = {
        8: LayerStep({"kl": 0.5, "listmle": None}, 2.0),
        16: LayerStep({"kl": 0.25, "listmle": None}, 1.0),
    }
    assert StepDone(seconds=2.0, step=3, lr=0.1, layers=layers).row() == {
        "kind": "train",
        "step": 3,
        "lr": 0.1,
        "kl": 0.375,
        "layers": {
            "8": {"kl": 0.5, "listmle": None, "grad_norm": 2.0},
            "16": {"kl": 0.25, "listmle": None, "grad_norm": 1.0},
        },
        "seconds": 2.0,
    }
    place = {"layer": 8, "step": 3}
    assert LayerStepDone(seconds=0.0, **place, losses={"kl": 1.0}, grad_norm=2.0).row() == {
        "kind": "train",
        **place,
        "kl": 1.0,
        "grad_norm": 2.0,
        "seconds": 0.0,
    }
    metrics = {"kl": 1.0, "recall": 0.5}
    evaluated = LayerEvaluated(seconds=0.0, **place, metrics=metrics).row()
    assert evaluated == {"kind": "evaluation", **place, **metrics, "seconds": 0.0}
    assert LogitsCompared(seconds=0.0, **place, metrics=metrics).kind == "logit_kl"
    done = LayerDone(seconds=0.0, layer=8, before=metrics, after=metrics).row()
    assert done == {
        "kind": "layer",
        "layer": 8,
        "before": metrics,
        "after": metrics,
        "seconds": 0.0,
    }
