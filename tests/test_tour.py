"""docs/tour.md: its commands, one after the other."""

from __future__ import annotations

import re
import shlex

import pytest

from evalkit.analysis.run_list import list_runs
from tests.command import evalkit
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"```\nevalkit (.*?)\n```", PAGE, re.DOTALL)


def walk(more):
    """Run the page's commands where one stands; `more` is added to those that ask a model."""
    for command in COMMANDS:
        arguments = shlex.split(command)
        if more and arguments[0] == "run":
            own = [a for a in arguments if a not in ("--set", "engine.dtype=float32")]
            arguments = [*own, *more]
        assert evalkit(*arguments) == 0, command


def test_the_tour_in_five_commands(tmp_path, monkeypatch, capsys):
    """With the oracle in the model's place; the slow twin asks the model."""
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) == 5
    walk(("--set", "engine.kind=oracle", "--set", "engine.corrupt=0.0"))
    look, codes = list_runs(tmp_path / "runs")
    assert look.finished
    assert codes.finished
    assert dict(codes.verdicts) == {"IndexCache 1/4": "no worse", "IndexCache 1/8": "no worse"}
    assert (tmp_path / "runs/look/recipe.toml").is_file()
    assert (tmp_path / "runs/codes/report.html").is_file()
    assert "codes" in capsys.readouterr().out


@pytest.mark.slow
def test_the_tour_with_the_small_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    walk(())
    verdicts = dict(list_runs(tmp_path / "runs")[1].verdicts)
    assert verdicts == {"IndexCache 1/4": "no worse", "IndexCache 1/8": "worse"}
