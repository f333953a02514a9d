"""What the sample browser of the page shows: samples with the answers of every arm.

Two parts: the index (scores, flags, which arms answered alike), by which samples are found and
sorted, and the texts, which the page holds compressed or asks a server for one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from evalkit.analysis.compare import RunComparison
from evalkit.core.records import ItemRow, SampleRow, ScoreRow
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.run.current_scores import current_scores
from evalkit.run.store import RunStore

UNKNOWN = "the records hold a hash of every prompt, not its text"


class Prompts(Protocol):
    """Where the texts of prompts come from."""

    @property
    def missing(self) -> str:
        """Why there are none; empty as long as none was missed."""
        ...

    def text(self, sample_id: str, sha256: str | None) -> str | None:
        """The prompt with that hash; None where it is not known."""
        ...


class NoPrompts:
    """The texts of no prompt are known."""

    missing = UNKNOWN

    def text(self, sample_id: str, sha256: str | None) -> None:  # noqa: ARG002 - as `Prompts`
        """Never one."""
        return


Answer = tuple[str, str | None]
"""The scored text, and the raw one where more than white space around it was taken away before
scoring; of a failed answer, why it failed."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of one sample.

    Attributes:
        question: empty where the task tells none.
        gold: answers that count as right.
        answers: the different ones.
        prompt: what all arms read; None where it is not known.
    """

    question: str
    gold: tuple[str, ...]
    answers: tuple[Answer, ...]
    prompt: str | None = None

    @property
    def parts(self) -> list[str]:
        """All texts but the prompt."""
        pairs = [text for pair in self.answers for text in pair if text is not None]
        return [self.question, *self.gold, *pairs]

    def json(self, most: int | None = None) -> list[JsonValue]:
        """[question, gold, answers, prompt], all texts but the prompt cut to `most` characters."""
        answers = [[_cut(text, most) for text in pair] for pair in self.answers]
        gold = [_cut(text, most) for text in self.gold]
        return [_cut(self.question, most), gold, answers, self.prompt]


def _cut(text: str | None, most: int | None) -> str | None:
    if text is None or most is None or len(text) <= most:
        return text
    return f"{text[:most]} … ({len(text):,} characters)"


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of a run and what every arm made of them.

    Attributes:
        arms: names, the baseline first.
        items: gold of the samples that somebody answered, by id.
        answers: completions by sample id, arm by arm.
        scores: scores by sample id, arm by arm.
        prompts: their texts.
    """

    arms: list[str]
    items: Mapping[str, ItemRow]
    answers: Sequence[Mapping[str, SampleRow]]
    scores: Sequence[Mapping[str, ScoreRow]]
    prompts: Prompts = field(default_factory=NoPrompts)

    @property
    def ids(self) -> list[str]:
        """Of the samples, in the order of the run."""
        return list(self.items)

    def tells(self, sample_id: str) -> bool:
        """Whether arms differ on a sample, or one failed to answer."""
        rows = [rows[sample_id] for rows in self.scores if sample_id in rows]
        flags = {flag for row in rows for flag in row.flags} & {"error", "unclosed", "empty"}
        return len({row.score for row in rows}) > 1 or bool(flags)

    def index(self, ids: Sequence[str]) -> JsonObject:
        """What samples are found by: {arms, tasks, rows}.

        A row is [id, task, length, depth, which answer per arm (-1: none), score per arm in
        points, flags per arm]; answers are numbered as in `texts`.
        """
        tasks = list(dict.fromkeys(self.items[i].task for i in ids))
        places = {task: k for k, task in enumerate(tasks)}
        rows = [self._index_row(i, places[self.items[i].task]) for i in ids]
        return {"arms": list(self.arms), "tasks": list(tasks), "rows": rows}

    def _index_row(self, sample_id: str, task: int) -> list[JsonValue]:
        _, which = self.distinct(sample_id)
        rows = [rows.get(sample_id) for rows in self.scores]
        flags = [" ".join(row.flags) if row else "" for row in rows]
        meta = self.items[sample_id].meta
        length, depth = (_plain(meta.get(key)) for key in ("length", "depth"))
        return [
            sample_id,
            task,
            self.tokens(sample_id) if length is None else length,
            depth,
            list(which),
            [None if row is None else round(100 * float(row.score), 2) for row in rows],
            list(flags) if any(flags) else [],
        ]

    def tokens(self, sample_id: str) -> int | None:
        """Tokens of the prompt, as the first arm counted that answered."""
        rows = (rows[sample_id] for rows in self.answers if sample_id in rows)
        return next((row.prompt_tokens for row in rows), None)

    def distinct(self, sample_id: str) -> tuple[list[Answer], list[int]]:
        """Different answers to a sample, and which of them each arm gave (-1: none)."""
        numbers: dict[Answer, int] = {}
        which = []
        for answers, scores in zip(self.answers, self.scores, strict=True):
            score, row = scores.get(sample_id), answers.get(sample_id)
            if score is None:
                which.append(-1)
                continue
            raw = None if row is None else row.completion if row.error is None else row.error
            scored = score.answer.strip()
            same = raw is None or raw.strip() == scored
            which.append(numbers.setdefault((scored, None if same else raw), len(numbers)))
        return list(numbers), which

    def texts(self, sample_id: str) -> Texts:
        """The texts of a sample, without its prompt."""
        item = self.items[sample_id]
        question = str(item.meta.get("question") or item.meta.get("input") or "")
        return Texts(question, item.references, tuple(self.distinct(sample_id)[0]))

    def prompt(self, sample_id: str) -> str | None:
        """The prompt that was read, where it is known."""
        rows = (rows[sample_id] for rows in self.answers if sample_id in rows)
        digest = next((row.prompt_sha256 for row in rows if row.prompt_sha256), None)
        return self.prompts.text(sample_id, digest)


def samples(store: RunStore, comparison: RunComparison, prompts: Prompts | None = None) -> Samples:
    """The samples of a run that an arm answered; none that is read only."""
    base = comparison.result.baseline
    names = [base, *(arm.name for arm in comparison.arms if arm.name != base)]
    names = [name for name in names if name in comparison.scored]
    current = current_scores(store, names, comparison.settings.exclude)
    scores = [current[name].scores for name in names]
    items = {
        i: item
        for i, item in store.read_items().items()
        if not item.is_read and any(i in rows for rows in scores)
    }
    answers = [current[name].answers for name in names]
    return Samples(names, items, answers, scores, prompts or NoPrompts())


def _plain(value: JsonValue) -> JsonValue:
    """A number, or None."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
