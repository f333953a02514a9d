"""compare.json: the table of a comparison, for other programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields

from evalkit.core.json_fields import (
    integer,
    optional_integer,
    optional_number,
    optional_text,
    text,
    texts,
)
from evalkit.dsa.json_types import JsonObject


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One arm on one task, or on the macro average (task ``macro``).

    Attributes:
        arm: its name.
        task: the cell, or ``macro``.
        metric: the scorer, or ``mean over tasks``.
        n: samples joined with the baseline.
        n_errors: failed generations among them.
        score: mean, None where the arm has none of the task.
        baseline_score: of the baseline on the same samples.
        delta: score minus the baseline's; None, like all of the interval, for the baseline.
        ci_low: lower end of the interval.
        ci_high: upper end.
        method: of the interval.
        n_differing: samples whose scores differ.
        p_value: of no difference.
        p_adjusted: for several arms.
        verdict: ``no worse``, ``worse``, ``undecided`` or ``baseline``.
        equivalent: whether the interval excludes the margin in both directions.
        notes: cautions.
    """

    arm: str
    task: str
    metric: str
    n: int
    n_errors: int
    score: float | None
    baseline_score: float | None
    delta: float | None
    ci_low: float | None
    ci_high: float | None
    method: str | None
    n_differing: int | None
    p_value: float | None
    p_adjusted: float | None
    verdict: str
    equivalent: bool
    notes: tuple[str, ...]

    @classmethod
    def keys(cls) -> list[str]:
        """Names of the fields, in order."""
        return [field.name for field in dataclass_fields(cls)]

    @classmethod
    def parse(cls, row: JsonObject) -> ComparisonRow:
        """Raises BadField."""
        return cls(
            arm=text(row, "arm"),
            task=text(row, "task"),
            metric=text(row, "metric"),
            n=integer(row, "n"),
            n_errors=integer(row, "n_errors"),
            score=optional_number(row, "score"),
            baseline_score=optional_number(row, "baseline_score"),
            delta=optional_number(row, "delta"),
            ci_low=optional_number(row, "ci_low"),
            ci_high=optional_number(row, "ci_high"),
            method=optional_text(row, "method"),
            n_differing=optional_integer(row, "n_differing"),
            p_value=optional_number(row, "p_value"),
            p_adjusted=optional_number(row, "p_adjusted"),
            verdict=text(row, "verdict"),
            equivalent=row.get("equivalent") is True,
            notes=texts(row, "notes"),
        )

    def json(self) -> JsonObject:
        """An entry of ``rows``."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ComparisonRecord:
    """compare.json.

    Attributes:
        baseline: name of the arm that the others are compared with.
        settings: how arms were compared.
        methods: that made the intervals.
        noise_floors: by task, from an A/A pair.
        signature: every choice the numbers depend on, in one line.
        unfinished: (answered, planned) of the arms where they differ.
        flags: counts by arm.
        summaries: what the benchmarks themselves report.
        rows: the table.
    """

    baseline: str
    settings: JsonObject
    methods: tuple[str, ...]
    noise_floors: Mapping[str, float]
    signature: str
    unfinished: Mapping[str, tuple[int, int]]
    flags: Mapping[str, Mapping[str, int]]
    summaries: Mapping[str, JsonObject]
    rows: tuple[ComparisonRow, ...]

    def json(self) -> JsonObject:
        """The document."""
        return {
            "baseline": self.baseline,
            "settings": self.settings,
            "methods": self.methods,
            "noise_floors": dict(self.noise_floors),
            "signature": self.signature,
            "unfinished": dict(self.unfinished),
            "flags": {name: dict(counts) for name, counts in self.flags.items()},
            "summaries": dict(self.summaries),
            "rows": [row.json() for row in self.rows],
        }
