"""The verdict in words, for somebody who decides and is no statistician."""

from __future__ import annotations

from fractions import Fraction

from evalkit.analysis.compare import RunComparison
from evalkit.analysis.grouping import entry, place
from evalkit.stats import MACRO, Row
from evalkit.stats.verdict import NO_WORSE, UNDECIDED, WORSE


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
    twin = comparison.settings.repeat_of_baseline
    judged = [row for row in rows(comparison) if row.arm != twin]
    baseline, margin = comparison.result.baseline, points(comparison.settings.margin)
    if not judged:
        return [f"Only {baseline} has scores: there is nothing to compare with it yet."]
    counts = {
        word: sum(row.verdict == word for row in judged) for word in (NO_WORSE, WORSE, UNDECIDED)
    }
    parts = [
        f"{counts[NO_WORSE]} {_is(counts[NO_WORSE])} no worse than {baseline}",
        f"{counts[WORSE]} {_is(counts[WORSE])} worse",
        f"{counts[UNDECIDED]} {_is(counts[UNDECIDED])} undecided",
    ]
    lines = [f"Of {len(judged)} arms {', '.join(parts)}, by a margin of {margin} points."]
    fit = [row for row in judged if row.verdict == NO_WORSE]
    known = [(place(entry(comparison, row.arm)).retention, row) for row in fit]
    placed = [(share, row) for share, row in known if share is not None]
    if placed:
        least = min(share for share, _ in placed)
        names = ", ".join(row.arm for share, row in placed if share == least)
        lines.append(f"The lowest retention that is no worse is {_share(least)}: {names}.")
    elif not fit:
        lines.append("No arm is shown to be no worse.")
    lost = [
        (share, row.arm)
        for row in judged
        if row.verdict == WORSE
        and (share := place(entry(comparison, row.arm)).retention) is not None
    ]
    if lost:
        most = max(share for share, _ in lost)
        names = ", ".join(name for share, name in lost if share == most)
        lines.append(f"The highest retention at which an arm is worse is {_share(most)}: {names}.")
    floor = comparison.floors.get(MACRO)
    if twin is not None and floor is not None:
        lines.append(
            f"{twin}, a second run of the baseline, "
            + (
                "gave every sample the same score: the noise floor is 0."
                if floor == 0.0
                else f"puts the noise floor at {points(floor)} points: less is no difference."
            )
        )
    if counts[UNDECIDED]:
        lines.append(
            "Undecided does not mean equal: the samples allow a loss beyond the margin and one"
            " within it; evalkit power says how many samples would decide."
        )
    return lines


def sentence(row: Row, comparison: RunComparison) -> str:
    """What one row says.

    For example: no worse than baseline: a loss of 2 points is excluded (Δ −0.3 points, 95 %
    interval −1.2 to +0.6).
    """
    if row.result is None:
        return "no samples in common with the baseline"
    margin = points(comparison.settings.margins.get(row.task, comparison.settings.margin))
    base, result = comparison.result.baseline, row.result
    verdict = {
        NO_WORSE: f"no worse than {base}: a loss of {margin} points is excluded",
        WORSE: f"worse than {base}: it loses more than {margin} points",
        UNDECIDED: f"undecided: a loss of {margin} points is possible, none is too",
    }[row.verdict]
    if row.verdict == UNDECIDED and result.high < 0:
        verdict = f"undecided: it loses, but perhaps less than {margin} points"
    elif row.verdict == NO_WORSE and result.high < 0:
        verdict += ", a smaller loss is certain"
    elif row.verdict == NO_WORSE and result.low > 0:
        verdict = f"better than {base}"
    measured = (
        f"Δ {signed(result.delta)} points, {100 * result.confidence:g} % interval"
        f" {signed(result.low)} to {signed(result.high)}"
    )
    return f"{verdict} ({measured})"


def points(value: float) -> str:
    """Score units as points of 100, without needless digits."""
    return f"{100 * value:.3g}"


def signed(value: float) -> str:
    """Points with a sign and one decimal; a true minus."""
    text = f"{100 * value:+.1f}"
    return ("0.0" if text in ("+0.0", "-0.0") else text).replace("-", "−")


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _share(share: Fraction) -> str:
    return str(share)
