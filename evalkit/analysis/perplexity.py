"""Perplexity of texts under every arm, and how far its predictions are from the baseline's.

Of an arm on a cell, with d running over documents and t over their scored tokens:

    perplexity  exp(−Σ log p(x_dt) / Σ 1)
    Δ           Σ (log p_base(x_dt) − log p_arm(x_dt)) / Σ 1, nats a token: above 0 is a loss
    KL          mean over the kept positions of Σ_v p_base(v) (log p_base(v) − log p_arm(v))

Both arms read the same tokens of the same documents, so that Δ and KL are paired; their intervals
are over documents. Of a distribution the likeliest tokens are kept. The KL is over those that both
arms kept and one class of all others: by the log-sum inequality never above that of the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from evalkit.core.errors import EvalkitError
from evalkit.core.records import ItemRow, RunRecord, SampleRow
from evalkit.core.records.likelihood import Likelihood
from evalkit.core.types import PERPLEXITY
from evalkit.dsa.json_types import JsonObject, as_object
from evalkit.stats.comparison import BASELINE, REPEAT
from evalkit.stats.inputs import Floats
from evalkit.stats.unbounded import UnboundedMean, unbounded_mean
from evalkit.stats.verdict import Verdict

LEAST = 1e-12
"""Probability of all other tokens at least: rounding may leave less than nothing."""

Read = Mapping[str, Likelihood]


@dataclass(frozen=True, slots=True)
class PerplexityRow:
    """One arm on one cell.

    Attributes:
        arm: its name.
        task: the cell.
        documents: read by this arm and the baseline.
        failed: documents that this arm could not read.
        tokens: scored tokens of the documents.
        perplexity: of them; lower is better. None without a document.
        baseline_perplexity: of the baseline on the same tokens.
        delta: nats a token that the arm loses (above 0) to the baseline; None for the baseline.
        kl: nats a token from the baseline's predictions to the arm's; likewise.
        verdict: ``baseline``, ``repeat``, or ``withheld``: nats have no bound.
    """

    arm: str
    task: str
    documents: int
    failed: int
    tokens: int
    perplexity: float | None
    baseline_perplexity: float | None
    delta: UnboundedMean | None = None
    kl: UnboundedMean | None = None
    verdict: str = BASELINE

    def json(self) -> JsonObject:
        """An entry of ``perplexity`` in compare.json."""
        return asdict(self)


def read_cells(run: RunRecord, items: Mapping[str, ItemRow]) -> set[str]:
    """Names of the cells of a run whose texts are read instead of answered."""
    planned = {
        name for name, section in run.cells.items() if as_object(section).get("kind") == PERPLEXITY
    }
    return planned | {item.task for item in items.values() if item.is_read}


def perplexities(
    answers: Mapping[str, Mapping[str, SampleRow]],
    items: Mapping[str, ItemRow],
    baseline: str,
    *,
    repeat: str | None = None,
    confidence: float = 0.95,
) -> tuple[PerplexityRow, ...]:
    """The rows of a run, cell by cell in its order, the baseline's first.

    Args:
        answers: by arm and sample id.
        items: by sample id.
        baseline: arm that the others are compared with.
        repeat: its second run.
        confidence: of the intervals.

    Raises:
        EvalkitError: a record holds no log-probabilities; names the arm and the sample.
    """
    rows = []
    for task in dict.fromkeys(item.task for item in items.values() if item.is_read):
        ids = [i for i, item in items.items() if item.task == task]
        base = _read(baseline, answers.get(baseline, {}), ids)
        for arm in (baseline, *(name for name in answers if name != baseline)):
            given = answers.get(arm, {})
            if not any(i in given for i in ids):
                continue
            ours = base if arm == baseline else _read(arm, given, ids)
            failed = sum(given[i].failed for i in ids if i in given)
            kind = BASELINE if arm == baseline else REPEAT if arm == repeat else Verdict.WITHHELD
            rows.append(_row(arm, task, ours, base, failed, str(kind), confidence))
    return tuple(rows)


def _read(arm: str, rows: Mapping[str, SampleRow], ids: Iterable[str]) -> dict[str, Likelihood]:
    likelihoods = {}
    for sample_id in ids:
        row = rows.get(sample_id)
        if row is None or row.failed:
            continue
        try:
            likelihoods[sample_id] = Likelihood.parse(row.completion)
        except EvalkitError as error:
            raise EvalkitError(f"arm {arm}, {sample_id}: {error}") from None
    return likelihoods


def _row(
    arm: str, task: str, ours: Read, base: Read, failed: int, verdict: str, confidence: float
) -> PerplexityRow:
    shared = [i for i in ours if i in base]
    if not shared:
        return PerplexityRow(arm, task, 0, failed, 0, None, None, verdict=verdict)
    mine, theirs = (np.concatenate([of[i].logprobs for i in shared]) for of in (ours, base))
    delta = kl = None
    if verdict != BASELINE:
        delta = unbounded_mean(theirs - mine, _labels(shared, ours, "logprobs"), confidence)
        values = np.concatenate([divergence(base[i], ours[i]) for i in shared])
        kl = unbounded_mean(values, _labels(shared, ours, "positions"), confidence)
    perplexity, base_perplexity = (float(np.exp(-of.mean())) for of in (mine, theirs))
    return PerplexityRow(
        arm=arm,
        task=task,
        documents=len(shared),
        failed=failed,
        tokens=len(mine),
        perplexity=perplexity,
        baseline_perplexity=base_perplexity,
        delta=delta,
        kl=kl,
        verdict=verdict,
    )


def _labels(ids: Collection[str], read: Read, what: str) -> Sequence[str]:
    """The document of every value."""
    return [i for i in ids for _ in range(len(getattr(read[i], what)))]


def divergence(base: Likelihood, arm: Likelihood) -> Floats:
    """KL from the baseline's distribution to the arm's at every kept position, nats [P]."""
    return np.array([_kl(base, arm, row) for row in range(len(base.positions))])


def _kl(base: Likelihood, arm: Likelihood, row: int) -> float:
    _, a, b = np.intersect1d(
        base.top_ids[row], arm.top_ids[row], assume_unique=True, return_indices=True
    )
    log_p, log_q = (of.top_logprobs[row][at].astype(np.float64) for of, at in ((base, a), (arm, b)))
    p, q = np.exp(log_p), np.exp(log_q)
    rest_p, rest_q = max(LEAST, 1.0 - p.sum()), max(LEAST, 1.0 - q.sum())
    value = float((p * (log_p - log_q)).sum() + rest_p * np.log(rest_p / rest_q))
    return max(0.0, value)
