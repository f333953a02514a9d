"""docs/architecture.md says what the import contracts prove."""

from __future__ import annotations

import ast
import re
import tomllib

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def layers(package: str) -> list[str]:
    """Lines of the package's contract, from the command down."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    (found,) = [c for c in contracts if c.get("containers") == [package]]
    assert found["type"] == "layers"
    assert found["exhaustive"]
    return found["layers"]


def columns() -> tuple[list[str], list[str]]:
    """Rooms of both packages as the figure shows them, line by line."""
    figure = PAGE.partition("```\nevalkit")[2].partition("```")[0].splitlines()[2:]
    rooms = ([], [])
    for line in figure:
        for column, part in zip(rooms, (line[:51], line[51:]), strict=True):
            name = re.split(r"\s{2,}", part.strip())[0]
            if name:
                column.append(name)
    return rooms


def test_the_figure_shows_the_layers_of_the_contracts():
    ours, theirs = columns()
    assert ours == layers("evalkit")
    assert theirs == layers("distill")


def test_every_folder_is_a_room_and_roots_hold_at_most_two_modules():
    for package in ("evalkit", "distill"):
        rooms = {name for line in layers(package) for name in re.split(r"\s*\|\s*", line)}
        folder = ROOT / package
        loose = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        folders = {path.parent.name for path in folder.glob("*/__init__.py")}
        assert rooms == folders | loose
        assert len(loose) <= 2


def test_every_file_that_the_page_names_is_there():
    for name in re.findall(r"`([a-z_/]+/[a-z_]+\.py)`", PAGE):
        assert any((ROOT / place / name).is_file() for place in ("", "evalkit", "distill")), name


def test_tests_mirror_the_rooms():
    rooms = {path.parent.name for path in (ROOT / "evalkit").glob("*/__init__.py")}
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")}
    helpers = {"distill", "engines_source", "recipes", "servers", "vllm_client", "vllm_engine"}
    assert folders - helpers <= rooms


EMPTY = {"found", "made", "own", "some"}
"""Names that do not say of what."""


def test_no_variable_has_a_name_that_says_nothing():
    nameless = []
    for path in (p for package in ("evalkit", "distill") for p in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            name = node.id if stored else getattr(node, "arg", getattr(node, "name", None))
            if name in EMPTY:
                nameless.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert not nameless, "\n".join(nameless)
