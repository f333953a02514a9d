"""One line per sample: the gold, the completions and the scores of an arm.

Completions and scores are named tuples: of 76 000 rows a frozen dataclass takes a third longer
than the check of a dictionary, a tuple does not.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

from evalkit.core.json_fields import BadField, kind, optional_fields
from evalkit.core.types import PERPLEXITY
from evalkit.dsa.json_types import JsonObject, JsonValue


@dataclass(frozen=True, slots=True)
class ItemRow:
    """The gold of one sample, a line of items.jsonl.

    Attributes:
        sample_id: unique in the run.
        task: its cell.
        metric: name in `evalkit.scorers`.
        references: gold answers.
        cluster: samples of one cluster are resampled together.
        meta: length, depth, question and whatever else the task tells.
        stored: the JSON object it was read from; empty for a new one.
    """

    sample_id: str
    task: str
    metric: str
    references: tuple[str, ...]
    cluster: str
    meta: JsonObject
    stored: JsonObject = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def parse(cls, row: JsonObject) -> ItemRow:
        """Raises BadField."""
        get = row.get
        sample_id, task, metric = get("sample_id"), get("task"), get("metric")
        references, cluster = get("references"), get("cluster")
        if not (
            isinstance(sample_id, str)
            and isinstance(task, str)
            and isinstance(metric, str)
            and isinstance(cluster, str)
            and isinstance(references, list)
        ):
            raise _unusable(row, ("sample_id", "task", "metric", "cluster"), "references")
        golds = tuple(gold for gold in references if isinstance(gold, str))
        if len(golds) != len(references):
            raise BadField("references", "not a list of texts")
        meta = optional_fields(row, "meta")
        return cls(sample_id, task, metric, golds, cluster, meta, row)

    def json(self) -> JsonObject:
        """The line on disk; one that was read keeps its keys."""
        if self.stored:
            return self.stored
        return {
            "sample_id": self.sample_id,
            "task": self.task,
            "metric": self.metric,
            "references": list(self.references),
            "cluster": self.cluster,
            "meta": self.meta,
        }

    @property
    def is_read(self) -> bool:
        """Whether the sample is a text that is read: no answer to it is scored in [0, 1]."""
        return self.metric == PERPLEXITY

    def same_as(self, other: ItemRow) -> bool:
        """Whether two lines say the same, in whatever order of keys."""
        ours, theirs = (json.dumps(row.json(), sort_keys=True) for row in (self, other))
        return ours == theirs

    def same_gold_as(self, other: ItemRow) -> bool:
        """Whether answers to both are scored alike and resampled together."""
        return (self.task, self.metric, self.references, self.cluster) == (
            *(other.task, other.metric, other.references, other.cluster),
        )


class SampleRow(NamedTuple):
    """One completion of one arm, a line of samples.jsonl.

    Attributes:
        sample_id: the sample answered.
        task: its cell.
        prompt_sha256: of the prompt's token ids; None where the prompt is not known (imported).
        prompt_tokens: tokens read, None where nobody counted.
        completion_tokens: tokens generated, likewise.
        completion: raw text, special tokens removed; a `Likelihood` of a text that was read.
        finish_reason: ``stop``, ``length``, ``cut_early``, ``error`` or ``unknown`` (imported).
        error: one line where there is no answer.
        reasoning_opened: whether the prompt opens a reasoning block; None where it is not known.
        seconds: wall time, None where it is not known.
        extra: of imported answers, such as the score of a judge.
        max_new_tokens: the most that might be generated; None where it is not known.
        checksum: of the answer when it was recorded (`sealed`); None in rows of an earlier version.
        redacted: whether a secret stood in the completion, which is no longer in it.
        cached: whether the answer was given in another run (`evalkit run --cache`).
    """

    sample_id: str
    task: str
    prompt_sha256: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    completion: str
    finish_reason: str
    error: str | None = None
    reasoning_opened: bool | None = None
    seconds: float | None = None
    extra: JsonObject | None = None
    max_new_tokens: int | None = None
    checksum: str | None = None
    redacted: bool = False
    cached: bool = False

    @classmethod
    def parse(cls, row: JsonObject) -> SampleRow:
        """Raises BadField for what readers rely on; the other fields are taken as they fit."""
        get = row.get
        sample_id, task, completion = get("sample_id"), get("task"), get("completion")
        finish_reason, digest = get("finish_reason"), get("prompt_sha256", 0)
        if not (
            isinstance(sample_id, str)
            and isinstance(task, str)
            and isinstance(completion, str)
            and isinstance(finish_reason, str)
            and (digest is None or isinstance(digest, str))
        ):
            names = ("sample_id", "task", "completion", "finish_reason")
            raise _unusable(row, names, "prompt_sha256")
        read, generated, seconds = get("prompt_tokens"), get("completion_tokens"), get("seconds")
        error, opened, extra = get("error"), get("reasoning_opened"), get("extra")
        budget, checksum = get("max_new_tokens"), get("checksum")
        return cls(
            sample_id,
            task,
            digest,
            read if isinstance(read, int) else None,
            generated if isinstance(generated, int) else None,
            completion,
            finish_reason,
            error if isinstance(error, str) else None,
            opened if isinstance(opened, bool) else None,
            seconds if isinstance(seconds, float) else None,
            extra if isinstance(extra, dict) else None,
            budget if isinstance(budget, int) else None,
            checksum if isinstance(checksum, str) else None,
            get("redacted") is True,
            get("cached") is True,
        )

    def sealed(self) -> SampleRow:
        """With the checksum of its answer: an answer that is edited later is noticed."""
        return self._replace(checksum=self._content())

    @property
    def edited(self) -> bool:
        """Whether the answer is not the one that was recorded."""
        return self.checksum is not None and self.checksum != self._content()

    def _content(self) -> str:
        return digest(self.sample_id, self.completion, self.finish_reason, self.error)

    @property
    def failed(self) -> bool:
        """Whether there is no answer."""
        return self.finish_reason == "error"

    @property
    def tokens(self) -> float:
        """Prompt and answer together; infinite where nobody counted."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return math.inf
        return self.prompt_tokens + self.completion_tokens

    def json(self) -> JsonObject:
        """The line on disk."""
        row: dict[str, JsonValue] = {
            "sample_id": self.sample_id,
            "task": self.task,
            "prompt_sha256": self.prompt_sha256,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "completion": self.completion,
            "finish_reason": self.finish_reason,
            "error": self.error,
        }
        if self.reasoning_opened is not None:
            row["reasoning_opened"] = self.reasoning_opened
        row["seconds"] = self.seconds
        if self.extra:
            row["extra"] = self.extra
        if self.max_new_tokens is not None:
            row["max_new_tokens"] = self.max_new_tokens
        if self.checksum is not None:
            row["checksum"] = self.checksum
        if self.redacted:
            row["redacted"] = True
        if self.cached:
            row["cached"] = True
        return row


