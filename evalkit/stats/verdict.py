"""From an interval to a verdict: against a margin, against zero, against the noise floor.

A two-sided interval of confidence C makes two one-sided statements, each wrong in at most
(1 - C) / 2 of cases (2.5 % at the default 95 %).
"""

from __future__ import annotations

from evalkit.core.errors import EvalkitError
from evalkit.stats.result import PairedResult

NO_WORSE = "no worse"
WORSE = "worse"
UNDECIDED = "undecided"


def verdict(low: float, high: float, margin: float) -> str:
    """Three-way decision on a difference (arm minus baseline) against a margin.

    ``"no worse"`` if low > -margin (or low = high = margin = 0): the loss is smaller than the
    margin. ``"worse"`` if high < -margin: the loss is larger than the margin. ``"undecided"``
    otherwise: the interval holds -margin, the data allow both.

    Args:
        low: lower end of the interval of the difference.
        high: upper end.
        margin: largest loss that is tolerable, in score units (0.01 is one point of 100).

    Raises:
        EvalkitError: the margin is negative or above 1.
    """
    check_margin(margin)
    if low > -margin or low == high == margin == 0.0:
        return NO_WORSE
    return WORSE if high < -margin else UNDECIDED


def non_inferior(low: float, margin: float) -> bool:
    """Whether a loss as large as the margin is excluded: low > -margin."""
    check_margin(margin)
    return low > -margin


def equivalent(low: float, high: float, margin: float) -> bool:
    """Whether a difference as large as the margin is excluded in both directions (TOST).

    The interval lies inside (-margin, margin); two one-sided tests (Schuirmann 1987) at level
    (1 - confidence) / 2 each, so the customary 5 % test takes a 90 % interval.
    """
    check_margin(margin)
    return low > -margin and high < margin


def superior(low: float) -> bool:
    """Whether the arm scores higher than the baseline: low > 0."""
    return low > 0.0


def noise_floor(same: PairedResult) -> float:
    """The largest difference that an A/A pair (one arm run twice) leaves possible.

    max(|low|, |high|) of its interval, so the floor holds what repetition alone can do; 0 where
    the two runs score every sample alike.
    """
    if same.n_differing == 0:
        return 0.0
    return max(abs(same.low), abs(same.high))


def is_difference(result: PairedResult, floor: float = 0.0) -> bool:
    """Whether a result may be called a difference: its interval excludes 0, delta is off the floor.

    Args:
        result: the comparison.
        floor: noise floor of the same task; a delta of at most this size is no difference.
    """
    excludes_zero = result.low > 0.0 or result.high < 0.0
    return excludes_zero and abs(result.delta) > floor


def judge(result: PairedResult, margin: float, floor: float = 0.0) -> tuple[str, str | None]:
    """Verdict on a result and a note that qualifies it, or None.

    A delta inside the noise floor is never called ``"worse"``. A significant loss inside the
    margin is ``"no worse"`` with the note ``"lower, within margin"``.
    """
    decided = verdict(result.low, result.high, margin)
    inside = floor > 0.0 and abs(result.delta) <= floor
    if inside:
        decided = UNDECIDED if decided == WORSE else decided
        return decided, f"delta inside the noise floor of {floor:.3g}"
    if decided == NO_WORSE and result.high < 0.0:
        return decided, "lower, within margin"
    if decided == UNDECIDED and result.high < 0.0:
        return decided, "lower, perhaps by less than the margin"
    if result.low > 0.0:
        return decided, "higher"
    return decided, None


def check_margin(margin: float) -> None:
    """Refuse a margin that is not in [0, 1]."""
    if not 0.0 <= margin <= 1.0:
        raise EvalkitError(f"margin {margin} must lie in [0, 1], in score units (0.01 = 1 point)")
