"""The loop on a random model: equal runs, resume after a kill, two processes, refusals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from accelerate.state import AcceleratorState
from safetensors.torch import load_file

from distill.cli.train import make_accelerator
from distill.config.train import DistillConfig
from distill.errors import DistillError
from distill.setup import load_training_setup
from distill.training.artifacts import save
from distill.training.events import StepDone
from distill.training.metrics_log import read_metrics
from distill.training.optimizer import learning_rate
from distill.training.state import TrainState
from distill.training.trainer import Trainer
from tests.distill.helpers import digest
from tests.paths import ROOT


def recipe(model, **sections):
    base = {
        "model": str(model),
        "dtype": "float32",
        "arm": {"retention": "1/4"},
        "data": {
            "source": {"kind": "tiny"},
            "length": 48,
            "train": 6,
            "held_out": 3,
            "calibration": 2,
            "shortest": 24,
        },
        "loss": [{"kind": "kl", "weight": 0.5}, {"kind": "listmle", "weight": 0.5}],
        "queries": {"per_sequence": 8},
        "train": {
            "steps": 4,
            "batch": 4,
            "micro_batch": 2,
            "evaluate_every": 2,
            "save_every": 2,
            "warmup_steps": 2,
        },
    }
    for name, values in sections.items():
        base[name] = values if isinstance(values, list) else {**base.get(name, {}), **values}
    return DistillConfig.model_validate(base)


def train(config, out, data=None, on_event=lambda _: None):
    AcceleratorState._reset_state(reset_partial_state=True)
    out.mkdir(exist_ok=True)
    accelerator = make_accelerator(config, out)
    setup = load_training_setup(config, out, data or out / "data")
    trainer = Trainer(setup, out, accelerator, on_event)
    trainer.run()
    return trainer


@pytest.fixture(scope="module")
def trained(checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained")
    return out, train(recipe(checkpoint), out)


def tensors(out, step="00000004", name="students"):
    return load_file(out / "state" / step / f"{name}.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_two_runs_with_one_seed_are_equal_and_another_seed_is_not(trained, checkpoint, tmp_path):
    out, first = trained
    train(recipe(checkpoint), tmp_path / "again", out / "data")
    assert same(tensors(out), tensors(tmp_path / "again"))
    train(recipe(checkpoint, train={"seed": 1}), tmp_path / "other", out / "data")
    assert not same(tensors(out), tensors(tmp_path / "other"))
    assert first.state.step == 4
    assert first.state.best_step in (0, 2, 4)


def test_the_model_is_untouched_and_the_optimiser_knows_the_students_alone(trained, checkpoint):
    from distill.models.load import load_model

    out, trainer = trained
    assert digest(trainer.setup.model) == digest(load_model(str(checkpoint), "float32"))
    assert trainer.setup.students.layers == (4,)  # the first full layer is kept
    fields = {key.split("/")[0] for key in tensors(out, name="optimizer")}
    assert fields == set(trainer.setup.students.named())


def test_metrics_tell_what_happened(trained):
    out, _ = trained
    rows = read_metrics(out / "metrics.jsonl")
    assert [r["step"] for r in rows if r["kind"] == "train"] == [1, 2, 3, 4]
    evaluations = [r for r in rows if r["kind"] == "evaluation"]
    assert [(r["step"], r["what"]) for r in evaluations] == [
        (0, "undistilled"),
        (0, "students"),
        (2, "students"),
        (4, "students"),
    ]
    pair = evaluations[-1]["pairs"][0]
    assert pair["layer"] == pair["consumer"] == 4
    for name in ("recall", "boundary_recall", "mass_recall"):
        assert 0 <= pair[name] <= 1
    assert evaluations[0]["layers"]["4"]["kl"] > 0
    assert [r["chosen"] for r in rows if r["kind"] == "choice"]


def test_micro_batches_change_rounding_only(trained, checkpoint, tmp_path):
    out, _ = trained
    train(recipe(checkpoint, train={"micro_batch": 1}), tmp_path / "one", out / "data")
    for name, tensor in tensors(tmp_path / "one").items():
        assert torch.allclose(tensor, tensors(out)[name], atol=2e-4), name


class Killed(Exception):
    pass


@pytest.mark.parametrize("at", [1, 3])
def test_a_run_that_stops_and_goes_on_reaches_the_same_weights(trained, checkpoint, tmp_path, at):
    out, _ = trained

    def stop(event):
        if isinstance(event, StepDone) and event.step == at:
            raise Killed

    with pytest.raises(Killed):
        train(recipe(checkpoint), tmp_path / "run", out / "data", stop)
    resumed = train(recipe(checkpoint), tmp_path / "run", out / "data")
    assert same(tensors(out), tensors(tmp_path / "run"))
    assert same(tensors(out, name="best"), tensors(tmp_path / "run", name="best"))
    assert same(tensors(out, name="optimizer"), tensors(tmp_path / "run", name="optimizer"))
    assert resumed.state.best == trained[1].state.best
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    steps = [row["step"] for row in rows if row["kind"] == "train"]
    assert steps == [1, 2, 3, 4]


def test_damaged_and_foreign_states_are_refused_by_name(trained, checkpoint, tmp_path):
    out, _ = trained
    shutil.copytree(out, tmp_path / "run")
    file = tmp_path / "run" / "state" / "00000004" / "optimizer.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(DistillError, match=r"optimizer\.safetensors: damaged"):
        train(recipe(checkpoint), tmp_path / "run", out / "data")
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(out, tmp_path / "run")
    with pytest.raises(DistillError, match=r"another run; changed: queries, student"):
        other = recipe(checkpoint, queries={"per_sequence": 9}, student={"start": "own"})
        train(other, tmp_path / "run", out / "data")


BAND = [
    {"kind": "kl", "weight": 0.5},
    {"kind": "listmle", "weight": 0.5, "positions": "band"},
]


def as_of_0_1(run, steps):
    """Rewrite what a run holds besides tensors as 0.1 wrote it, with its newest state at a step."""
    for newer in sorted((run / "state").iterdir())[1:]:
        shutil.rmtree(newer)
    path = run / "state" / f"{steps:08d}" / "state.json"
    record = json.loads(path.read_text())
    record["progress"]["since"] = record["progress"].pop("without_improvement")
    identity = record["identity"]
    queries, train, student = (identity.pop(name) for name in ("queries", "train", "student"))
    kl, listmle = identity["loss"]
    identity["loss"] = {"kl_share": kl["weight"], "rows": queries["per_sequence"]}
    identity["loss"] |= {k: listmle[k] for k in ("list_length", "positions", "band")}
    identity["loss"]["decode_share"] = queries["decode_share"]
    names = dict(zip(OLD_TRAIN.values(), OLD_TRAIN, strict=True))
    identity["train"] = {names.get(k, k): v for k, v in train.items()}
    student["first"] = student.pop("first_layer")
    identity["student"] = student
    path.write_text(json.dumps(record))
    rows = [
        row | {"kind": "probe" if row["kind"] == "evaluation" else row["kind"]}
        for row in read_metrics(run / "metrics.jsonl")
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


OLD_TRAIN = {
    "warmup": "warmup_steps",
    "decay": "decay_ratio",
    "floor": "min_lr_ratio",
    "clip": "max_grad_norm",
}


def test_a_state_of_0_1_is_continued_and_another_recipe_refused(trained, checkpoint, tmp_path):
    out, run = trained[0], tmp_path / "run"
    shutil.copytree(out, run)
    as_of_0_1(run, 2)
    with pytest.raises(DistillError, match=r"another run; changed: train\."):
        train(recipe(checkpoint, train={"max_grad_norm": 0.5}), run, out / "data")
    resumed = train(recipe(checkpoint), run, out / "data")
    assert same(tensors(out), tensors(run))
    assert same(tensors(out, name="best"), tensors(run, name="best"))
    assert resumed.state.choices == trained[1].state.choices
    assert [{**row, "seconds": 0} for row in read_metrics(run / "metrics.jsonl")] == [
        {**row, "seconds": 0} for row in read_metrics(out / "metrics.jsonl")
    ]


def test_a_state_that_is_no_state_is_damaged(trained, checkpoint, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained[0], run)
    path = run / "state" / "00000004" / "state.json"
    record = json.loads(path.read_text())
    for broken in (record | {"progress": {"steps": 3}}, record | {"identity": {"loss": 3}}, {}):
        path.write_text(json.dumps(broken))
        with pytest.raises(DistillError, match=r"state.json: damaged: "):
            train(recipe(checkpoint), run, trained[0] / "data")


@pytest.mark.parametrize(
    "sections",
    [
        {
            "student": {"start": "own", "first_layer": "train"},
            "arm": {"retention": "1/2", "lag": 1},
        },
        {"student": {"start": "random"}, "train": {"states": "off_policy"}},
        {"teacher": {"kind": "attention", "combine": "mixture"}, "loss": BAND},
        {"teacher": {"kind": "attention_dense"}, "student": {"tensors": ("wq_b",)}},
        {"train": {"precision": "bf16"}, "choice": {"checkpoint": "recall", "tail": 0.2}},
    ],
)
def test_every_option_trains(trained, checkpoint, tmp_path, sections):
    short = {"train": {"steps": 1, **sections.pop("train", {})}}
    trainer = train(recipe(checkpoint, **short, **sections), tmp_path / "run", trained[0] / "data")
    assert trainer.state.step == 1
    assert all(torch.isfinite(t).all() for t in tensors(tmp_path / "run", "00000001").values())


@pytest.mark.parametrize("start", ["closed_form", "random"])
def test_auto_keeps_the_first_full_layer_as_the_held_out_text_says(
    trained, checkpoint, tmp_path, start
):
    short, student = {"steps": 1, "evaluate_every": 1}, {"start": start, "first_layer": "auto"}
    config, run = recipe(checkpoint, train=short, student=student), tmp_path / "auto"
    auto = train(config, run, trained[0] / "data")
    student["first_layer"] = "train"
    both = train(
        recipe(checkpoint, train=short, student=student), tmp_path / "t", trained[0] / "data"
    )
    came = {k: v for k, v in auto._came.items() if k.startswith("0.")}
    both.setup.students.load(both.best | came)
    other = both._evaluator.evaluate().score("logit_kl")
    assert auto.state.first_layer == {"as trained": both.state.best, "as it came": other}
    back = other <= both.state.best
    assert auto.state.first_layer_came_back is back
    assert auto.state.best == min(other, both.state.best)
    assert same(auto.best, both.best | came if back else both.best)
    assert back or start == "closed_form"  # a random first layer never helps
    rows = read_metrics(run / "metrics.jsonl")
    (row,) = [r for r in rows if r["kind"] == "first_layer"]
    assert (row["layer"], row["chosen"]) == (0, "as it came" if back else "as trained")
    again = train(config, run, trained[0] / "data")
    assert again.state.first_layer == auto.state.first_layer
    assert same(again.best, auto.best)
    assert len([r for r in read_metrics(run / "metrics.jsonl") if r["kind"] == "first_layer"]) == 1
    saved = load_file(save(again.setup, again.best, again.state, run) / "indexer.safetensors")
    assert {name.split(".")[2] for name in saved} == ({"4"} if back else {"0", "4"})
    words = "as it came" if back else "as trained"
    assert (
        f"- first full layer: {words}, by the held-out criterion"
        in (run / "indexer" / "README.md").read_text()
    )


def test_what_counts_as_a_gain():
    before = {"logit_kl_tail": 0.5, "recall": 0.3}
    for after, by_logits, by_recall in (
        ({"logit_kl_tail": 0.4, "recall": 0.2}, True, False),
        ({"logit_kl_tail": 0.6, "recall": 0.4}, False, True),
        (before, False, False),
        ({"logit_kl_tail": float("nan"), "recall": float("nan")}, False, False),
        ({}, False, False),
    ):
        state = TrainState(before=before, after=after)
        assert state.gains("logit_kl") is by_logits
        assert state.gains("recall") is by_recall


def test_patience_ends_training(trained, checkpoint, tmp_path):
    config = recipe(checkpoint, train={"steps": 50, "patience": 1, "evaluate_every": 1, "lr": 3.0})
    trainer = train(config, tmp_path / "run", trained[0] / "data")
    assert trainer.state.step < 50
    again = train(config, tmp_path / "run", trained[0] / "data")
    assert again.state.step == trainer.state.step


def test_learning_rate():
    train = recipe(
        "x", train={"steps": 10, "lr": 1.0, "decay_ratio": 0.5, "min_lr_ratio": 0.1}
    ).train
    rates = [round(learning_rate(step, train), 3) for step in range(10)]
    assert rates == [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2]


def write_recipe(path, config):
    from evalkit.core.toml import inline

    lines = [
        f"{key} = {inline(value)}"
        for key, value in config.model_dump(mode="json", exclude_none=True).items()
    ]
    path.write_text("\n".join(lines) + "\n")


def command(*words):
    return [sys.executable, "-m", "distill.cli", "train", *map(str, words), "--save-anyway"]


@pytest.mark.slow
def test_a_killed_process_resumes_to_the_same_weights(trained, checkpoint, tmp_path):
    out, _ = trained
    shutil.copytree(out / "data", tmp_path / "run" / "data")
    write_recipe(tmp_path / "r.toml", recipe(checkpoint))
    process = subprocess.Popen(command(tmp_path / "r.toml", "--out", tmp_path / "run"), cwd=ROOT)
    while not (tmp_path / "run" / "state" / "00000002").is_dir():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run(command(tmp_path / "r.toml", "--out", tmp_path / "run"), cwd=ROOT, check=True)
    assert same(tensors(out), tensors(tmp_path / "run"))
    assert (tmp_path / "run" / "indexer" / "indexer.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("lag", [0, 1])
def test_two_processes_equal_one(checkpoint, tmp_path, lag):
    config = recipe(checkpoint, arm={"lag": lag}, student={"start": "own"})
    write_recipe(tmp_path / "r.toml", config)
    train(config, tmp_path / "one")
    launch = [  # `accelerate launch --cpu --num_processes 2` without MPI would start one process
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("-m", "distill.cli", "train", str(tmp_path / "r.toml"), "--out", str(tmp_path / "two")),
        "--save-anyway",
    ]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    subprocess.run(launch, cwd=ROOT, check=True, env=env)
    one, two = tensors(tmp_path / "one"), tensors(tmp_path / "two")
    for name, tensor in one.items():
        assert torch.allclose(two[name], tensor, atol=2e-4), name
    losses = [
        [r["kl"] for r in map(json.loads, (tmp_path / w / "metrics.jsonl").open()) if "lr" in r]
        for w in ("one", "two")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
