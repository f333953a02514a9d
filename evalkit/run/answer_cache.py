"""Answers that run directories share: kept by everything that can move an answer.

One SQLite file, so that several processes may read and write at once and a kill loses at most the
answers of one block. The first answer to a key stays.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import canonical_hash
from evalkit.core.records import digest
from evalkit.core.types import Completion, Prompt
from evalkit.dsa.json_types import JsonObject, as_object

SECONDS = 60.0
"""How long another process is waited for."""

_TABLE = "create table if not exists answers (key text primary key, answer text, checksum text)"
_MOST_ASKED = 500


class Kept(NamedTuple):
    """An answer, and the evidence for its schedule when it was given.

    Attributes:
        completion: under whatever sample id it was given.
        verdict: of `evalkit.engines.base.Engine.engagement`.
    """

    completion: Completion
    verdict: str

    def json(self) -> str:
        """The text in the file."""
        answer = {key: getattr(self.completion, key) for key in _FIELDS}
        return json.dumps({**answer, "verdict": self.verdict}, sort_keys=True)

    @classmethod
    def parse(cls, text: str, checksum: str) -> Kept | None:
        """None for what is not as it was written."""
        if digest(text) != checksum:
            return None
        try:
            fields = as_object(json.loads(text))
            known = {name: fields[name] for name in _FIELDS}
            return cls(Completion("", **known), str(fields["verdict"]))  # type: ignore[arg-type]
        except (ValueError, TypeError, KeyError):
            return None


_FIELDS = ("text", "finish_reason", "prompt_tokens", "completion_tokens", "seconds", "redacted")


class AnswerCache:
    """A folder with answers.

    Attributes:
        path: of the file.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / "answers.sqlite"

    def find(self, keys: Iterable[str]) -> dict[str, Kept]:
        """What is kept under some keys; entries that are torn or were edited are dropped.

        Raises:
            EvalkitError: the file cannot be used; as all methods here.
        """
        answers: dict[str, Kept] = {}
        with self._open() as file:
            wanted = list(keys)
            for start in range(0, len(wanted), _MOST_ASKED):
                asked = wanted[start : start + _MOST_ASKED]
                marks = ",".join("?" * len(asked))
                rows = file.execute(f"select * from answers where key in ({marks})", asked)  # noqa: S608
                for key, text, checksum in rows.fetchall():
                    kept = Kept.parse(text, checksum)
                    if kept is None:
                        file.execute("delete from answers where key = ?", (key,))
                    else:
                        answers[key] = kept
        return answers

    def add(self, answers: Mapping[str, Kept]) -> None:
        """Keep answers; those whose key is there stay as they are."""
        if not answers:
            return
        texts = {key: kept.json() for key, kept in answers.items()}
        with self._open() as file:
            rows = [(key, text, digest(text)) for key, text in texts.items()]
            file.executemany("insert or ignore into answers values (?, ?, ?)", rows)

    def size(self) -> tuple[int, int]:
        """Number of answers, and bytes on the disk; nothing where there is no cache."""
        if not self.path.is_file():
            return 0, 0
        with self._open() as file:
            (count,) = file.execute("select count(*) from answers").fetchone()
        return int(count), self.path.stat().st_size

    def clear(self) -> int:
        """Drop all answers; how many there were."""
        if not self.path.is_file():
            return 0
        with self._open() as file:
            count = file.execute("delete from answers").rowcount
        with self._open(commit=False) as file:
            file.execute("vacuum")
        return count

    @contextmanager
    def _open(self, *, commit: bool = True) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            level: Literal["IMMEDIATE"] | None = "IMMEDIATE" if commit else None
            with closing(
                sqlite3.connect(self.path, timeout=SECONDS, isolation_level=level)
            ) as file:
                file.execute(_TABLE)
                with file:
                    yield file
        except (sqlite3.Error, OSError) as error:
            raise EvalkitError(
                f"{self.path}: the cache cannot be used: {error}; run without --cache, or remove"
                " the file"
            ) from None


@dataclass(slots=True)
class ArmAnswers:
    """The part of a cache that holds the answers of one arm.

    Attributes:
        cache: the whole.
        settings: `canonical_hash` of what moves the arm's answers beside the prompt.
    """

    cache: AnswerCache
    settings: str
    _new: dict[str, Completion] = field(default_factory=dict)

    def find(self, prompts: Sequence[Prompt]) -> dict[str, Kept]:
        """Answers by sample id."""
        keys = {self._key(prompt): prompt.sample.id for prompt in prompts if _keeps(prompt)}
        return {keys[key]: kept for key, kept in self.cache.find(keys).items()}

    def note(self, prompt: Prompt, completion: Completion) -> None:
        """An answer to be kept; failures and what a server cut short are not."""
        if _keeps(prompt) and completion.finish_reason in ("stop", "length"):
            self._new[self._key(prompt)] = completion

    def keep(self, verdict: str) -> None:
        """Keep what was noted, unless it was answered under another schedule than the arm's."""
        if not verdict.startswith("not engaged"):
            self.cache.add({key: Kept(answer, verdict) for key, answer in self._new.items()})
        self._new.clear()

    def _key(self, prompt: Prompt) -> str:
        sample = prompt.sample
        asked: JsonObject = {
            "settings": self.settings,
            "tokens": prompt.sha256,
            "turns": [digest(sample.text), digest(sample.answer_prefix), sample.chat],
            "template_arguments": prompt.template_arguments,
            "stop": list(sample.stop),
            "budget": [sample.max_new_tokens, prompt.reasoning_tokens],
            "reasoning": [prompt.reasoning_opened, prompt.reasoning_closed],
        }
        return canonical_hash(asked)


def _keeps(prompt: Prompt) -> bool:
    """Whether the answer hangs on nothing but the prompt; second questions quote the first."""
    return prompt.sample.followup is None and not prompt.sample.scored_from
