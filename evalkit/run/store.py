"""The run directory: append-only records that survive a kill, one writer at a time.

run.json                 what was asked and what answered (written atomically)
recipe.toml              of a run that was asked for without one
items.jsonl              the gold: one line per sample, shared by all arms
arms/<slug>/samples.jsonl  raw completions, appended batch by batch
arms/<slug>/first.jsonl    first answers of samples that are asked twice
arms/<slug>/scores.jsonl   scores, rewritten as a whole

What the lines hold is in `evalkit.core.records`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.files import (
    append_jsonl,
    dumps,
    read_jsonl,
    read_object,
    write_atomic,
    write_jsonl,
    write_object,
    writing,
)
from evalkit.core.json_fields import BadField
from evalkit.core.records import FORMAT, ItemRow, RunRecord, SampleRow, ScoreRow
from evalkit.core.types import Completion, Prompt


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

    def read_runs(self) -> list[RunRecord]:
        """run.json of every directory that is read."""
        return [self.read_run()]

    def read_run(self) -> RunRecord:
        """run.json.

        Raises:
            EvalkitError: there is none, or it is damaged; names the field.
        """
        path = self.path / "run.json"
        try:
            data = read_object(path)
            run = RunRecord.parse(data)
        except FileNotFoundError:
            raise EvalkitError(f"{self.path}: no run here (run.json is missing)") from None
        except BadField as error:
            raise EvalkitError(
                f"{path}: not the run.json of an evaluation: {error.field}: {error.message}"
            ) from None
        if data.get("format", FORMAT) != FORMAT:
            raise EvalkitError(
                f"{path}: format {data['format']}, this version reads {FORMAT}: use the version"
                " that wrote it"
            )
        return run

    def write_run(self, run: RunRecord) -> None:
        """Replace run.json atomically."""
        write_object(self.path / "run.json", run.stored, allow_nan=True)

    @property
    def recipe(self) -> Path:
        """The recipe of a run that was asked for without one."""
        return self.path / "recipe.toml"

    def write_recipe(self, text: str) -> None:
        """Replace recipe.toml atomically."""
        write_atomic(self.recipe, text)

    def _dropped(self) -> frozenset[str]:
        """Cells that the recipe has no more; none where there is no run."""
        return self.read_run().dropped if self.exists else frozenset()

    # -- items ----------------------------------------------------------------------------------

    def read_items(self) -> dict[str, ItemRow]:
        """Gold by sample id, in plan order; not of cells that the recipe has no more.

        Raises:
            EvalkitError: a line is damaged, or two different ones have one id.
        """
        path, dropped, items = self.path / "items.jsonl", self._dropped(), dict[str, ItemRow]()
        for row in read_jsonl(path, ItemRow.parse):
            if row.task in dropped:
                continue
            old = items.setdefault(row.sample_id, row)
            if old is not row and not old.same_as(row):
                raise EvalkitError(
                    f"{path}: two different samples are called {row.sample_id}: remove the line"
                    " that does not belong there"
                )
        return items

    def forget_items(self) -> None:
        """Drop the gold of a run that nobody has answered."""
        (self.path / "items.jsonl").unlink(missing_ok=True)

    def add_items(self, prompts: Iterable[Prompt], known: Mapping[str, ItemRow]) -> None:
        """Append the gold of samples that are not `known`.

        Raises:
            EvalkitError: a known sample came out differently this time.
        """
        new = []
        for prompt in prompts:
            item = item_of(prompt)
            old = known.get(item.sample_id)
            if old is None:
                new.append(item.json())
            elif not item.same_as(old):
                raise EvalkitError(
                    f"{self.path}: sample {item.sample_id} is not what it was when this run"
                    " began (data, tokenizer or generator changed): use a new directory"
                )
        append_jsonl(self.path / "items.jsonl", new)

    # -- arms -----------------------------------------------------------------------------------

    def arm_dir(self, arm: str) -> Path:
        """Directory of an arm."""
        return self.path / "arms" / slug(arm)

    def read_samples(self, arm: str, call: str = "samples") -> dict[str, SampleRow]:
        """The completion of every sample id; a later line replaces one that failed.

        Those to cells that the recipe has no more are left out.

        Raises:
            EvalkitError: a line is damaged, or a sample has two different answers.
        """
        path = self.arm_dir(arm) / f"{call}.jsonl"
        dropped, samples = self._dropped(), dict[str, SampleRow]()
        for row in read_jsonl(path, SampleRow.parse):
            if row.task in dropped:
                continue
            old = samples.get(row.sample_id)
            if old is not None and not old.failed and old != row:
                raise EvalkitError(
                    f"{path}: two different answers to {row.sample_id}: nobody records that, so"
                    " remove the line that does not belong there"
                )
            samples[row.sample_id] = row
        return samples

    def answered_ids(self, arm: str) -> dict[str, str]:
        """The cell of every sample that an arm has answered, of cells that are out, too."""
        rows = read_jsonl(self.arm_dir(arm) / "samples.jsonl", SampleRow.parse)
        return {row.sample_id: row.task for row in rows}

    def add_samples(self, arm: str, rows: Iterable[SampleRow], call: str = "samples") -> None:
        """Append completions and make sure that they are on disk."""
        append_jsonl(self.arm_dir(arm) / f"{call}.jsonl", (row.json() for row in rows))

    def read_scores(self, arm: str) -> dict[str, ScoreRow]:
        """Scores by sample id, not of cells that the recipe has no more."""
        rows = read_jsonl(self.arm_dir(arm) / "scores.jsonl", ScoreRow.parse)
        dropped = self._dropped()
        return {row.sample_id: row for row in rows if row.task not in dropped}

    def write_scores(self, arm: str, scores: Iterable[ScoreRow]) -> None:
        """Replace the scores of an arm atomically."""
        write_jsonl(self.arm_dir(arm) / "scores.jsonl", (row.json() for row in scores))

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
            except BlockingIOError:
                handle.seek(0)
                owner = handle.read().strip() or "unknown"
                raise EvalkitError(
                    f"{self.path}: another process (pid {owner}) is writing to this run: wait for"
                    " it, or use another --out"
                ) from None
            except OSError as error:
                raise EvalkitError(
                    f"{self.path}: cannot be locked ({error.strerror}): put the run directory on a"
                    " file system with locks, or mount this one with them"
                ) from None
            with writing(self.path):
                handle.truncate(0)
                handle.write(str(os.getpid()))
                handle.flush()
            yield


def item_of(prompt: Prompt) -> ItemRow:
    """What the gold file keeps of a sample."""
    sample = prompt.sample
    return ItemRow(
        sample_id=sample.id,
        task=sample.task,
        metric=sample.metric,
        references=sample.references,
        cluster=sample.cluster or sample.id,
        meta=json.loads(dumps(sample.meta)),
    )


def sample_row(prompt: Prompt, completion: Completion) -> SampleRow:
    """What the records keep of a completion."""
    return SampleRow(
        sample_id=completion.sample_id,
        task=prompt.sample.task,
        prompt_sha256=prompt.sha256,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        completion=completion.text,
        finish_reason=completion.finish_reason,
        error=completion.error,
        reasoning_opened=prompt.reasoning_opened,
        seconds=round(completion.seconds, 4),
        max_new_tokens=prompt.max_new_tokens,
        redacted=completion.redacted,
    ).sealed()


def slug(name: str) -> str:
    """A directory name for an arm; different names never share one."""
    base = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.").lower() or "arm"
    if base == name:
        return base
    from hashlib import sha256

    return f"{base}-{sha256(name.encode()).hexdigest()[:6]}"
