"""Arms of a comparison as tests make them up."""

from __future__ import annotations

from dataclasses import replace

from evalkit.stats import ArmScores, Options, Row, compare

DEFAULT = Options()


def arm(tasks: dict[str, list[float]], **columns: object) -> ArmScores:
    ids = [f"{task}/{k:04d}" for task, values in tasks.items() for k in range(len(values))]
    scores = [value for values in tasks.values() for value in values]
    return ArmScores(ids, [name.split("/")[0] for name in ids], scores, **columns)


def only(scores: list[float], baseline: list[float], options: Options = DEFAULT, **columns) -> Row:
    """The row of one arm on one task."""
    arms = {"full": arm({"qa": baseline}, **columns), "arm": arm({"qa": scores}, **columns)}
    return compare(arms, "full", options).row("arm", "qa")


def right(n: int, lost: int = 0, gained: int = 0) -> tuple[list[float], list[float]]:
    """Scores of an arm and its baseline."""
    a = [0.0] * lost + [1.0] * (n - lost)
    return a, [1.0] * (n - gained) + [0.0] * gained


def margin(value: float, **options: object) -> Options:
    return replace(DEFAULT, margin=value, **options)
