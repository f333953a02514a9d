import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import Strict, canonical_hash, parse
from evalkit.tasks.base import samples
from evalkit.tasks.registry import TASKS, TaskConfig, build, build_all, describe
from tests.paths import ROOT
from tests.tasks.fakes import FakeRenderer


class Recipe(Strict):
    tasks: tuple[TaskConfig, ...]


def recipe(*sections: dict[str, Any]) -> Recipe:
    return parse({"tasks": list(sections)}, Recipe, "recipe.toml")


NEEDLE = {"kind": "needle", "lengths": [256, 512], "depths": [0, 100]}
RULER = {"kind": "ruler", "tasks": ["vt", "niah_single_1"], "lengths": [1024, 2048], "samples": 5}


def test_a_recipe_names_its_tasks_by_kind():
    tasks = build_all(recipe(NEEDLE, RULER).tasks, Path())
    assert [(task.name, len(task)) for task in tasks] == [
        ("needle@256", 2),
        ("needle@512", 2),
        ("vt@1024", 5),
        ("vt@2048", 5),
        ("niah_single_1@1024", 5),
        ("niah_single_1@2048", 5),
    ]
    (section,) = recipe(NEEDLE).tasks
    assert [task.name for task in build(section, Path())] == ["needle@256", "needle@512"]


def test_an_unknown_kind_is_refused_with_the_known_ones():
    words = r"^recipe.toml: tasks.0: unknown kind of task nedle; did you mean needle\?"
    with pytest.raises(EvalkitError, match=words):
        recipe({"kind": "nedle", "lengths": [5]})
    with pytest.raises(EvalkitError, match=r"tasks.1: unknown kind of task x; known: longbench, r"):
        recipe(NEEDLE, {"kind": "x"})
    with pytest.raises(EvalkitError, match=r"tasks.0: kind is missing; known: longbench, ruler"):
        recipe({"lengths": [5]})
    with pytest.raises(EvalkitError, match=r"unknown key tasks.1.lenghts; did you mean lengths"):
        recipe(NEEDLE, {**RULER, "lenghts": [5]})


def test_every_kind_is_described_once_and_named_by_its_section():
    rows = describe()
    assert {row.kind for row in rows} == set(TASKS)
    assert len({(row.kind, row.task) for row in rows}) == len(rows)
    assert {row.package for row in rows} == {""}
    assert [kind.name for kind in TASKS.usable()] == list(TASKS)


def test_two_cells_of_one_name_are_refused():
    with pytest.raises(EvalkitError, match="two cells are named needle@256"):
        build_all(recipe(NEEDLE, {**NEEDLE, "lengths": [256]}).tasks, Path())
    apart = recipe(NEEDLE, {**NEEDLE, "name": "needle_hard"})
    assert len(build_all(apart.tasks, Path())) == 4


def test_a_section_has_one_hash_however_it_is_written():
    plain, full = recipe(NEEDLE), recipe({**NEEDLE, "repeats": 1, "haystack": "filler"})
    assert canonical_hash(plain) == canonical_hash(full)
    assert json.loads(plain.model_dump_json())["tasks"][0]["depths"] == [0, 100]


def test_samples_are_made_as_they_are_consumed():
    (task,) = build_all(recipe({**NEEDLE, "lengths": [256]}).tasks, Path())
    renderer = FakeRenderer()
    stream = samples(task, renderer)
    assert renderer.calls == 0
    assert next(stream).id == "needle@256/0"
    assert [sample.id for sample in samples(task, renderer, [1])] == ["needle@256/1"]


def test_tasks_and_scorers_load_without_torch_transformers_or_the_network():
    code = (
        "import sys, socket\n"
        "def no(*a, **k): raise AssertionError('network')\n"
        "socket.socket = no\n"
        "import evalkit.tasks.registry, evalkit.scorers, evalkit.data.documents\n"
        "list(evalkit.tasks.registry.TASKS.usable())\n"
        "bad = {'torch', 'transformers', 'scipy', 'numpy'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
