"""Server logs: schedules, overrides, captured paths and fallbacks, by formats that are data."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError


@dataclass(slots=True)
class LogFacts:
    """What a log says.

    Attributes:
        schedules: distinct (compressed-sparse layers, reusing layers, their ids), each part None
            where it was not printed.
        overrides: distinct overrides, in order.
        captured: ranks that took the reusing path, and lines that name no rank (None).
        fallbacks: lines that say it was left.
        markers: per marker of the arm, the ranks that wrote it.
        notes: lines worth showing.
        lines: how many were read.
    """

    schedules: list[tuple[int | None, int | None, tuple[int, ...] | None]] = field(
        default_factory=list
    )
    overrides: list[dict[str, Any]] = field(default_factory=list)
    captured: set[int | None] = field(default_factory=set)
    fallbacks: list[str] = field(default_factory=list)
    markers: dict[str, set[int | None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lines: int = 0


@cache
def formats() -> tuple[re.Pattern[str], tuple[tuple[str, re.Pattern[str]], ...]]:
    """The pattern of a rank, and (kind, pattern) of every known line."""
    raw = files(__package__).joinpath("log_formats.toml").read_text(encoding="utf-8")
    data = tomllib.loads(raw)
    known = tuple((entry["kind"], re.compile(entry["pattern"])) for entry in data["format"])
    return re.compile(data["rank"]), known


def read_log(
    lines: Iterable[str], markers: Sequence[str] = (), fallbacks: Sequence[str] = ()
) -> LogFacts:
    """Facts of a log.

    Args:
        lines: the log.
        markers: further patterns of lines that prove the arm's path.
        fallbacks: further patterns of lines that spoil it.
    """
    rank_of, known = formats()
    own = [(marker, re.compile(marker)) for marker in markers]
    spoiling = [re.compile(pattern) for pattern in fallbacks]
    facts = LogFacts(markers={marker: set() for marker in markers})
    for line in lines:
        facts.lines += 1
        found = rank_of.search(line)
        rank = int(found["rank"]) if found else None
        for marker, pattern in own:
            if pattern.search(line):
                facts.markers[marker].add(rank)
        if any(pattern.search(line) for pattern in spoiling):
            facts.fallbacks.append(line.strip()[:200])
            continue
        _take(line, rank, known, facts)
    return facts


def read_log_file(
    path: str, markers: Sequence[str] = (), fallbacks: Sequence[str] = ()
) -> LogFacts:
    """Facts of a log file.

    Raises:
        EvalkitError: it cannot be read.
    """
    try:
        with Path(path).expanduser().open(encoding="utf-8", errors="replace") as handle:
            return read_log(handle, markers, fallbacks)
    except OSError as error:
        raise EvalkitError(f"server log {path}: {error.strerror}") from None


def _take(
    line: str,
    rank: int | None,
    known: Sequence[tuple[str, re.Pattern[str]]],
    facts: LogFacts,
) -> None:
    schedule: dict[str, str] = {}
    for kind, pattern in known:
        match = pattern.search(line)
        if match is None:
            continue
        if kind == "schedule":
            schedule |= {k: v for k, v in match.groupdict().items() if v is not None}
        elif kind == "overrides":
            facts.overrides += [o for o in _parsed(match["json"]) if o not in facts.overrides]
        elif kind == "captured":
            facts.captured.add(rank)
        elif kind == "fallback":
            facts.fallbacks.append(line.strip()[:200])
        else:
            facts.notes.append(match["text"].strip()[:200])
    if schedule:
        entry = _entry(schedule)
        if entry not in facts.schedules:
            facts.schedules.append(entry)


def _entry(found: dict[str, str]) -> tuple[int | None, int | None, tuple[int, ...] | None]:
    ids = found.get("skip_layer_ids")
    return (
        int(found["c4_layers"]) if "c4_layers" in found else None,
        int(found["skip_layers"]) if "skip_layers" in found else None,
        None if ids is None else tuple(int(i) for i in ids.replace(",", " ").split()),
    )


def _parsed(text: str) -> Iterator[dict[str, Any]]:
    """A dictionary printed as JSON or as Python; nothing for what is neither."""
    for read in (lambda t: json.loads(t.replace('\\"', '"')), ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError):
            continue
        if isinstance(value, dict):
            yield value
            return
