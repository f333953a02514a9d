"""The verdict in words, for somebody who decides and is no statistician."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from evalkit.analysis.compare import RunComparison
from evalkit.analysis.grouping import entry, place
from evalkit.stats import MACRO, Row, Verdict
from evalkit.stats.comparison import BASELINE, REPEAT
from evalkit.stats.decision import as_family
from evalkit.stats.verdict import points


@dataclass(frozen=True, slots=True)
class Look:
    """How a word is shown.

    Attributes:
        style: in the terminal.
        badge: on the page.
        marker: in plots.
        colour: number of the colour in plots.
        meaning: for the legend of the page.
    """

    style: str
    badge: str
    marker: str = "D"
    colour: int = 4
    meaning: str = ""


LOOKS: dict[str, Look] = {
    Verdict.BETTER: Look(
        "green", "good", "^", 0, "no worse, and the score is higher beyond chance"
    ),
    Verdict.NO_WORSE: Look("green", "good", "o", 0, "a loss as large as the margin is excluded"),
    Verdict.WORSE: Look("red", "bad", "s", 1, "the loss is larger than the margin"),
    Verdict.UNDECIDED: Look(
        "yellow", "open", "D", 4, "these samples allow both; not the same as equal"
    ),
    Verdict.WITHHELD: Look(
        "magenta",
        "held",
        "X",
        3,
        "something other than chance stands in the way: the row says what",
    ),
    BASELINE: Look("dim", "base"),
    REPEAT: Look("dim", "base"),
}
"""The five words, and what stands in their place for the baseline and its second run."""

ACCEPTABLE = (Verdict.NO_WORSE, Verdict.BETTER)


def rows(comparison: RunComparison) -> list[Row]:
    """The macro row of every arm but the baseline, in the order of the run."""
    by_arm = {
        row.arm: row
        for row in comparison.result.rows
        if row.task == MACRO and row.arm != comparison.result.baseline
    }
    return [by_arm[arm.name] for arm in comparison.arms if arm.name in by_arm]


def headline(comparison: RunComparison) -> list[str]:
    """What the run says as a whole: counts of verdicts, how far one may go, where the cliff is."""
    if not comparison.tasks:
        return ["No verdicts: every cell is text that was read; its perplexity stands below."]
    shown = rows(comparison)
    judged = [row for row in shown if row.verdict != REPEAT]
    baseline, margin = comparison.result.baseline, points(comparison.settings.margin)
    if not judged:
        return [f"Only {baseline} has scores: there is nothing to compare with it yet."]
    fit = [row for row in judged if _acceptable(row)]
    better = sum(row.verdict == Verdict.BETTER for row in fit)
    parts = [f"{len(fit)} {_is(len(fit))} no worse than {baseline}"]
    parts[0] += f" ({better} of them better)" if better else ""
    for word in (Verdict.WORSE, Verdict.UNDECIDED, Verdict.WITHHELD):
        count = sum(row.verdict == word for row in judged)
        if count or word is not Verdict.WITHHELD:
            parts.append(f"{count} {_is(count)} {word}")
    lines = [f"Of {len(judged)} arms {', '.join(parts)}, by a margin of {margin}."]
    lines += _reach(comparison, judged)
    lines += [_repeat(row) for row in shown if row.verdict == REPEAT]
    words = {row.verdict for row in judged}
    if Verdict.UNDECIDED in words:
        lines.append(
            "Undecided does not mean equal: the samples allow a loss beyond the margin and one"
            " within it; each row says what would decide."
        )
    if Verdict.WITHHELD in words:
        lines.append("Withheld: more samples would not help; each row says what stands in the way.")
    return lines


def _reach(comparison: RunComparison, judged: list[Row]) -> list[str]:
    """The lowest retention that is no worse, and the highest that is worse.

    To name one is to pick among all arms, so that a verdict counts that holds as one of them
    (Holm), also in a table in which each stands alone; one that holds only alone is named as such.
    """
    decided = [(row, row.decision) for row in judged if row.decision is not None]
    together = as_family([decision for _, decision in decided])
    lines = []
    for wanted, pick, text in (
        (ACCEPTABLE, min, "The lowest retention that is no worse is"),
        ((Verdict.WORSE,), max, "The highest retention at which an arm is worse is"),
    ):
        pairs = zip(decided, together, strict=True)
        held = _placed(comparison, [row for (row, _), one in pairs if one.verdict in wanted])
        alone = _placed(comparison, [row for row in judged if row.verdict in wanted])
        shown = pick((share for share, _ in held), default=None)
        if shown is not None:
            lines.append(f"{text} {shown}: {_at(held, shown)}.")
        if alone and (most := pick(share for share, _ in alone)) != shown:
            lines.append(
                f"At {most} {_at(alone, most)} is {wanted[0]} alone, not as one of"
                f" {len(decided)} arms tried."
            )
    if not any(map(_acceptable, judged)):
        lines.insert(0, "No arm is shown to be no worse.")
    return lines


def _at(placed: list[tuple[Fraction, str]], share: Fraction) -> str:
    return ", ".join(name for where, name in placed if where == share)


def _placed(comparison: RunComparison, rows: list[Row]) -> list[tuple[Fraction, str]]:
    """Retention and name of the arms whose schedule is known."""
    shares = [(place(entry(comparison, row.arm)).retention, row.arm) for row in rows]
    return [(share, name) for share, name in shares if share is not None]


def _repeat(row: Row) -> str:
    """What the baseline's second run shows."""
    if row.result is None or row.result.n_differing == 0:
        return f"{row.arm}, a second run of the baseline, gave every sample the same score."
    return (
        f"{row.arm}, a second run of the baseline, differs from it on {row.result.n_differing} of"
        f" {row.n} samples (Δ {signed(row.result.delta)} points): verdicts hold against both runs."
    )


def sentence(row: Row, comparison: RunComparison) -> str:
    """What one row says.

    For example: no worse than baseline: a loss of 2 points is excluded (Δ −0.3 points, 95 %
    interval −1.2 to +0.6).
    """
    if row.result is None:
        return "no samples in common with the baseline"
    margin = points(comparison.options.margin_of(row.task))
    base = comparison.result.baseline
    said = {
        Verdict.BETTER: f"better than {base}: a loss is excluded",
        Verdict.NO_WORSE: f"no worse than {base}: a loss of {margin} is excluded",
        Verdict.WORSE: f"worse than {base}: it loses more than {margin}",
        Verdict.UNDECIDED: f"undecided: the bounds allow a loss of {margin} and a smaller one",
        Verdict.WITHHELD: "withheld: no verdict on these answers",
        REPEAT: f"a second run of {base}",
    }[row.verdict]
    return f"{said} ({measured(row)})"


def measured(row: Row) -> str:
    """Difference, interval, and the bound where it is another."""
    result = row.result
    if result is None:
        return ""
    text = (
        f"Δ {signed(result.delta)} points, {100 * result.confidence:g} % interval"
        f" {signed(result.low)} to {signed(result.high)}"
    )
    if row.bound is not None and not row.bound_is_interval:
        text += f", bound {signed(row.bound[0])} to {signed(row.bound[1])}"
    return text


def signed(value: float) -> str:
    """Points with a sign and one decimal; a true minus."""
    text = f"{100 * value:+.1f}"
    return ("0.0" if text in ("+0.0", "-0.0") else text).replace("-", "−")


def _acceptable(row: Row) -> bool:
    return row.verdict in ACCEPTABLE


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
