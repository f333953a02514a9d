"""Server logs: schedules, overrides, captured paths and fallbacks, by formats that are data."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from evalkit.core.errors import EvalkitError
from evalkit.core.secrets import redact_message
from evalkit.dsa.json_types import JsonObject

_LONGEST = 200  # characters of a line that is shown


class LoggedSchedule(NamedTuple):
    """A schedule that a server printed, each part None where it was not printed.

    Attributes:
        layers: number of indexer-bearing layers.
        shared: number of shared layers.
        shared_ids: ids of the shared layers.
    """

    layers: int | None
    shared: int | None
    shared_ids: tuple[int, ...] | None


@dataclass(slots=True)
class LogFacts:
    """Facts of a log.

    Attributes:
        schedules: distinct schedules, in order.
        overrides: distinct overrides, in order.
        captured: ranks that took the reusing path, and lines that name no rank (None).
        fallbacks: lines that say it was left.
        markers: per marker of the arm, the ranks that wrote it.
        in_force: per schedule that our plugin says it runs, the ranks that said so.
        notes: lines worth showing.
        lines: how many were read.
    """

    schedules: list[LoggedSchedule] = field(default_factory=list)
    overrides: list[JsonObject] = field(default_factory=list)
    captured: set[int | None] = field(default_factory=set)
    fallbacks: list[str] = field(default_factory=list)
    markers: dict[str, set[int | None]] = field(default_factory=dict)
    in_force: dict[str, set[int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lines: int = 0


@dataclass(frozen=True, slots=True)
class LineFormat:
    """A line that is known, and who writes it.

    Attributes:
        name: in words.
        kind: ``schedule``, ``in force``, ``overrides``, ``captured``, ``fallback`` or ``note``.
        pattern: regular expression of the line.
        private_build: engines whose arms it counts for, where no release writes it; else empty.
        package: whose source has the line, with `releases` and `words`.
        releases: of that package.
        words: literal text that stands in their source.
    """

    name: str
    kind: str
    pattern: re.Pattern[str]
    private_build: tuple[str, ...] = ()
    package: str = ""
    releases: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def counts_for(self, engine: str) -> bool:
        """Whether an arm of this engine can have written it."""
        return not self.private_build or engine in self.private_build


@cache
def formats() -> tuple[re.Pattern[str], tuple[LineFormat, ...]]:
    """The pattern of a rank, and every known line."""
    raw = files(__package__).joinpath("log_formats.toml").read_text(encoding="utf-8")
    data = tomllib.loads(raw)
    lists = ("private_build", "releases", "words")
    known = tuple(
        LineFormat(
            entry["name"],
            entry["kind"],
            re.compile(entry["pattern"]),
            package=entry.get("package", ""),
            **{key: tuple(entry.get(key, ())) for key in lists},
        )
        for entry in data["format"]
    )
    return re.compile(data["rank"]), known


def read_log(
    lines: Iterable[str],
    markers: Sequence[str] = (),
    fallbacks: Sequence[str] = (),
    *,
    engine: str = "",
) -> LogFacts:
    """Facts of a log.

    Args:
        lines: the log.
        markers: further patterns of lines that prove the arm's path.
        fallbacks: further patterns of lines that refute it.
        engine: of the arm; lines of private builds count for theirs only.
    """
    rank_pattern, every_format = formats()
    known = [line_format for line_format in every_format if line_format.counts_for(engine)]
    marker_patterns = {marker: re.compile(marker) for marker in markers}
    fallback_patterns = [re.compile(pattern) for pattern in fallbacks]
    facts = LogFacts(markers={marker: set() for marker in markers})
    for line in lines:
        facts.lines += 1
        match = rank_pattern.search(line)
        rank = int(match["rank"]) if match else None
        for marker, pattern in marker_patterns.items():
            if pattern.search(line):
                facts.markers[marker].add(rank)
        if any(pattern.search(line) for pattern in fallback_patterns):
            facts.fallbacks.append(_shown(line))
        else:
            _read_line(line, rank, known, facts)
    return facts


def read_log_file(
    path: str,
    markers: Sequence[str] = (),
    fallbacks: Sequence[str] = (),
    *,
    engine: str = "",
) -> LogFacts:
    """Facts of a log file.

    Raises:
        EvalkitError: it cannot be read.
    """
    try:
        with Path(path).expanduser().open(encoding="utf-8", errors="replace") as handle:
            return read_log(handle, markers, fallbacks, engine=engine)
    except OSError as error:
        raise EvalkitError(f"server log {path}: {error.strerror}") from None


def _read_line(line: str, rank: int | None, known: Sequence[LineFormat], facts: LogFacts) -> None:
    """Add what the known formats find in a line."""
    parts: dict[str, str] = {}  # of a schedule, by several formats
    for line_format in known:
        kind = line_format.kind
        match = line_format.pattern.search(line)
        if match is None:
            continue
        if kind == "schedule":
            parts |= {name: text for name, text in match.groupdict().items() if text is not None}
        else:
            _read_match(kind, match, rank, facts)
    if parts:
        schedule = _schedule(parts)
        if schedule not in facts.schedules:
            facts.schedules.append(schedule)


def _read_match(kind: str, match: re.Match[str], rank: int | None, facts: LogFacts) -> None:
    if kind == "overrides":
        overrides = _parsed(match["json"])
        if overrides is not None and overrides not in facts.overrides:
            facts.overrides.append(overrides)
    elif kind == "in force":
        facts.in_force.setdefault(match["schedule"], set()).add(int(match["rank"]))
    elif kind == "captured":
        facts.captured.add(rank)
    elif kind == "fallback":
        facts.fallbacks.append(_shown(match.string))
    else:
        facts.notes.append(_shown(match["text"]))


def _schedule(parts: Mapping[str, str]) -> LoggedSchedule:
    ids = parts.get("skip_layer_ids")
    return LoggedSchedule(
        int(parts["c4_layers"]) if "c4_layers" in parts else None,
        int(parts["skip_layers"]) if "skip_layers" in parts else None,
        None if ids is None else tuple(int(i) for i in ids.replace(",", " ").split()),
    )


def _parsed(text: str) -> JsonObject | None:
    """An object printed as JSON or as Python; None for what is neither."""
    for parse in (lambda t: json.loads(t.replace('\\"', '"')), ast.literal_eval):
        try:
            value = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(value, dict):
            return value
    return None


def _shown(line: str) -> str:
    return redact_message(line.strip())[:_LONGEST]
