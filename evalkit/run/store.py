"""The run directory: append-only records that survive a kill, one writer at a time.

run.json                 what was asked and what answered (written atomically)
items.jsonl              the gold: one line per sample, shared by all arms
arms/<slug>/samples.jsonl  raw completions, appended batch by batch
arms/<slug>/first.jsonl    first answers of samples that are asked twice
arms/<slug>/scores.jsonl   scores, rewritten as a whole
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.core.files import append_jsonl, dumps, read_jsonl, write_atomic, writing
from evalkit.core.reasoning import opens_reasoning
from evalkit.core.types import Completion, Prompt, SampleScore

FORMAT = 1
"""Of run.json; a higher one was written by a later version."""

# What readers rely on in every row, by the kind of the file.
ITEM = {"task": str, "metric": str, "references": list, "cluster": str}
ANSWER = {"task": str, "completion": str, "finish_reason": str, "prompt_sha256": str | None}
SCORE = {"task": str, "metric": str, "score": int | float, "flags": list}


class RunStore:
    """Reads and writes one run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # -- run.json -------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / "run.json").is_file()

    @property
    def answered(self) -> bool:
        """Whether any arm has an answer."""
        return any(path.stat().st_size for path in self.path.glob("arms/*/*.jsonl"))

    def read_run(self) -> dict[str, Any]:
        """run.json.

        Raises:
            EvalkitError: there is none, or it is damaged.
        """
        path = self.path / "run.json"
        try:
            run: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise EvalkitError(f"{self.path}: no run here (run.json is missing)") from None
        except (ValueError, OSError) as error:
            raise EvalkitError(f"{path}: damaged: {error}") from None
        if not _is_run(run):
            raise EvalkitError(f"{path}: not the run.json of an evaluation")
        if run.get("format", FORMAT) != FORMAT:
            raise EvalkitError(
                f"{path}: format {run['format']}, this version reads {FORMAT}: use the version"
                " that wrote it"
            )
        return run

    def write_run(self, run: Mapping[str, Any]) -> None:
        """Replace run.json atomically."""
        write_atomic(self.path / "run.json", json.dumps(run, indent=2, ensure_ascii=False) + "\n")

    # -- items ----------------------------------------------------------------------------------

    def read_items(self) -> dict[str, dict[str, Any]]:
        """Gold by sample id, in plan order."""
        rows = read_jsonl(self.path / "items.jsonl", ITEM)
        return {row["sample_id"]: row for row in rows}

    def forget_items(self) -> None:
        """Drop the gold of a run that nobody has answered."""
        (self.path / "items.jsonl").unlink(missing_ok=True)

    def add_items(self, prompts: Iterable[Prompt], known: Mapping[str, Mapping[str, Any]]) -> None:
        """Append the gold of samples that are not `known`.

        Raises:
            EvalkitError: a known sample came out differently this time.
        """
        fresh = []
        for prompt in prompts:
            item = item_of(prompt)
            old = known.get(item["sample_id"])
            if old is None:
                fresh.append(item)
            elif json.dumps(old, sort_keys=True) != json.dumps(item, sort_keys=True):
                raise EvalkitError(
                    f"{self.path}: sample {item['sample_id']} is not what it was when this run"
                    " began (data, tokenizer or generator changed): use a new directory"
                )
        append_jsonl(self.path / "items.jsonl", fresh)

    # -- arms -----------------------------------------------------------------------------------

    def arm_dir(self, arm: str) -> Path:
        """Directory of an arm."""
        return self.path / "arms" / slug(arm)

    def read_samples(self, arm: str, call: str = "samples") -> dict[str, dict[str, Any]]:
        """Latest completion per sample id; a later line replaces an earlier (failed) one."""
        rows = read_jsonl(self.arm_dir(arm) / f"{call}.jsonl", ANSWER)
        return {row["sample_id"]: row for row in rows}

    def add_samples(
        self, arm: str, rows: Iterable[Mapping[str, Any]], call: str = "samples"
    ) -> None:
        """Append completions and make sure that they are on disk."""
        append_jsonl(self.arm_dir(arm) / f"{call}.jsonl", rows)

    def read_scores(self, arm: str) -> dict[str, dict[str, Any]]:
        """Scores by sample id."""
        rows = read_jsonl(self.arm_dir(arm) / "scores.jsonl", SCORE)
        return {row["sample_id"]: row for row in rows}

    def write_scores(self, arm: str, scores: Iterable[SampleScore]) -> None:
        """Replace the scores of an arm atomically."""
        lines = "".join(dumps(asdict(score)) + "\n" for score in scores)
        write_atomic(self.arm_dir(arm) / "scores.jsonl", lines)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Only one process writes here; the lock dies with its process.

        Raises:
            EvalkitError: another process holds it, or nothing can be written here.
        """
        import fcntl

        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("a+", encoding="utf-8")
        with lock as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                handle.seek(0)
                owner = handle.read().strip() or "unknown"
                raise EvalkitError(
                    f"{self.path}: another process (pid {owner}) is writing to this run: wait for"
                    " it, or use another --out"
                ) from None
            with writing(self.path):
                handle.truncate(0)
                handle.write(str(os.getpid()))
                handle.flush()
            yield


def item_of(prompt: Prompt) -> dict[str, Any]:
    """What the gold file keeps of a sample."""
    sample = prompt.sample
    return {
        "sample_id": sample.id,
        "task": sample.task,
        "metric": sample.metric,
        "references": list(sample.references),
        "cluster": sample.cluster or sample.id,
        "meta": json.loads(dumps(dict(sample.meta))),
    }


def sample_row(prompt: Prompt, completion: Completion) -> dict[str, Any]:
    """One line of samples.jsonl."""
    return {
        "sample_id": completion.sample_id,
        "task": prompt.sample.task,
        "prompt_sha256": prompt.sha256,
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "completion": completion.text,
        "finish_reason": completion.finish_reason,
        "error": completion.error,
        "reasoning_opened": opens_reasoning(prompt),
        "seconds": round(completion.seconds, 4),
    }


def slug(name: str) -> str:
    """A directory name for an arm; different names never share one."""
    base = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.").lower() or "arm"
    if base == name:
        return base
    from hashlib import sha256

    return f"{base}-{sha256(name.encode()).hexdigest()[:6]}"


def _is_run(run: Any) -> bool:
    """Whether a document has what every reader of run.json relies on."""
    if not isinstance(run, dict) or not isinstance(run.get("arms"), list):
        return False
    return (
        all(isinstance(arm, dict) and isinstance(arm.get("name"), str) for arm in run["arms"])
        and isinstance(run.get("recipe"), dict)
        and isinstance(run.get("tasks"), list)
    )
