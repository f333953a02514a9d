"""Recipe fields under the names of an earlier version: taken, announced once, never doubled."""

from __future__ import annotations

from typing import ClassVar

import pytest
from pydantic import Field

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import Strict, load, parse


class Train(Strict):
    max_grad_norm: float = 1.0
    lr: float = 0.1


class Queries(Strict):
    count: int = 4


class Recipe(Strict):
    renamed: ClassVar = {"train.clip": "train.max_grad_norm", "loss.rows": "queries.count"}
    train: Train = Train()
    queries: Queries = Queries()


def test_an_old_name_sets_the_field_and_is_announced_in_one_line(capsys):
    recipe = parse({"train": {"clip": 0.5, "lr": 1.0}}, Recipe, "r.toml")
    assert recipe.train == Train(max_grad_norm=0.5, lr=1.0)
    assert capsys.readouterr().err.splitlines() == [
        "r.toml: train.clip is now called train.max_grad_norm"
    ]


def test_a_new_name_says_nothing(capsys):
    assert parse({"train": {"max_grad_norm": 0.5}}, Recipe, "r.toml").train.max_grad_norm == 0.5
    assert capsys.readouterr().err == ""


def test_validation_by_itself_is_silent_and_leaves_its_input_alone(capsys):
    data = {"train": {"clip": 0.5}}
    assert Recipe.model_validate(data).train.max_grad_norm == 0.5
    assert data == {"train": {"clip": 0.5}}
    assert capsys.readouterr().err == ""


def test_a_field_may_have_moved_to_another_section():
    class Old(Recipe):
        loss: dict[str, int] = Field(default_factory=dict)

    assert Old.model_validate({"loss": {"rows": 8}}).queries.count == 8
    both = Old.model_validate({"loss": {"rows": 8}, "queries": {}, "train": {}})
    assert both.queries.count == 8
    with pytest.raises(ValueError, match=r"queries\s+Input should be"):
        Old.model_validate({"loss": {"rows": 8}, "queries": 3})


def test_both_names_at_once_are_refused():
    with pytest.raises(EvalkitError, match=r"r.toml: train.clip is the old name of train.max_grad"):
        parse({"train": {"clip": 0.5, "max_grad_norm": 0.5}}, Recipe, "r.toml")


def test_what_is_wrong_is_told_under_the_name_of_today():
    with pytest.raises(EvalkitError, match=r"r.toml: train.max_grad_norm: not a number"):
        parse({"train": {"clip": "much"}}, Recipe, "r.toml")


def test_overrides_may_use_old_names(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text("[train]\nlr = 0.2\n")
    assert load(path, Recipe, ["train.clip=0.3"]).train == Train(max_grad_norm=0.3, lr=0.2)


class Compare(Strict):
    dropped: ClassVar = {"adjust": "holm"}
    margin: float = 0.01


def test_a_field_that_is_gone_is_taken_and_announced_where_it_was_set(capsys):
    assert parse({"margin": 0.1, "adjust": "holm"}, Compare, "run.json").margin == 0.1
    assert capsys.readouterr().err == ""  # its old default: runs of an earlier version hold it
    assert parse({"adjust": "bh"}, Compare, "r.toml") == Compare()
    assert capsys.readouterr().err == "r.toml: adjust is no longer there and changes nothing\n"
