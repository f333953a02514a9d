"""The releases of vLLM whose source was read, by a fingerprint of what the plugin relies on."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from evalkit.dsa.schedule import ScheduleError

_LETTERS = 16


@cache
def known() -> Mapping[str, Mapping[str, str]]:
    """Per release, the fingerprint of each ``path:Class.function``."""
    text = files(__package__).joinpath("fingerprints.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def check(version: str, root: Path) -> None:
    """Check that the installed vLLM is one that was read, line by line.

    Args:
        version: as vLLM says; what follows a ``+`` names the build and does not count.
        root: its package folder.

    Raises:
        ScheduleError: an unknown release, with those that are known; or a known one that differs.
    """
    release = version.partition("+")[0]
    expected = known().get(release)
    if expected is None:
        raise ScheduleError(
            f"vLLM {version} is not known to this plugin (known: {', '.join(known())}): what it"
            " replaces was not read there"
        )
    different = [name for name, wanted in expected.items() if fingerprint(root, name) != wanted]
    if different:
        more = f" (and {len(different) - 1} more)" if len(different) > 1 else ""
        raise ScheduleError(
            f"vLLM {version} is not the release: {different[0]} differs{more}; the plugin replaces"
            " what it has read only"
        )


def fingerprint(root: Path, name: str) -> str:
    """Fingerprint of the lines of one function; "" where it is not there.

    Args:
        root: vLLM's package folder.
        name: ``path:function`` or ``path:Class.function``.
    """
    path, _, qualified = name.partition(":")
    try:
        text = (root / path).read_text(encoding="utf-8")
    except OSError:
        return ""
    body: list[ast.stmt] = _parsed(text).body
    node: ast.stmt | None = None
    for part in qualified.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        node = next((n for n in body if isinstance(n, kinds) and n.name == part), None)
        if not isinstance(node, kinds):
            return ""
        body = node.body
    if node is None:
        return ""
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    return sha256("\n".join(lines).encode()).hexdigest()[:_LETTERS]


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)
