"""Values and recipes as TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def inline(value: object) -> str:
    """A value on one line: text, number, true or false, a list, or a mapping without None."""
    if isinstance(value, Mapping):
        pairs = (f"{_key(key)} = {inline(v)}" for key, v in value.items() if v is not None)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(inline, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def document(recipe: Mapping[str, object]) -> str:
    """A recipe: its values, then a table for every section and every entry of a list of them."""
    lines = [_line(key, value) for key, value in recipe.items() if not _sections(value)]
    for key, value in recipe.items():
        for section in _sections(value):
            head = f"[{_key(key)}]" if section is value else f"[[{_key(key)}]]"
            lines += ["", head, *(_line(k, v) for k, v in section.items() if v is not None)]
    return "".join(f"{line}\n" for line in lines if line is not None)


def _sections(value: object) -> list[Mapping[str, object]]:
    """The sections that a value stands for; none for a plain value."""
    entries = value if isinstance(value, list | tuple) else [value]
    return [entry for entry in entries if isinstance(entry, Mapping)]


def _line(key: str, value: object) -> str | None:
    return None if value is None else f"{_key(key)} = {inline(value)}"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else inline(name)
