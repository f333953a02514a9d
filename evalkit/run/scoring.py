"""Scoring step: completions and gold in, scores.jsonl out. Repeatable without a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalkit.config.run import ScoringConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.provenance import with_guests
from evalkit.core.reasoning import is_unclosed, without_reasoning
from evalkit.core.types import SampleScore
from evalkit.run.store import RunStore
from evalkit.scorers import METRICS
from evalkit.scorers import flags as answer_flags
from evalkit.scorers import score as metric_score

# Facts of a sample that every table counts, from its meta data.
META_FLAGS = ("truncated", "over_length")


def score_run(store: RunStore, scoring: ScoringConfig | None = None) -> dict[str, int]:
    """Score every answered sample of every arm; returns how many per arm.

    Args:
        store: the run; the caller holds its lock.
        scoring: other settings than the run's; kept in run.json.

    Raises:
        EvalkitError: no run here, or an answer to a sample that has no gold.
    """
    run, items = store.read_run(), store.read_items()
    if scoring is None:
        kept = run.get("scoring") or run.get("recipe", {}).get("scoring") or {}
        scoring = ScoringConfig.model_validate(kept)
    run["scoring"] = scoring.model_dump(mode="json")
    counts = {}
    for entry in run["arms"]:
        arm = entry["name"]
        rows = store.read_samples(arm)
        strange = next((i for i in rows if i not in items), None)
        if strange is not None:
            raise EvalkitError(f"{store.path}: arm {arm} answers {strange}, which has no gold")
        how, dense = _settings(scoring, entry), entry.get("dense_tokens")
        scores = [score_row(item, rows[i], how, dense) for i, item in items.items() if i in rows]
        store.write_scores(arm, scores)
        counts[arm] = len(scores)
    packages = METRICS.packages(dict.fromkeys(item["metric"] for item in items.values()))
    if packages:
        run["environment"] = with_guests(run.get("environment") or {}, packages)
    store.write_run(run)
    return counts


def _settings(scoring: ScoringConfig, arm: Mapping[str, Any]) -> ScoringConfig:
    """Official scripts score what is there: imported answers keep their reasoning in that mode."""
    if arm.get("imported") and scoring.mode == "official":
        return scoring.model_copy(update={"reasoning": "keep"})
    return scoring


def score_row(
    item: Mapping[str, Any],
    row: Mapping[str, Any],
    scoring: ScoringConfig,
    dense_tokens: int | None = None,
) -> SampleScore:
    """Score one completion; a failed generation scores 0 and stays in the denominator.

    A prompt and answer of at most `dense_tokens` tokens are flagged: no schedule changes those.
    """
    meta = item.get("meta") or {}
    flags = [flag for flag in META_FLAGS if meta.get(flag)]
    if dense_tokens and _tokens(row) <= dense_tokens:
        flags.append("dense")
    answer, value = str(row["completion"]), 0.0
    split = scoring.reasoning == "split"
    unclosed = split and is_unclosed(answer, opened=bool(row.get("reasoning_opened")))
    if split:
        answer = "" if unclosed else without_reasoning(answer)
    if row["finish_reason"] == "error":
        flags.append("error")
        if str(row.get("error") or "").startswith("over-length"):
            flags.append("over_length")
    elif unclosed:
        flags.append("unclosed")  # the answer never came: no answer, score 0
    else:
        value = metric_score(
            item["metric"],
            answer,
            tuple(item["references"]),
            mode=scoring.mode,
            meta=meta,
            edit_distance=scoring.edit_distance,
        )
        flags += answer_flags(item["metric"], answer, mode=scoring.mode)
        if not answer.strip():
            flags.append("empty")
    if row["finish_reason"] == "length":
        flags.append("length")
    return SampleScore(item["sample_id"], item["task"], item["metric"], value, answer, tuple(flags))


def _tokens(row: Mapping[str, Any]) -> float:
    """Prompt and answer of a row; endless where nobody counted them."""
    counts = (row.get("prompt_tokens"), row.get("completion_tokens"))
    return sum(c if isinstance(c, int) else float("inf") for c in counts)
