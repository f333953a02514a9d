"""What an evaluation found, for Python and notebooks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.analysis.compare import RunComparison, comparison_rows
from evalkit.core.errors import EvalkitError
from evalkit.core.grid import Grid
from evalkit.core.printable import printable
from evalkit.core.records import ComparisonRow
from evalkit.report.tables import by_task, notes, summary
from evalkit.stats import MACRO

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """The arms of a run, compared with its baseline.

    Attributes:
        path: the run directory.
        details: everything that reports are made of.
    """

    path: Path
    details: RunComparison

    @property
    def rows(self) -> tuple[ComparisonRow, ...]:
        """Of compare.json: every arm on every task, and on their average (``macro``)."""
        return comparison_rows(self.details)

    @property
    def verdicts(self) -> dict[str, str]:
        """Verdict by arm, on the average of the tasks."""
        return {row.arm: row.verdict for row in self.rows if row.task == MACRO}

    def table(self) -> str:
        """What `evalkit compare` prints first: the arms, the tasks, and what must be known."""
        from tabulate import tabulate

        parts = []
        for grid in (summary(self.details), by_task(self.details)):
            align = ["right" if i in grid.right else "left" for i in range(len(grid.head))]
            text = tabulate(grid.rows, grid.head, "simple", colalign=align, disable_numparse=True)
            parts.append(f"{grid.title}\n\n{text}")
        lines = "\n".join(f"· {line}" for line in notes(self.details))
        return printable("\n\n".join([*parts, lines]))

    def to_pandas(self) -> pandas.DataFrame:
        """`rows` as a data frame.

        Raises:
            EvalkitError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise EvalkitError("to_pandas needs pandas: pip install pandas") from None
        return pandas.DataFrame([asdict(row) for row in self.rows])

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """For notebooks."""
        tables = "".join(map(_html, (summary(self.details), by_task(self.details))))
        items = "".join(f"<li>{_text(line)}</li>" for line in notes(self.details))
        return f"{tables}<ul>{items}</ul><p>{_text(str(self.path))}</p>"


def _html(grid: Grid) -> str:
    """A table; whatever an arm is called, nothing of it is markup."""
    head = "".join(f"<th>{_text(name)}</th>" for name in grid.head)
    rows = "".join(
        f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in grid.rows
    )
    return (
        f"<table><caption>{_text(grid.title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _text(text: str) -> str:
    return escape(printable(text))
