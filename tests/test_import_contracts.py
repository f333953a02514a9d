"""The import contracts name every module that they are about."""

from __future__ import annotations

import pkgutil
import tomllib

import evalkit
from tests.paths import ROOT


def test_the_closed_package_is_closed_against_everything():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    (closed,) = [c for c in contracts if c["name"] == "evalkit.dsa is closed"]
    others = {f"evalkit.{module.name}" for module in pkgutil.iter_modules(evalkit.__path__)}
    assert set(closed["forbidden_modules"]) == others - {"evalkit.dsa"}