class ScoreRow(NamedTuple):
    """The score of one completion, a line of scores.jsonl.

    Attributes:
        sample_id: the sample scored.
        task: its cell.
        metric: the scorer.
        score: in [0, 1]; a failed generation scores 0.
        answer: the text that was scored.
        flags: counts of the report: ``error``, ``empty``, ``length`` (ran out of tokens) ...
        basis: `digest` of the answer, the gold and the rule that were scored; None in rows of an
            earlier version.
        checksum: of the score when it was written (`sealed`); likewise.
    """

    sample_id: str
    task: str
    metric: str
    score: float
    answer: str
    flags: tuple[str, ...] = ()
    basis: str | None = None
    checksum: str | None = None

    @classmethod
    def parse(cls, row: JsonObject) -> ScoreRow:
        """Raises BadField for what readers rely on."""
        get = row.get
        sample_id, task, metric = get("sample_id"), get("task"), get("metric")
        score, answer, flags = get("score"), get("answer"), get("flags")
        if not (
            isinstance(sample_id, str)
            and isinstance(task, str)
            and isinstance(metric, str)
            and (isinstance(score, float) or _is_number(score))
            and isinstance(flags, list)
        ):
            names = ("sample_id", "task", "metric")
            raise _unusable(row, names, "flags" if _is_number(score) else "score")
        answer = answer if isinstance(answer, str) else ""
        labels = tuple(map(str, flags)) if flags else ()
        basis, checksum = get("basis"), get("checksum")
        return cls(
            *(sample_id, task, metric, score, answer, labels),
            basis if isinstance(basis, str) else None,
            checksum if isinstance(checksum, str) else None,
        )

    def sealed(self) -> ScoreRow:
        """With its checksum: a score that is edited later is noticed."""
        return self._replace(checksum=self._content())

    @property
    def edited(self) -> bool:
        """Whether the score is not the one that was written."""
        return self.checksum is not None and self.checksum != self._content()

    def _content(self) -> str:
        score = repr(float(self.score))
        return digest(self.sample_id, score, self.answer, " ".join(self.flags), self.basis)

    def json(self) -> JsonObject:
        """The line on disk."""
        return {
            key: value
            for key, value in self._asdict().items()
            if value is not None or key not in ("basis", "checksum")
        }


def digest(*parts: str | None) -> str:
    """16 hexadecimal digits of the sha256 of some texts; None is not the empty text."""
    text = "".join("-" if part is None else f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _unusable(row: JsonObject, texts: tuple[str, ...], other: str) -> BadField:
    """The first of the fields that hold no text, else the other one."""
    name = next((name for name in texts if not isinstance(row.get(name), str)), other)
    return BadField(name, kind(row.get(name)))


def _is_number(value: JsonValue) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
