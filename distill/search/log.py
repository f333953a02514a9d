"""search.jsonl: every number of a search as it comes, so that the same command goes on from it.

{"kind": "identity", …}                              first line: model, text, recipe
{"kind": "loss" | "held_out", "schedule": …, "value": …}
{"kind": "step", "layer": …, "schedule": …, "loss": …, "held_out": …, "evaluated": …}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distill.errors import DistillError
from evalkit.dsa import ReuseSchedule


class SearchLog:
    """An append-only log; numbers are found again by schedule.

    Attributes:
        path: of the file.
        evaluated: candidates measured so far, found ones included.
        resumed: how many numbers an earlier run left.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path, self.evaluated = path, 0
        self._found: dict[tuple[str, str], float] = {}
        self._steps: set[str] = set()
        identity = json.loads(json.dumps(identity))
        rows = self._rows()
        if rows and rows[0] != {"kind": "identity", **identity}:
            changed = [k for k, v in identity.items() if rows[0].get(k) != v]
            raise DistillError(
                f"{path}: belongs to another search; changed: {', '.join(changed)}. Use another"
                " --out"
            )
        for row in rows[1:]:
            if row["kind"] == "step":
                self._steps.add(row["schedule"])
            else:
                self._found[row["kind"], row["schedule"]] = float(row["value"])
        self.resumed = len(self._found)
        if not rows:
            self._append({"kind": "identity", **identity})

    def find(self, kind: str, schedule: ReuseSchedule) -> float | None:
        """A number that was written before."""
        return self._found.get((kind, str(schedule)))

    def write(self, kind: str, schedule: ReuseSchedule, value: float) -> float:
        """Keep a number."""
        self._append({"kind": kind, "schedule": str(schedule), "value": value})
        self._found[kind, str(schedule)] = value
        self.evaluated += kind == "loss"
        return value

    def commit(
        self, layer: int, schedule: ReuseSchedule, loss: float, held_out: float, evaluated: int
    ) -> None:
        """Keep a committed step, once."""
        text = str(schedule)
        if text not in self._steps:
            self._steps.add(text)
            row = {"kind": "step", "layer": layer, "schedule": text, "loss": loss}
            self._append({**row, "held_out": held_out, "evaluated": evaluated})

    def _append(self, row: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def _rows(self) -> list[dict[str, Any]]:
        """All whole lines; a last one that was cut off by a kill is dropped from the file."""
        if not self.path.is_file():
            return []
        text = self.path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            self.path.write_text(whole, encoding="utf-8")
        try:
            rows: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines()]
        except ValueError as error:
            raise DistillError(f"{self.path}: damaged: {error}; remove it to begin again") from None
        return rows
