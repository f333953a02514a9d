"""Paired statistics of an evaluation: pure functions on arrays, NumPy and SciPy only."""

from evalkit.stats.bootstrap import paired_bootstrap, paired_bootstrap_arms
from evalkit.stats.closed_form_intervals import newcombe_paired, tango, wilson
from evalkit.stats.compare import compare
from evalkit.stats.comparison import MACRO, Comparison, Options, Row
from evalkit.stats.confidence_sequence import confidence_sequence
from evalkit.stats.decision import Decision, Evidence
from evalkit.stats.design import Design, IntervalOptions
from evalkit.stats.join import ArmScores
from evalkit.stats.methods import paired_arms, paired_difference
from evalkit.stats.multiplicity import benjamini_hochberg, holm
from evalkit.stats.power import (
    Spread,
    assumed_spread,
    power_of,
    samples_needed,
    spread_of,
)
from evalkit.stats.result import ArmResults, PairedResult
from evalkit.stats.sample_size import PowerRow, power_table
from evalkit.stats.sequential_test import Drawing, DrawnTask, SequentialTest, looking_confidence
from evalkit.stats.significance import mcnemar, sign_flip
from evalkit.stats.stopping import QUESTIONS, sampling_order, sequential_decision
from evalkit.stats.variance_components import Components, components
from evalkit.stats.verdict import Reason, Verdict

__all__ = [
    "MACRO",
    "QUESTIONS",
    "ArmResults",
    "ArmScores",
    "Comparison",
    "Components",
    "Decision",
    "Design",
    "Drawing",
    "DrawnTask",
    "Evidence",
    "IntervalOptions",
    "Options",
    "PairedResult",
    "PowerRow",
    "Reason",
    "Row",
    "SequentialTest",
    "Spread",
    "Verdict",
    "assumed_spread",
    "benjamini_hochberg",
    "compare",
    "components",
    "confidence_sequence",
    "holm",
    "looking_confidence",
    "mcnemar",
    "newcombe_paired",
    "paired_arms",
    "paired_bootstrap",
    "paired_bootstrap_arms",
    "paired_difference",
    "power_of",
    "power_table",
    "samples_needed",
    "sampling_order",
    "sequential_decision",
    "sign_flip",
    "spread_of",
    "tango",
    "wilson",
]
