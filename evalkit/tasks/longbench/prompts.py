"""The official prompt templates and answer budgets, read as data."""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.data.sources import locate, of_card
from evalkit.tasks.longbench.facts import CARD

FILES = {"prompts": "dataset2prompt.json", "lengths": "dataset2maxlen.json"}
"""Sources of the card, and their file names."""

FIELDS = ("context", "input")


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt template around the context.

    Attributes:
        before: what stands before the context, with ``{input}`` as None.
        after: what stands behind it, likewise.
    """

    before: tuple[str | None, ...]
    after: tuple[str | None, ...]

    def around(self, question: str) -> tuple[str, str]:
        """The text before and behind the context; braces in the question are left alone."""
        before, after = (
            "".join(question if part is None else part for part in parts)
            for parts in (self.before, self.after)
        )
        return before, after


@dataclass(frozen=True, slots=True)
class Prompts:
    """Templates and answer budgets of all tasks.

    Attributes:
        templates: per task.
        lengths: new tokens per task.
        sha256: of both files, per file name; differs from the card's for other prompts.
        official: whether both files are the pinned ones.
    """

    templates: Mapping[str, Template]
    lengths: Mapping[str, int]
    sha256: Mapping[str, str]
    official: bool


@cache
def load(folder: Path | None) -> Prompts:
    """Templates and lengths from a folder, or the pinned ones.

    Raises:
        EvalkitError: a file cannot be had, or is not what it must be.
    """
    paths = {key: _path(folder, key, name) for key, name in FILES.items()}
    content = {key: _read(path) for key, path in paths.items()}
    templates = {
        task: template(value, f"{paths['prompts']}: {task}")
        for task, value in _object(content["prompts"], paths["prompts"]).items()
    }
    lengths = _object(content["lengths"], paths["lengths"])
    for task, value in lengths.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise EvalkitError(f"{paths['lengths']}: {task}: not a number of tokens")
    digests = {key: hashlib.sha256(data).hexdigest() for key, data in content.items()}
    official = all(of_card(CARD, key).sha256 == digest for key, digest in digests.items())
    named = {FILES[key]: digest for key, digest in digests.items()}
    return Prompts(templates, lengths, named, official)


def template(text: object, where: str) -> Template:
    """Take a template apart; only ``{context}``, once, and ``{input}`` may stand in it.

    Raises:
        EvalkitError: anything else does; the message begins with `where`.
    """
    if not isinstance(text, str):
        raise EvalkitError(f"{where}: a template must be text")
    before: list[str | None] = []
    after: list[str | None] | None = None
    try:
        for literal, field, spec, conversion in string.Formatter().parse(text):
            parts = before if after is None else after
            parts.append(literal)
            if field is None:
                continue
            if (
                field not in FIELDS
                or spec
                or conversion
                or (field, after is None)
                == (
                    "context",
                    False,
                )
            ):
                raise EvalkitError(f"{where}: unexpected field {{{field}}} in a template")
            if field == "context":
                after = []
            else:
                parts.append(None)
    except ValueError as error:
        raise EvalkitError(f"{where}: not a template: {error}") from None
    if after is None:
        raise EvalkitError(f"{where}: a template without {{context}}")
    return Template(tuple(before), tuple(after))


def _path(folder: Path | None, key: str, name: str) -> Path:
    if folder is None:
        return locate(of_card(CARD, key))
    for path in (folder / name, folder / "config" / name, folder / "LongBench" / "config" / name):
        if path.is_file():
            return path
    raise EvalkitError(f"{folder}: has no {name}")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EvalkitError(f"{path}: cannot be read: {error.strerror or error}") from None


def _object(data: bytes, path: Path) -> dict[str, Any]:
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise EvalkitError(f"{path}: not JSON: {error}") from None
    if not isinstance(parsed, dict) or not parsed:
        raise EvalkitError(f"{path}: not an object with one entry per task")
    return parsed
