"""The built sdist, and the wheel that is built from it, work away from any checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from tests.paths import ROOT

LARGEST = 12 * 2**20
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "evalkit", "distill", "recipes", "data_cards")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """A folder with nothing but the wheel's content; the sdist is checked on the way."""
    folder = tmp_path_factory.mktemp("package")
    tree = folder / "tree"
    tree.mkdir()
    for name in SOURCES:
        source, target = ROOT / name, tree / name
        if source.is_dir():
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, symlinks=True, ignore=skip)
        else:
            shutil.copy(source, target)
    with tarfile.open(built("build_sdist", tree, folder)) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    wheel = built("build_wheel", source, folder)
    assert wheel.stat().st_size < LARGEST
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "wheel")
    return folder / "wheel"


def built(what, tree, folder):
    """Path of what setuptools builds of a source tree, without a network."""
    code = f"from setuptools import build_meta; print(build_meta.{what}({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=True
    )
    return folder / done.stdout.splitlines()[-1]


def away(unpacked, folder, *args):
    """Standard output of a command of the unpacked wheel, run in an empty folder."""
    environment = os.environ | {"PYTHONPATH": str(unpacked), "EVALKIT_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-P", *args],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_the_recipes_and_the_small_model_and_no_training_code(unpacked):
    names = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*")}
    shipped = {name.removeprefix("evalkit/recipes/") for name in names if "/recipes/" in name}
    for path in (ROOT / "recipes").rglob("*"):
        if path.is_file():
            inside = path.relative_to(ROOT / "recipes").as_posix()
            assert (inside in shipped) == (path.suffix not in (".py", ".pyc")), inside
    assert "tiny/words/nouns.txt" in shipped
    assert "evalkit/data_cards/ruler.md" in names
    assert "evalkit/report/page/report.html.j2" in names
    assert not [name for name in names if name.startswith(("tests", "recipes", "benchmarks"))]


def test_the_unpacked_wheel_lists_copies_and_runs_what_ships(unpacked, tmp_path):
    where = away(unpacked, tmp_path, "-c", "import evalkit; print(evalkit.__file__)").strip()
    assert where == str(unpacked / "evalkit" / "__init__.py")
    listed = away(unpacked, tmp_path, "-m", "evalkit.cli", "recipes")
    assert "eval/demo.toml" in listed
    assert str(unpacked / "evalkit" / "recipes") in listed
    assert "--out" in away(unpacked, tmp_path, "-m", "evalkit.cli", "demo", "--help")
    away(unpacked, tmp_path, "-m", "evalkit.cli", "recipes", "mine")
    # A copy runs as it is: model, words and indexers are found beside it.
    needles_only = "del recipe['tasks'][1]"
    (tmp_path / "edit.py").write_text(
        "import tomllib; from pathlib import Path; from evalkit.core.toml import document\n"
        "path = Path('mine/eval/demo.toml'); recipe = tomllib.loads(path.read_text())\n"
        f"{needles_only}; path.write_text(document(recipe))\n"
    )
    away(unpacked, tmp_path, "edit.py")
    oracle = ("--set", "engine.kind=oracle", "--limit", "2", "--out", "run")
    table = away(unpacked, tmp_path, "-m", "evalkit.cli", "run", "mine/eval/demo.toml", *oracle)
    assert "1/8, distilled" in table
