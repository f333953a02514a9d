"""What both commands have: a version, a help that says where words are explained."""

from __future__ import annotations

import tomllib
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from distill.cli.main import app as distill_app
from evalkit.cli.main import app as evalkit_app
from tests.paths import ROOT

APPS = {"evalkit": evalkit_app, "distill": distill_app}


@pytest.mark.parametrize("name", APPS)
def test_version_is_printed_alone(name):
    done = CliRunner().invoke(APPS[name], ["--version"])
    assert done.exit_code == 0
    assert done.stdout == version("dsa-evalkit") + "\n"


@pytest.mark.parametrize("name", APPS)
def test_help_says_where_words_are_explained(name):
    done = CliRunner().invoke(APPS[name], ["--help"])
    assert done.exit_code == 0
    assert "docs/glossary.md" in done.stdout
    assert (ROOT / "docs" / "glossary.md").is_file()


def test_one_version_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {project['version']} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
