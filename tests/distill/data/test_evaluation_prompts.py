"""Text that repeats a prompt of the recipe's own evaluation is left out, and said so."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from distill.data.evaluation_prompts import evaluation_prompts
from distill.errors import DistillError
from evalkit.cli.main import app
from tests.distill.cli.commands import distill, write_recipe
from tests.distill.cli.test_cli import EVALUATION


@pytest.fixture
def evaluation(tmp_path):
    path = tmp_path / "evaluation.toml"
    path.write_text(EVALUATION)
    return path


def prompts(evaluation, checkpoint, tmp_path):
    """What `evalkit data exclude` writes."""
    out = tmp_path / "prompts.jsonl"
    changes = [f'model="{checkpoint}"', 'compare={baseline = "replaced by distill"}']
    words = [word for change in changes for word in ("--set", change)]
    done = CliRunner().invoke(
        app, ["data", "exclude", str(evaluation), "--out", str(out), *words], catch_exceptions=False
    )
    assert done.stdout == f"{out}: 3 prompts\n"
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_documents_with_a_passage_of_a_prompt_are_left_out(
    evaluation, checkpoint, tmp_path, capsys
):
    found = prompts(evaluation, checkpoint, tmp_path)
    assert len({row["id"] for row in found}) == 3
    assert all("access code" in row["text"] for row in found)
    clean = "The old clock on the wall of the mill has not struck for more than thirty years. "
    texts = [clean * 3] * 8 + [clean + found[1]["text"][-200:] + clean]
    texts.insert(1, texts.pop())
    text = tmp_path / "text.jsonl"
    text.write_text("".join(json.dumps({"text": each}) + "\n" for each in texts))
    recipe = write_recipe(tmp_path, checkpoint, f'evaluation = "{evaluation.name}"')
    change = 'data.source={kind = "text", paths = ["text.jsonl"]}'
    out = tmp_path / "run"
    assert distill("data", recipe, "--out", out, "--set", change) == 0
    assert "1 excluded for repeating an evaluation prompt" in capsys.readouterr().out
    (kept,) = (out / "data").glob("evaluation_prompts-*.jsonl")
    assert [json.loads(line)["text"] for line in kept.read_text().splitlines()] == [
        row["text"] for row in found
    ]


def test_an_evaluation_that_cannot_be_asked_is_one_line(evaluation, checkpoint, tmp_path):
    evaluation.write_text(EVALUATION.replace("lengths = [96]", "lengths = [9]"))
    with pytest.raises(
        DistillError, match=r"the prompts of .*evaluation\.toml, which no text"
    ) as e:
        evaluation_prompts(evaluation, str(checkpoint), tmp_path)
    assert "\n" not in str(e.value)
    with pytest.raises(DistillError, match=r"gone\.toml: no such recipe"):
        evaluation_prompts(tmp_path / "gone.toml", str(checkpoint), tmp_path)
