"""metrics.jsonl: what a run measures, a row per event.

    {"kind": "format", "version": 2}
    {"kind": "train" | "evaluation" | "choice" | …, …, "seconds": …}     `distill.training.events`

Files of version 1 (0.1) have no first row of this kind, and other names for some kinds;
`read_metrics` gives their rows under the names of today.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from evalkit.core.files import append_jsonl, dumps, json_rows, write_atomic
from evalkit.dsa.json_types import JsonObject, JsonValue

METRICS_FILE = "metrics.jsonl"
VERSION = 2
_FORMAT: Row = {"kind": "format", "version": VERSION}

Row = dict[str, JsonValue]


class MetricsLog:
    """The log of one run directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / METRICS_FILE

    def start(self) -> None:
        """Begin an empty log."""
        self._write([])

    def append(self, row: Mapping[str, object]) -> None:
        """Add a row, synced."""
        append_jsonl(self._path, [cast(JsonObject, row)])

    def resume(self, done: Callable[[Row], bool]) -> None:
        """Keep the rows of what is done; the others will be measured again."""
        self._write([row for row in read_metrics(self._path) if done(row)])

    def _write(self, rows: list[Row]) -> None:
        write_atomic(self._path, "".join(dumps(row) + "\n" for row in [_FORMAT, *rows]))


def read_metrics(path: Path) -> list[Row]:
    """The rows of a metrics.jsonl of any version, the format row left out.

    Raises:
        EvalkitError: a line is damaged.
    """
    rows: list[Row] = json_rows(path)
    if rows and rows[0] == _FORMAT:
        return rows[1:]
    return [_upgraded(row) for row in rows]


def _upgraded(row: Row) -> Row:
    """A row of version 1 under the names of today."""
    kind = str(row.get("kind"))
    if kind == "probe":
        kind = "layer" if "before" in row else "evaluation"
    return row | {"kind": {"look": "evaluation", "judged": "logit_kl"}.get(kind, kind)}
