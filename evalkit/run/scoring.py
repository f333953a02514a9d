"""Scoring step: completions and gold in, scores.jsonl out. Repeatable without a model."""

from __future__ import annotations

import json
from functools import cache
from importlib.metadata import version

from evalkit.config.run import ScoringConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import optional_fields
from evalkit.core.provenance import DISTRIBUTION, with_guests
from evalkit.core.reasoning import is_unclosed, without_reasoning
from evalkit.core.records import ArmEntry, ItemRow, RunRecord, SampleRow, ScoreRow, digest
from evalkit.dsa.json_types import JsonValue
from evalkit.run.store import RunStore
from evalkit.run.usable import CUT
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
        scoring = scoring_of(run)
    counts = {}
    for arm in run.arms:
        rows = store.read_samples(arm.name)
        strange = next((i for i in rows if i not in items), None)
        if strange is not None:
            raise EvalkitError(f"{store.path}: arm {arm.name} answers {strange}, which has no gold")
        settings = rule_of(scoring, arm, run)
        scores = [
            score_row(item, rows[i], settings, arm.dense_tokens)
            for i, item in items.items()
            if i in rows
            and not item.is_read  # compared as they are (`evalkit.analysis.perplexity`)
        ]
        store.write_scores(arm.name, scores)
        counts[arm.name] = len(scores)
    run = run.with_scoring(scoring.model_dump(mode="json"))
    packages = METRICS.packages(dict.fromkeys(item.metric for item in items.values()))
    if packages:
        environment = optional_fields(run.stored, "environment")
        run = run.with_environment(with_guests(environment, packages))
    store.write_run(run)
    return counts


def scoring_of(run: RunRecord) -> ScoringConfig:
    """The settings of a run's last scoring; those of its recipe before any."""
    return ScoringConfig.model_validate(run.scoring or run.section("scoring"))


def rule_of(scoring: ScoringConfig, arm: ArmEntry, run: RunRecord) -> ScoringConfig:
    """How the answers of an arm are scored: as those of every arm beside it.

    Official scripts score all of an answer, its reasoning too. A run of nothing but imported
    arms does so in the official mode; beside an arm that was run here, one rule holds for both.
    """
    foreign = arm.imported is not None and all(other.imported for other in run.arms)
    if foreign and scoring.mode == "official":
        return scoring.model_copy(update={"reasoning": "keep"})
    return scoring


def basis_of(
    item: ItemRow, row: SampleRow, scoring: ScoringConfig, dense_tokens: int | None = None
) -> str:
    """`digest` of all that a score depends on: answer, gold, rule and version of the scorers."""
    circumstances = [bool(row.reasoning_opened), _is_dense(row, dense_tokens)]
    gold: list[JsonValue] = [list(item.references), item.meta]
    return digest(
        *(row.completion, row.finish_reason, row.error, json.dumps(circumstances)),
        *(item.task, item.metric, json.dumps(gold, sort_keys=True)),
        *(scoring.model_dump_json(), _version()),
    )


@cache
def _version() -> str:
    return version(DISTRIBUTION)


def _is_dense(row: SampleRow, dense_tokens: int | None) -> bool:
    """Whether prompt and answer are so short that no schedule changes them."""
    return bool(dense_tokens) and row.tokens <= (dense_tokens or 0)


def score_row(
    item: ItemRow, row: SampleRow, scoring: ScoringConfig, dense_tokens: int | None = None
) -> ScoreRow:
    """Score one completion; a failed generation scores 0 and stays in the denominator.

    A prompt and answer of at most `dense_tokens` tokens are flagged: no schedule changes those.
    """
    flags = [flag for flag in META_FLAGS if item.meta.get(flag)]
    if item.meta.get("gold_survived") is False:
        flags.append("gold_cut")
    if _is_dense(row, dense_tokens):
        flags.append("dense")
    answer, value = row.completion, 0.0
    split = scoring.reasoning == "split"
    unclosed = split and is_unclosed(answer, opened=bool(row.reasoning_opened))
    if split:
        answer = "" if unclosed else without_reasoning(answer)
    if row.failed:
        flags.append("error")
        if (row.error or "").startswith("over-length"):
            flags.append("over_length")
    elif unclosed:
        flags.append("unclosed")  # the answer never came: no answer, score 0
    else:
        value = metric_score(
            item.metric,
            answer,
            item.references,
            mode=scoring.mode,
            meta=item.meta,
            edit_distance=scoring.edit_distance,
        )
        flags += answer_flags(item.metric, answer, mode=scoring.mode)
        if not answer.strip():
            flags.append("empty")
    if row.redacted:
        flags.append("redacted")
    if row.finish_reason in CUT:
        flags.append(row.finish_reason)
    basis = basis_of(item, row, scoring, dense_tokens)
    row_of = (item.sample_id, item.task, item.metric, value, answer, tuple(flags), basis)
    return ScoreRow(*row_of).sealed()
