"""compare.json: the table of a comparison, for other programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from dataclasses import fields as dataclass_fields

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
        bound_low: lower bound that the verdict rests on; None, as below, where there is no verdict.
        bound_high: upper bound.
        p_no_worse: one-sided, of a loss of the margin or more: small means no worse.
        p_worse: one-sided, of a loss of the margin or less: small means worse.
        verdict: ``better``, ``no worse``, ``worse``, ``undecided``, ``withheld``, ``baseline`` or
            ``repeat``.
        reasons: why, each with its kind, its numbers and its text.
        equivalent: whether the bounds exclude the margin in both directions.
        notes: what must be known beside the numbers, reasons included.
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
    bound_low: float | None
    bound_high: float | None
    p_no_worse: float | None
    p_worse: float | None
    verdict: str
    reasons: tuple[JsonObject, ...]
    equivalent: bool
    notes: tuple[str, ...]

    @classmethod
    def keys(cls) -> list[str]:
        """Names of the fields, in order."""
        return [field.name for field in dataclass_fields(cls)]

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
        signature: every choice the numbers depend on, in one line.
        unfinished: (answered, planned) of the arms where they differ.
        flags: counts by arm.
        summaries: what the benchmarks themselves report.
        rows: the table.
        perplexity: rows of the texts that were read.
        taken_out: (compared, answered) samples of the tasks that some were taken out of.
    """

    baseline: str
    settings: JsonObject
    methods: tuple[str, ...]
    signature: str
    unfinished: Mapping[str, tuple[int, int]]
    flags: Mapping[str, Mapping[str, int]]
    summaries: Mapping[str, JsonObject]
    rows: tuple[ComparisonRow, ...]
    perplexity: tuple[JsonObject, ...] = ()
    taken_out: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def json(self) -> JsonObject:
        """The document."""
        return {
            "baseline": self.baseline,
            "settings": self.settings,
            "methods": self.methods,
            "signature": self.signature,
            "unfinished": dict(self.unfinished),
            "flags": {name: dict(counts) for name, counts in self.flags.items()},
            "summaries": dict(self.summaries),
            "rows": [row.json() for row in self.rows],
            "perplexity": list(self.perplexity),
            "taken_out": {task: list(counts) for task, counts in self.taken_out.items()},
        }
