"""`evalkit recipes` and `evalkit demo`."""

from evalkit.cli import recipes as module
from evalkit.data.shipped import copy_recipes, shipped_recipes
from tests.command import evalkit
from tests.paths import ROOT


def test_every_recipe_is_listed_with_a_line_about_it(capsys):
    assert evalkit("recipes") == 0
    lines = capsys.readouterr().out.splitlines()
    files = sorted(p.relative_to(ROOT / "recipes") for p in (ROOT / "recipes").rglob("*.toml"))
    assert [line.split()[0] for line in lines[: len(files)]] == [str(path) for path in files]
    assert all(row.text and len(row.text) < 220 for row in shipped_recipes())
    (row,) = [row for row in shipped_recipes() if row.name == "eval/demo.toml"]
    assert row.text == "What does index reuse cost on a real, small DSA model?"


def test_a_copy_is_whole_and_overwrites_nothing(tmp_path, capsys):
    copy_recipes(tmp_path / "mine")
    assert (tmp_path / "mine/tiny/model/model.safetensors").is_file()
    assert (tmp_path / "mine/tiny/words/nouns.txt").is_file()
    assert not list((tmp_path / "mine").rglob("*.py"))
    assert evalkit("recipes", tmp_path / "mine") == 2
    assert "is there already" in capsys.readouterr().err


def test_the_demo_runs_the_shipped_recipe_and_writes_the_report(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(
        "evalkit.cli.run.run", lambda recipe, out, limit: done.append((recipe, out, limit))
    )
    monkeypatch.setattr("evalkit.cli.report.report", done.append)
    module.demo(tmp_path, 2)
    (recipe, out, limit), reported = done
    assert limit == 2
    assert recipe.samefile(ROOT / "recipes" / "eval" / "demo.toml")
    assert (out, reported) == (tmp_path, [tmp_path])


def test_a_package_without_recipes_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("evalkit.data.shipped.FOLDERS", (tmp_path,))
    assert evalkit("recipes") == 2
    assert "install the package again" in capsys.readouterr().err
