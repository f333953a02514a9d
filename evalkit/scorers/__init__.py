"""Scorers: `score(metric, prediction, references)` is one number in [0, 1] per answer.

No torch, no transformers: stored answers are scored again anywhere. Every metric has two modes,
``official`` and ``strict``; the cards in ``data_cards`` say where they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.core.plugins import OURS, Registry, near, running
from evalkit.core.reasoning import is_unclosed
from evalkit.scorers.base import EDIT_DISTANCES, MODES, Metric, Options, Scored, Scorer

METRICS = Registry(
    "metric",
    Metric,
    {
        "ruler_all": "evalkit.scorers.match:RULER_ALL",
        "ruler_part": "evalkit.scorers.match:RULER_PART",
        "needle_exact": "evalkit.scorers.match:NEEDLE_EXACT",
        "needle_phrases": "evalkit.scorers.phrases:NEEDLE_PHRASES",
        "set_f1": "evalkit.scorers.sets:SET_F1",
        "set_exact": "evalkit.scorers.sets:SET_EXACT",
        "prefixed_ratio": "evalkit.scorers.sequence:PREFIXED_RATIO",
        "prefixed_exact": "evalkit.scorers.sequence:PREFIXED_EXACT",
        "qa_f1": "evalkit.scorers.text:QA_F1",
        "qa_f1_zh": "evalkit.scorers.text:QA_F1_ZH",
        "rouge": "evalkit.scorers.rouge:ROUGE",
        "rouge_zh": "evalkit.scorers.rouge:ROUGE_ZH",
        "classification": "evalkit.scorers.labels:CLASSIFICATION",
        "retrieval": "evalkit.scorers.labels:RETRIEVAL",
        "retrieval_zh": "evalkit.scorers.labels:RETRIEVAL_ZH",
        "count": "evalkit.scorers.labels:COUNT",
        "code_sim": "evalkit.scorers.code:CODE_SIM",
        "first_number": "evalkit.scorers.infinitebench:FIRST_NUMBER",
        "key_value": "evalkit.scorers.infinitebench:KEY_VALUE",
        "speaker": "evalkit.scorers.infinitebench:SPEAKER",
        "char_f1_zh": "evalkit.scorers.infinitebench:CHAR_F1_ZH",
        "option": "evalkit.scorers.infinitebench:OPTION",
        "code_option": "evalkit.scorers.infinitebench:CODE_OPTION",
        "last_number": "evalkit.scorers.infinitebench:LAST_NUMBER",
        "first_value": "evalkit.scorers.infinitebench:FIRST_VALUE",
        "number_list": "evalkit.scorers.infinitebench:NUMBER_LIST",
        "substring_match": "evalkit.scorers.text:SUBSTRING_MATCH",
        "choice": "evalkit.scorers.choice:CHOICE",
        "choice_line": "evalkit.scorers.choice:CHOICE_LINE",
    },
    "evalkit.scorers",
)


def scorer(metric: str, mode: str = "official", edit_distance: str = "difflib") -> Scored:
    """The function that scores answers by a metric: of answer, references and meta data.

    For many answers; see `score` for what it takes and raises.
    """
    chosen = METRICS[metric]
    _check("scoring mode", mode, MODES)
    _check("edit distance", edit_distance, EDIT_DISTANCES)
    package = METRICS.package(metric)
    judge = chosen.strict if mode == "strict" else chosen.official
    if package != OURS:
        judge = _guarded(judge, metric, package)
    plain = Options(edit_distance)
    filled = partial(tuple.__new__, Options)  # the class itself takes twice as long
    empty = mode == "official" and chosen.zero_without_references

    def scored(
        prediction: str, references: tuple[str, ...], meta: Mapping[str, Any] | None = None
    ) -> float:
        if not references:
            if empty:
                return 0.0
            raise EvalkitError(f"{metric}: a sample without references cannot be scored")
        return judge(prediction, references, filled((edit_distance, meta)) if meta else plain)

    return scored


_builtin = cache(scorer)
"""Of our own metrics, which do not change while a process runs."""


def score(
    metric: str,
    prediction: str,
    references: tuple[str, ...],
    *,
    mode: str = "official",
    meta: Mapping[str, Any] | None = None,
    edit_distance: str = "difflib",
) -> float:
    """Score one answer.

    Args:
        metric: a name in `METRICS`.
        prediction: the answer.
        references: gold answers.
        mode: ``official`` or ``strict``, see `evalkit.scorers.base.MODES`.
        meta: the sample's meta data; ``all_classes`` and ``first_line`` are read.
        edit_distance: backend of the code metric, ``difflib`` or ``levenshtein``.

    Raises:
        EvalkitError: the metric, mode or backend is unknown (the nearest known one is suggested),
            there is nothing to compare with, the gold is not what the metric needs, or the
            metric's package has a fault.
    """
    bind = _builtin if metric in METRICS.builtin else scorer
    return bind(metric, mode, edit_distance)(prediction, references, meta)


def _guarded(judge: Scorer, metric: str, package: str) -> Scorer:
    """A scorer of another package, whose faults are one line that names it."""

    def guarded(prediction: str, references: tuple[str, ...], options: Options) -> float:
        with running(package):
            value = judge(prediction, references, options)
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            raise EvalkitError(
                f"{package}: the metric {metric} gave {value!r}, not a number in [0, 1]"
            )
        return float(value)

    return guarded


def flags(metric: str, prediction: str, *, mode: str = "official") -> tuple[str, ...]:
    """What a report should count about an answer besides its score.

    ``unclosed``: a reasoning block was opened and never closed; and the flags of the metric.
    """
    unclosed = ("unclosed",) if is_unclosed(prediction) else ()
    return (*unclosed, *METRICS[metric].flags(prediction, mode))


def _check(what: str, name: str, names: Iterable[str]) -> None:
    if name not in names:
        raise EvalkitError(f"unknown {what} {name}; {near(name, names)}")
