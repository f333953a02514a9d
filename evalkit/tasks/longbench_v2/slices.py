"""What a report shows beside the score: slices, and what guessing would give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evalkit.dsa.json_types import JsonObject

FACETS = ("difficulty", "length", "domain", "sub_domain")
ORDER = ("easy", "hard", "short", "medium", "long")
LETTERS = ("A", "B", "C", "D")


@dataclass(frozen=True, slots=True)
class Slice:
    """The score of some questions.

    Attributes:
        facet: ``overall``, or what the questions share.
        value: of the facet.
        n: questions, failed ones included.
        score: share of right answers.
    """

    facet: str
    value: str
    n: int
    score: float


@dataclass(frozen=True, slots=True)
class Baseline:
    """A score that needs no model.

    Attributes:
        name: ``always C``, or ``chance``.
        score: share of right answers.
    """

    name: str
    score: float


def slices(
    scores: Mapping[str, float],
    meta: Mapping[str, JsonObject],
    facets: Iterable[str] = FACETS,
) -> list[Slice]:
    """Scores overall and by difficulty, length, domain and sub-domain.

    Args:
        scores: per sample id.
        meta: of the samples, by sample id.
        facets: keys of it.
    """
    if not scores:
        return []
    rows = [Slice("overall", "", len(scores), sum(scores.values()) / len(scores))]
    for facet in facets:
        groups: dict[str, list[float]] = {}
        for sample_id, score in scores.items():
            value = meta[sample_id].get(facet)
            if value is not None:
                groups.setdefault(str(value), []).append(score)
        for value in sorted(groups, key=_order):
            rows.append(Slice(facet, value, len(groups[value]), _mean(groups[value])))
    return rows


def baselines(answers: Iterable[str]) -> list[Baseline]:
    """Constant letters, the best first, and chance.

    Args:
        answers: the gold letter of every question.
    """
    counts = Counter(answers)
    total = counts.total()
    constant = sorted(LETTERS, key=lambda letter: (-counts[letter], letter))
    rows = [Baseline(f"always {c}", counts[c] / total) for c in constant if total]
    return [*rows, Baseline("chance", 1 / len(LETTERS))]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _order(value: str) -> tuple[int, str]:
    return (ORDER.index(value) if value in ORDER else len(ORDER), value)
