"""What a recipe's author reads: the misspelt key first, in our words; missing paths said so."""

from typing import Literal

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.core.model_info import resolve_model
from evalkit.core.recipe import Strict, parse
from tests.command import evalkit


class Section(Strict):
    kind: Literal["x"] = "x"
    lengths: tuple[int, ...]
    rate: float = 0.5
    name: str = ""
    stream: bool = False


class Recipe(Strict):
    part: Section


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"lenghts": [5]}, "unknown key part.lenghts; did you mean lengths? (and 1 more)"),
        ({}, "part.lengths: missing"),
        ({"lengths": 5}, "part.lengths: not a list, got 5"),
        ({"lengths": ["five"]}, "part.lengths.0: not a whole number, got 'five'"),
        ({"lengths": [5.5]}, "part.lengths.0: not a whole number, got 5.5"),
        ({"lengths": [5], "rate": "half"}, "part.rate: not a number, got 'half'"),
        ({"lengths": [5], "name": 3}, "part.name: not text, got 3"),
        ({"lengths": [5], "stream": "maybe"}, "part.stream: neither true nor false, got 'maybe'"),
        (5, "part: not a section, got 5"),
    ],
)
def test_the_misspelt_key_comes_first_and_no_word_is_the_librarys(part, said):
    with pytest.raises(EvalkitError) as caught:
        parse({"part": part}, Recipe, "r.toml")
    assert str(caught.value) == f"r.toml: {said}"


def test_a_mistyped_directory_is_not_asked_for_on_the_hub(tmp_path, monkeypatch):
    (tmp_path / "runs" / "tiny-model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EvalkitError, match=r"no such directory.*did you mean .*runs/tiny-model\?"):
        resolve_model("runs/tiny-modle", tmp_path)
    assert resolve_model("runs/another", tmp_path) == "runs/another"  # may be an owner's name
    (tmp_path / "deepseek-ai" / "DeepSeek-V3").mkdir(parents=True)
    known = "deepseek-ai/DeepSeek-V3.2"
    assert resolve_model(known, tmp_path) == known


def test_what_is_neither_here_nor_on_the_hub_is_said_to_be_missing_here(tmp_path, capsys):
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        'model = "nobody/nothing"\n[[tasks]]\nkind = "needle"\nlengths = [512]\n'
        '[[arms]]\nname = "a"\n[[arms]]\nname = "b"\nretention = "1/2"\n'
    )
    assert evalkit("run", recipe, "--out", tmp_path / "run") == 2
    said = capsys.readouterr().err
    assert said.startswith("evalkit: model nobody/nothing: no such directory, and nothing usable")
    assert said.count("\n") == 1
