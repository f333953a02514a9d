"""Scoring step: completions and gold in, scores.jsonl out. Repeatable without a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalkit.scorers import score as metric_score
from evalkit.store import RunStore
from evalkit.types import EvalkitError, SampleScore


def score_run(store: RunStore) -> dict[str, int]:
    """Score every answered sample of every arm; returns how many per arm.

    Raises:
        EvalkitError: no run here, or an answer to a sample that has no gold.
    """
    items = store.read_items()
    counts = {}
    for entry in store.read_run()["arms"]:
        arm = entry["name"]
        rows = store.read_samples(arm)
        strange = next((i for i in rows if i not in items), None)
        if strange is not None:
            raise EvalkitError(f"{store.path}: arm {arm} answers {strange}, which has no gold")
        scores = [score_row(item, rows[i]) for i, item in items.items() if i in rows]
        store.write_scores(arm, scores)
        counts[arm] = len(scores)
    return counts


def score_row(item: Mapping[str, Any], row: Mapping[str, Any]) -> SampleScore:
    """Score one completion; a failed generation scores 0 and stays in the denominator."""
    answer = str(row["completion"])
    flags = []
    value = 0.0
    if row["finish_reason"] == "error":
        flags.append("error")
    else:
        value = metric_score(item["metric"], answer, tuple(item["references"]))
        if not answer.strip():
            flags.append("empty")
        if row["finish_reason"] == "length":
            flags.append("length")
    return SampleScore(item["sample_id"], item["task"], item["metric"], value, answer, tuple(flags))
