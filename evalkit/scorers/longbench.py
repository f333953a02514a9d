"""What all metrics of LongBench share: the first-line rule, and reasoning in strict mode."""

from __future__ import annotations

from collections.abc import Callable

from evalkit.core.reasoning import without_reasoning
from evalkit.scorers.base import Metric, Options, Scorer


def longbench(official: Scorer, strict: Scorer, *, hub: str | None = None) -> Metric:
    """A metric of LongBench: the first-line rule first; strict mode never reads reasoning."""

    def line(scorer: Scorer, cut: Callable[[str], str]) -> Scorer:
        def scored(prediction: str, references: tuple[str, ...], options: Options) -> float:
            if options.meta.get("first_line"):
                prediction = cut(prediction)
            return scorer(prediction, references, options)

        return scored

    official, strict = line(official, first_line), line(strict, strict_first_line)
    return Metric(
        official,
        lambda answer, references, options: strict(without_reasoning(answer), references, options),
        zero_without_references=True,
        hub=hub,
    )


def first_line(prediction: str) -> str:
    """LongBench's rule for trec, triviaqa, samsum and lsht: only newlines are skipped."""
    return prediction.lstrip("\n").partition("\n")[0]


def strict_first_line(prediction: str) -> str:
    """The first line that is not blank."""
    return prediction.lstrip().partition("\n")[0].rstrip()
