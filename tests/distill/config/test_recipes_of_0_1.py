"""Distillation recipes of 0.1: every old field and the `[loss]` section mean what they meant."""

from __future__ import annotations

import pytest

from distill.config.losses import LossConfig
from distill.config.train import DistillConfig
from distill.losses.kl import KL
from distill.losses.listmle import ListMLE
from distill.training.identity import recipe_of
from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import load, parse

OLD = """
model = "x"
[arm]
retention = "1/8"
[student]
first = "train"
[loss]
kl_share = 0.7
list_length = 1.5
positions = "band"
band = 0.25
rows = 24
decode_share = 0.4
chunk_elements = 1000
[train]
warmup = 2
decay = 0.5
floor = 0.1
clip = 0.7
"""
NEW = """
model = "x"
[arm]
retention = "1/8"
[student]
first_layer = "train"
[[loss]]
kind = "kl"
weight = 0.7
[[loss]]
kind = "listmle"
weight = 0.3
list_length = 1.5
positions = "band"
band = 0.25
[queries]
per_sequence = 24
decode_share = 0.4
chunk_elements = 1000
[train]
warmup_steps = 2
decay_ratio = 0.5
min_lr_ratio = 0.1
max_grad_norm = 0.7
"""
NOTICES = [
    "student.first is now called student.first_layer",
    "loss.rows is now called queries.per_sequence",
    "loss.decode_share is now called queries.decode_share",
    "loss.chunk_elements is now called queries.chunk_elements",
    "train.warmup is now called train.warmup_steps",
    "train.decay is now called train.decay_ratio",
    "train.floor is now called train.min_lr_ratio",
    "train.clip is now called train.max_grad_norm",
    "loss.kl_share is now called [[loss]] with kind and weight",
]


def read(tmp_path, text, *changes):
    path = tmp_path / "r.toml"
    path.write_text(text)
    return load(path, DistillConfig, changes)


def config(**sections):
    return parse({"model": "x", "arm": {}, **sections}, DistillConfig, "r.toml")


def test_the_old_recipe_is_the_new_one_and_every_old_name_is_announced(tmp_path, capsys):
    old = read(tmp_path, OLD)
    announced = capsys.readouterr().err.splitlines()
    assert announced == [f"{tmp_path / 'r.toml'}: {notice}" for notice in NOTICES]
    new = read(tmp_path, NEW)
    assert capsys.readouterr().err == ""
    weights = {entry.kind: entry.weight for entry in old.loss}
    assert weights == {"kl": 0.7, "listmle": 1 - 0.7}  # the very float of 0.1: not 0.3
    changed = new.model_dump() | {"loss": old.model_dump()["loss"]}
    assert old.model_dump() == changed
    assert [entry.loss for entry in old.loss] == [entry.loss for entry in new.loss]


def test_both_defaults_are_kl_alone_with_listmle_measured(capsys):
    assert config().loss == config(loss={}).loss == config(loss={"rows": 64}).loss
    assert [(entry.kind, entry.weight) for entry in config().loss] == [("kl", 1.0), ("listmle", 0)]
    assert [entry.loss for entry in config().loss] == [KL(), ListMLE()]


def test_options_are_written_out_so_that_defaults_do_not_matter():
    bare, written = LossConfig(kind="listmle"), LossConfig(kind="listmle", positions="uniform")
    assert bare == written
    assert bare.model_dump(mode="json") == {
        "kind": "listmle",
        "weight": 1.0,
        "list_length": 2.0,
        "positions": "uniform",
        "band": 0.5,
    }


def test_an_override_reaches_into_the_list(tmp_path):
    changed = read(tmp_path, NEW, "loss.listmle.band=0.75", "loss.kl.weight=0.1")
    assert changed.loss[1].loss.band == 0.75
    assert changed.loss[0].weight == 0.1


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ({"kl_share": 1.5}, "loss.kl_share: it lies between 0 and 1, got 1.5"),
        ({"kl_share": "half"}, "loss.kl_share: it lies between 0 and 1, got 'half'"),
        ({"rows": 0}, "queries.per_sequence: Input should be greater than or equal to 1"),
        ([{"kind": "klx"}], "loss.0: unknown loss klx; did you mean kl?"),
        ([{"kind": "listmle", "band": -1}], "listmle: band: Input should be greater than 0"),
        ([{"kind": "listmle", "bnd": 1}], "listmle: unknown key bnd; did you mean band?"),
        ([{"kind": "kl", "weight": -1}], "loss.0.weight: Input should be greater than or equal"),
        ([{"kind": "kl"}, {"kind": "kl"}], "loss: give each kind once, got kl, kl"),
        ([{"kind": "kl", "weight": 0}], "loss: no loss has a weight above 0"),
        ([{"weight": 1}], "loss.0.kind: missing"),
    ],
)
def test_what_is_wrong_is_one_line(loss, words):
    with pytest.raises(EvalkitError) as error:
        config(loss=loss)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_run_of_before_counted_all_positions_alike():
    old = recipe_of({"arm": {}, "choice": {"tail": 1.0, "checkpoint": "logit_kl"}})
    assert old.choice.positions == "all"
    today = config().choice
    assert today.positions == "far"
    assert recipe_of({"arm": {}, "choice": today.model_dump(mode="json")}).choice == today
