"""search.jsonl: every number of a search as it comes, so that the same command goes on from it.

{"kind": "identity", …}                              first line: model, text, recipe
{"kind": "loss" | "held_out", "schedule": …, "value": …}
{"kind": "step", "layer": …, "schedule": …, "loss": …, "held_out": …, "evaluated": …}
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Literal

from distill.errors import DistillError
from evalkit.core.files import append_jsonl, json_rows
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.json_types import JsonObject, JsonValue

Measure = Literal["loss", "held_out"]


class SearchLog:
    """An append-only log; numbers are looked up by schedule.

    Attributes:
        path: of the file.
        evaluated: candidates measured so far, those of earlier runs included.
        resumed: how many numbers an earlier run left.
    """

    def __init__(self, path: Path, identity: JsonObject) -> None:
        self.path, self.evaluated = path, 0
        self._values: dict[tuple[str, str], float] = {}
        self._steps: set[str] = set()
        identity = json.loads(json.dumps(identity))
        rows = json_rows(path)
        first = {"base_config": identity.get("base_config")} | (rows[0] if rows else {})  # of 0.1
        changed = [k for k, v in identity.items() if first.get(k) != v]
        if rows and changed:
            raise DistillError(
                f"{path}: belongs to another search; changed: {', '.join(changed)}. Use another"
                " --out"
            )
        for number, row in enumerate(rows[1:], 2):
            try:
                self._read(row)
            except (KeyError, ValueError):
                raise DistillError(f"{path}:{number}: damaged: remove the line to go on") from None
        self.resumed = len(self._values)
        if not rows:
            self._append({"kind": "identity", **identity})

    def _read(self, row: JsonObject) -> None:
        schedule = str(row["schedule"])
        if row["kind"] == "step":
            self._steps.add(schedule)
            return
        value = float(str(row["value"]))
        if not math.isfinite(value):
            raise ValueError(value)
        self._values[str(row["kind"]), schedule] = value

    def find(self, measure: Measure, schedule: ReuseSchedule) -> float | None:
        """A number that was written before."""
        return self._values.get((measure, str(schedule)))

    def write(self, measure: Measure, schedule: ReuseSchedule, value: float) -> float:
        """Keep a number."""
        self._append({"kind": measure, "schedule": str(schedule), "value": value})
        self._values[measure, str(schedule)] = value
        self.evaluated += measure == "loss"
        return value

    def commit(
        self, layer: int, schedule: ReuseSchedule, loss: float, held_out: float, evaluated: int
    ) -> None:
        """Keep a committed step, once."""
        text = str(schedule)
        if text not in self._steps:
            self._steps.add(text)
            row: dict[str, JsonValue] = {"kind": "step", "layer": layer, "schedule": text}
            row |= {"loss": loss, "held_out": held_out, "evaluated": evaluated}
            self._append(row)

    def _append(self, row: JsonObject) -> None:
        append_jsonl(self.path, [row])
