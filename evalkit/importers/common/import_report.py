"""What an import did, in data and in lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evalkit.data.records import Problem

SHOWN = 20


@dataclass(frozen=True, slots=True)
class TaskImport:
    """One task of an import.

    Attributes:
        records: samples imported, errors included.
        errors: of them, without a prediction; they score 0.
        lines: lines read.
        repeated: lines dropped because they were repeated.
        expected: samples of the benchmark, None where that is not known.
    """

    records: int
    errors: int
    lines: int
    repeated: tuple[str, ...]
    expected: int | None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The outcome of an import.

    Attributes:
        arm: its name.
        format: of the files.
        tasks: what was read, by task.
        problems: malformed records, with file, line and field.
        coverage: differences to the samples that the other arms have, in sentences.
        notes: what else should be known.
        unchanged: the arm was there already with the same content; nothing was written.
    """

    arm: str
    format: str
    tasks: Mapping[str, TaskImport]
    problems: tuple[Problem, ...]
    coverage: tuple[str, ...]
    notes: tuple[str, ...]
    unchanged: bool = False

    @property
    def records(self) -> int:
        """Samples imported."""
        return sum(task.records for task in self.tasks.values())

    def lines(self, shown: int = SHOWN) -> list[str]:
        """The report for a terminal; at most so many problems and dropped lines are listed."""
        state = "is there already, unchanged" if self.unchanged else "imported"
        many = f"{self.records} samples of {len(self.tasks)} tasks"
        lines = [f"{self.arm}: {many} {state} ({self.format})"]
        for name, task in self.tasks.items():
            if task.repeated:
                lines.append(
                    f"{name}: {len(task.repeated)} of {task.lines} lines were repeated and"
                    f" dropped: {_few(task.repeated)}"
                )
            if task.errors:
                lines.append(f"{name}: {task.errors} samples have no prediction and score 0")
            if task.expected is not None and task.records != task.expected:
                lines.append(f"{name}: {task.records} samples, the benchmark has {task.expected}")
        lines += [*self.coverage, *self.notes]
        if self.problems:
            lines.append(f"{len(self.problems)} malformed records or fields:")
            lines += [f"  {problem}" for problem in self.problems[:shown]]
            if len(self.problems) > shown:
                lines.append(f"  … and {len(self.problems) - shown} more, all of them in run.json")
        return lines


def _few(items: tuple[str, ...]) -> str:
    more = f" … and {len(items) - 5} more" if len(items) > 5 else ""
    return ", ".join(items[:5]) + more
