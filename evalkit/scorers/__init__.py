"""Scorers: `score(metric, prediction, references)` is one number in [0, 1] per answer.

No torch, no transformers: stored answers are scored again anywhere. Every metric has two modes,
``official`` and ``strict``; the cards in ``data_cards`` say where they differ.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.core.reasoning import is_unclosed, without_reasoning
from evalkit.scorers import choice, code, labels, match, phrases, rouge, sequence, sets, text
from evalkit.scorers.base import EDIT_DISTANCES, MODES, Metric, Options, Scorer, best, plain


def _longbench(official: Scorer, strict: Scorer) -> Metric:
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
    )


def first_line(prediction: str) -> str:
    """LongBench's rule for trec, triviaqa, samsum and lsht: only newlines are skipped."""
    return prediction.lstrip("\n").split("\n")[0]


def strict_first_line(prediction: str) -> str:
    """The first line that is not blank."""
    return prediction.lstrip().partition("\n")[0].rstrip()


METRICS: dict[str, Metric] = {
    "ruler_all": plain(match.ruler_all, match.strict_all),
    "ruler_part": plain(match.ruler_part, match.strict_part),
    "needle_exact": plain(match.needle_exact),
    "needle_phrases": plain(phrases.needle_phrases),
    "set_f1": plain(sets.set_f1),
    "set_exact": plain(sets.set_exact),
    "prefixed_ratio": plain(sequence.prefixed_ratio),
    "prefixed_exact": plain(sequence.prefixed_exact),
    "qa_f1": _longbench(best(text.qa_f1), best(text.strict_qa_f1)),
    "qa_f1_zh": _longbench(best(text.qa_f1_zh), best(text.strict_qa_f1_zh)),
    "rouge": _longbench(best(rouge.rouge), best(rouge.strict_rouge)),
    "rouge_zh": _longbench(best(rouge.rouge_zh), best(rouge.strict_rouge_zh)),
    "classification": _longbench(labels.classification, labels.strict_classification),
    "retrieval": _longbench(best(labels.retrieval("en")), best(labels.strict_retrieval("en"))),
    "retrieval_zh": _longbench(best(labels.retrieval("zh")), best(labels.strict_retrieval("zh"))),
    "count": _longbench(best(labels.count), best(labels.strict_count)),
    "code_sim": _longbench(code.code_sim, code.strict_code_sim),
    "choice": plain(
        lambda answer, references: max(choice.official_choice(answer, r) for r in references),
        lambda answer, references: max(choice.strict_choice(answer, r) for r in references),
    ),
}


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
            there is nothing to compare with, or the gold is not what the metric needs.
    """
    _known("metric", metric, METRICS)
    _known("scoring mode", mode, MODES)
    _known("edit distance", edit_distance, EDIT_DISTANCES)
    chosen = METRICS[metric]
    if not references:
        if mode == "official" and chosen.zero_without_references:
            return 0.0
        raise EvalkitError(f"{metric}: a sample without references cannot be scored")
    scorer = chosen.strict if mode == "strict" else chosen.official
    return scorer(prediction, references, Options(edit_distance, meta or {}))


def flags(metric: str, prediction: str, *, mode: str = "official") -> tuple[str, ...]:
    """What a report should count about an answer besides its score.

    ``unclosed``: a reasoning block was opened and never closed. ``no_letter``: a multiple-choice
    answer from which no letter could be read.
    """
    found = ["unclosed"] if is_unclosed(prediction) else []
    if metric == "choice":
        read = choice.strict_letter if mode == "strict" else choice.official_letter
        found += ["no_letter"] if read(prediction) is None else []
    return tuple(found)


def _known(what: str, name: str, names: Mapping[str, object] | tuple[str, ...]) -> None:
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
        raise EvalkitError(f"unknown {what} {name}; {hint}")
