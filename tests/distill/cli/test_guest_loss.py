"""A loss of another package trains, is reported by name, and its faults are one line naming it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from difflib import unified_diff

import pytest
from safetensors.torch import load_file

from distill.training.metrics_log import read_metrics
from tests import guests
from tests.distill.cli.commands import distill, write_recipe
from tests.paths import ROOT

HUBER = '''
"""Huber loss between index scores and the log of the consumers' mean distribution."""

import torch
from pydantic import BaseModel, ConfigDict, Field

from distill.losses.base import Needs


class Huber(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    delta: float = Field(default=1.0, gt=0)

    def needs(self, topk):
        return Needs(mean=True)

    def __call__(self, scores, target, support):
        low = torch.finfo(scores.dtype).min
        share = scores.masked_fill(~support, low).softmax(-1)
        each = torch.nn.functional.huber_loss(
            share, target.mean, reduction="none", delta=self.delta
        )
        return (each.sum(-1) * target.weight).sum(), target.weight.sum()
'''
FAULTS = """
from acme_huber import Huber

NOTHING = 3
class Bare: pass
class Broken(Huber):
    def __call__(self, scores, target, support):
        return 1 / 0
class Mute(Huber):
    def __call__(self, scores, target, support):
        return scores, 1
class Greedy(Huber):
    def needs(self, topk):
        return Needs(order=topk)
"""
ENTRIES = {
    "huber": "acme_huber:Huber",
    "nothing": "acme_faults:NOTHING",
    "bare": "acme_faults:Bare",
    "broken": "acme_faults:Broken",
    "mute": "acme_faults:Mute",
    "greedy": "acme_faults:Greedy",
    "missing": "acme_gone:Loss",
}


@pytest.fixture
def acme(tmp_path):
    folder = tmp_path / "site"
    modules = {"acme_huber.py": HUBER, "acme_faults.py": FAULTS}
    guests.write(folder, "acme-losses", modules, {"distill.losses": ENTRIES})
    with guests.installed(folder):
        yield


def loss(*entries):
    """An override that lists losses."""
    texts = (", ".join(f"{k} = {json.dumps(v)}" for k, v in entry.items()) for entry in entries)
    change = f"loss=[{', '.join('{' + text + '}' for text in texts)}]"
    return ["--set", change, "--save-anyway"]


def test_it_trains_beside_ours_and_is_reported_by_name(acme, tmp_path, checkpoint):
    recipe, out = write_recipe(tmp_path, checkpoint), tmp_path / "run"
    both = loss({"kind": "kl", "weight": 0.5}, {"kind": "huber", "weight": 2.0, "delta": 0.5})
    assert distill("train", recipe, "--out", out, *both) == 0
    rows = read_metrics(out / "metrics.jsonl")
    steps = [row for row in rows if row["kind"] == "train"]
    assert all(row["huber"] > 0 and row["kl"] > 0 for row in steps)
    assert steps[0]["layers"]["4"]["huber"] == steps[0]["huber"]
    held_out = [row["layers"]["4"]["huber"] for row in rows if row["kind"] == "evaluation"]
    assert len(held_out) == 4
    card = (out / "indexer" / "README.md").read_text()
    assert "loss 0.5 kl + 2 huber (acme-losses 1.0)" in card
    assert '"delta": 0.5' in card
    first = load_file(out / "state" / "00000002" / "students.safetensors")
    assert distill("train", recipe, "--out", tmp_path / "kl", *loss({"kind": "kl"})) == 0
    other = load_file(tmp_path / "kl" / "state" / "00000002" / "students.safetensors")
    assert any(not (first[name] == other[name]).all() for name in first)


@pytest.mark.slow
def test_layer_by_layer_too(acme, tmp_path, checkpoint):
    recipe, out = write_recipe(tmp_path, checkpoint), tmp_path / "run"
    assert distill("layerwise", recipe, "--out", out, *loss({"kind": "huber"})) == 0
    rows = read_metrics(out / "metrics.jsonl")
    assert all(row["huber"] > 0 for row in rows if row["kind"] in ("train", "evaluation"))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("huber2", "loss.0: unknown loss huber2; did you mean huber?"),
        ("nothing", "acme-losses 1.0: the loss nothing is of the type int, not type"),
        ("bare", "acme-losses 1.0: the loss bare is no pydantic model with needs and __call__"),
        ("missing", "acme-losses 1.0: distill.losses missing (acme_gone:Loss) cannot be imported"),
        ("broken", "acme-losses 1.0: acme_faults, line 8: ZeroDivisionError"),
        ("mute", "acme-losses 1.0: RuntimeError: a Tensor with "),
        ("greedy", "acme-losses 1.0: acme_faults, line 14: NameError: name 'Needs' is not defined"),
    ],
)
def test_a_fault_is_one_line_that_names_the_package(
    acme, tmp_path, checkpoint, capsys, kind, words
):
    recipe = write_recipe(tmp_path, checkpoint)
    changes = loss({"kind": kind})
    assert distill("train", recipe, "--out", tmp_path / "run", *changes) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("distill: ")]
    assert len(error) == 1
    assert words in error[0]


def test_a_name_of_ours_cannot_be_taken(tmp_path, checkpoint, capsys):
    guests.write(
        tmp_path / "site",
        "acme-losses",
        {"acme_huber.py": HUBER},
        {"distill.losses": {"kl": "acme_huber:Huber"}},
    )
    recipe = write_recipe(tmp_path, checkpoint)
    with guests.installed(tmp_path / "site"):
        assert distill("train", recipe, "--out", tmp_path / "run", *loss({"kind": "kl"})) == 2
    assert "acme-losses 1.0: adds the loss kl, which is one of" in capsys.readouterr().err


def test_an_option_that_it_does_not_have_is_told(acme, tmp_path, checkpoint, capsys):
    recipe = write_recipe(tmp_path, checkpoint)
    changes = loss({"kind": "huber", "dleta": 1.0})
    assert distill("train", recipe, "--out", tmp_path / "run", *changes) == 2
    assert "loss.0: huber: unknown key dleta; did you mean delta?" in capsys.readouterr().err


def test_one_of_ours_is_one_file_and_one_line(tmp_path, checkpoint):
    """Made here in a copy of the package, and trained with."""
    root, line = tmp_path / "copy", '    "huber": "distill.losses.huber:Huber",'
    for name in ("evalkit", "distill"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "distill" / "losses" / "huber.py").write_text(HUBER)
    registry = root / "distill" / "losses" / "__init__.py"
    before = registry.read_text()
    last = '    "listmle": "distill.losses.listmle:ListMLE",\n'
    registry.write_text(before.replace(last, f"{last}{line}\n"))
    changed = list(unified_diff(before.splitlines(), registry.read_text().splitlines(), n=0))[3:]
    assert changed == [f"+{line}"]
    recipe, out = write_recipe(tmp_path, checkpoint), tmp_path / "run"
    command = [sys.executable, "-m", "distill.cli", "train", recipe, "--out", out]
    changes = [*loss({"kind": "huber"}), "--set", "student.start=own", "--set", "train.steps=1"]
    env = {"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*map(str, command), *changes],
        check=False,
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "loss 1 huber," in (out / "indexer" / "README.md").read_text()
