"""Score and t intervals of paired differences: no resampling, with strata and clusters.

The score interval is the default of a comparison. For right/wrong scores of samples that are not
clustered it is Tango's (1998). For other scores in [0, 1] the differences are matched in their
first two moments by a variable that takes only -s, 0 and s, with s = sum d^2 / sum |d| and
x = sum of gains / s, y = sum of losses / s as (fractional) discordant counts; the interval is
s times Tango's for x, y and n. Strata and clusters change the variance of the mean by a factor,
the design effect D, which scales the critical value by sqrt(D), as effective sample sizes do for
proportions from surveys (Korn and Graubard 1998, Survey Methodology 24); with clusters the
critical value is Student's. The extension beyond Tango rests on the coverage measured in
docs/statistics.md, not on a theorem.

The t interval is theta +- t se with the cluster-robust variance and its degrees of freedom: those
of `Units.few_clusters` in every stratum, pooled by Satterthwaite's formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from evalkit.stats.closed_form_intervals import NORMAL, critical_z, tango_end, tango_score
from evalkit.stats.inputs import Stratum
from evalkit.stats.interval_method import IntervalMethod, PairedScores
from evalkit.stats.moments import Moments, moments
from evalkit.stats.result import ArmResults, PairedResult, caution, differing

LEAST_P = 1e-16


def closed_form(arm: int, parts: Sequence[Stratum], method: str, confidence: float) -> PairedResult:
    """Interval and test of one arm over the given strata, method ``"score"`` or ``"t"``."""
    m = moments(arm, parts)
    low, high, p_value = -1.0, 1.0, 1.0
    if m is not None:
        # strata with a single unit may lie anywhere in [-1, 1]
        slack = sum(part.units.count == 1 for part in parts) / len(parts)
        lower, tail = (score_lower, score_tail) if method == "score" else (t_lower, t_tail)
        low = max(-1.0, lower(m, confidence) - slack)
        high = min(1.0, -lower(m.mirrored(), confidence) + slack)
        p_value = 2.0 * min(tail(m, slack), tail(m.mirrored(), slack))
    varies = [part.units.count > 1 and part.units.variance(arm) > 1e-18 for part in parts]
    return PairedResult(
        delta=math.fsum(part.units.delta[arm] for part in parts) / len(parts),
        low=low,
        high=high,
        p_value=min(1.0, max(LEAST_P, p_value)),
        n=sum(part.units.n for part in parts),
        n_clusters=sum(part.units.count for part in parts),
        method=method,
        confidence=confidence,
        n_differing=differing(arm, parts),
        caution=caution(parts, varies, bootstrap=False),
    )


def closed_form_arms(
    scores: PairedScores, choose: Callable[[int, Sequence[Stratum]], str]
) -> ArmResults:
    """`closed_form` of every arm, overall and by stratum, by the method that is chosen for each."""
    return scores.results(
        lambda arm, parts: closed_form(arm, parts, choose(arm, parts), scores.confidence)
    )


def score_lower(m: Moments, confidence: float) -> float:
    """Lower end of the score interval; clusters never move it inwards."""
    critical = critical_z(confidence) * math.sqrt(m.design)
    if m.cluster_design is not None:
        student = _student_quantile(0.5 + confidence / 2, m.df)
        critical = max(critical, student * math.sqrt(m.cluster_design))
    return m.scale * tango_end(m.x, m.y, m.n, critical)


def score_tail(m: Moments, null: float = 0.0) -> float:
    """One-sided p-value of the score test against theta <= null; agrees with `score_lower`."""
    statistic = tango_score(m.x, m.y, m.n, max(-1.0, min(1.0, null / m.scale)))
    p_value = NORMAL.cdf(-statistic / math.sqrt(m.design))
    if m.cluster_design is None:
        return p_value
    return max(p_value, _student_tail(statistic / math.sqrt(m.cluster_design), m.df))


def t_lower(m: Moments, confidence: float) -> float:
    """Lower end of the t interval."""
    return m.theta - _student_quantile(0.5 + confidence / 2, m.df) * math.sqrt(m.variance)


def t_tail(m: Moments, null: float = 0.0) -> float:
    """One-sided p-value of the t test against theta <= null."""
    gap = m.theta - null
    if m.variance < 1e-20:
        return 1.0 if gap <= 1e-12 else 0.5 ** (m.df + 1.0)
    return _student_tail(gap / math.sqrt(m.variance), m.df)


def _student_quantile(level: float, df: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(df, level))


def _student_tail(t: float, df: float) -> float:
    from scipy.special import stdtr

    return float(stdtr(df, -t))


SCORE = IntervalMethod(lambda scores: closed_form_arms(scores, lambda *_: "score"))
T = IntervalMethod(lambda scores: closed_form_arms(scores, lambda *_: "t"))
