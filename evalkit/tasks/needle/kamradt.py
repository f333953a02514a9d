"""The first needle test: one sentence about San Francisco in Paul Graham's essays.

Needle, question, grid and the way the needle is put into the text are those of
github.com/gkamradt/LLMTest_NeedleInAHaystack; the wording around them is ours, and key phrases take
the place of its judge (see data_cards/needle.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import Strict
from evalkit.core.types import Renderer, Sample
from evalkit.data.essays import essays
from evalkit.tasks.base import TaskKind
from evalkit.tasks.needle.config import Percent, Positive, Spacing

NEEDLE = (
    "\nThe best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny"
    " day.\n"
)
QUESTION = "What is the best thing to do in San Francisco?"
PHRASES = ("sandwich", "Dolores Park")

INTRO = "Read the text below; a question about it follows."
RULE = "Answer from the text alone, short and direct."

CHARACTERS_PER_TOKEN = 8
"""More than enough text for so many tokens of English; more is taken where it is not."""


class Lengths(Strict):
    """Lengths at even distances, both ends included, rounded.

    Attributes:
        first: the shortest.
        last: the longest.
        count: how many.
    """

    first: Positive
    last: Positive
    count: Annotated[int, Field(ge=2)]

    @model_validator(mode="after")
    def _grows(self) -> Lengths:
        if self.last - self.first < self.count - 1:
            raise ValueError("last is too near to first for so many lengths")
        return self

    def values(self) -> tuple[int, ...]:
        """The lengths in growing order."""
        gap = (self.last - self.first) / (self.count - 1)
        return tuple(round(self.first + i * gap) for i in range(self.count))


LengthList = Annotated[tuple[Positive, ...], Field(min_length=1)]
Sizes = Annotated[
    Annotated[LengthList, Tag("list")] | Annotated[Lengths, Tag("grid")],
    Discriminator(lambda value: "grid" if isinstance(value, dict | Lengths) else "list"),
]
"""Lengths one by one, or as an even grid."""


class KamradtConfig(Strict):
    """The original grid: a cell for every length, a sample for every depth.

    Attributes:
        name: of the cells, ``<name>@<length>``.
        lengths: of the text with its needle and `buffer`, in tokens.
        depths: of the needle, in percent of the text's tokens.
        buffer: tokens of the length that are left for the question, the template and the answer.
        needle: the sentence, with the white space around it.
        question: what is asked.
        phrases: an answer that holds all of them is right; case does not count.
        path: text file of the haystack, beside the recipe; Paul Graham's essays if not given.
        max_new_tokens: budget of the answer, within the buffer.
    """

    kind: Literal["needle_kamradt"] = "needle_kamradt"
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")] = "kamradt"
    lengths: Sizes = Lengths(first=1000, last=16000, count=35)
    depths: Annotated[tuple[Percent, ...], Field(min_length=1)] | Spacing = Spacing(count=35)
    buffer: Positive = 200
    needle: Annotated[str, Field(pattern=r"\S")] = NEEDLE
    question: Annotated[str, Field(pattern=r"\S")] = QUESTION
    phrases: tuple[Annotated[str, Field(pattern=r"\S")], ...] = Field(PHRASES, min_length=1)
    path: str | None = None
    max_new_tokens: Positive = 64

    @field_validator("lengths", "depths")
    @classmethod
    def _once(cls, values: object) -> object:
        if isinstance(values, tuple) and len(set(values)) < len(values):
            raise ValueError("an entry occurs twice")
        return values

    @model_validator(mode="after")
    def _needle_answers(self) -> KamradtConfig:
        text = " ".join(self.needle.split()).lower()
        for phrase in self.phrases:
            if " ".join(phrase.split()).lower() not in text:
                raise ValueError(f"the phrase {phrase!r} is not in the needle")
        return self

    def percents(self) -> tuple[float, ...]:
        """The depths as numbers."""
        return self.depths.depths() if isinstance(self.depths, Spacing) else self.depths

    def sizes(self) -> tuple[int, ...]:
        """The lengths as numbers."""
        return self.lengths.values() if isinstance(self.lengths, Lengths) else self.lengths


@dataclass(frozen=True)
class KamradtTask:
    """All depths of one length; sample `i` has depth `i` of the recipe's list.

    All of them are read in one text, as in the original, and are one unit.

    Attributes:
        config: the recipe section.
        length: in tokens.
        text: of the haystack ``path``, or None for the essays.
    """

    config: KamradtConfig
    length: int
    text: str | None = None
    _haystacks: dict[int, tuple[Renderer, list[int]]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def name(self) -> str:
        """``<name>@<length>``."""
        return f"{self.config.name}@{self.length}"

    @property
    def deviations(self) -> Mapping[str, Any]:
        """What differs from the original defaults."""
        official = {"buffer": 200, "needle": NEEDLE, "question": QUESTION, "phrases": PHRASES}
        used = {k: getattr(self.config, k) for k in official}
        changed = {k: v for k, v in used.items() if v != official[k]}
        return changed | ({"haystack": self.config.path} if self.config.path else {})

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.config.percents())

    def sample(self, index: int, renderer: Renderer) -> Sample:
        """Sample `index`.

        Raises:
            EvalkitError: there is no such sample, the length is too short, the buffer does not
                hold question, template and answer, or the essays cannot be had; names the cell.
        """
        if not 0 <= index < len(self):
            raise EvalkitError(f"{self.name}: no sample {index} among {len(self)}")
        try:
            sample = self._sample(index, renderer)
        except EvalkitError as error:
            raise EvalkitError(f"{self.name}: {error}") from None
        used = len(renderer.render(sample).token_ids)
        if used + sample.max_new_tokens > self.length:
            raise EvalkitError(
                f"{self.name}: the prompt takes {used} tokens and the answer may take"
                f" {sample.max_new_tokens}: a buffer of {self.config.buffer} is too small"
            )
        return sample

    def _sample(self, index: int, renderer: Renderer) -> Sample:
        config, encode = self.config, renderer.tokenizer.encode
        depth = config.percents()[index]
        needle = len(encode(config.needle, add_special_tokens=False))
        room = self.length - config.buffer - needle
        if room < 1:
            raise EvalkitError(
                f"too short for this task: {config.buffer} tokens of buffer and {needle} of the"
                f" needle leave no text"
            )
        haystack = self._tokens(room, renderer)
        periods = {encode(text, add_special_tokens=False)[-1] for text in (".", "word.")}
        at = place(haystack, depth, periods)
        before = renderer.tokenizer.decode(haystack[:at])
        after = renderer.tokenizer.decode(haystack[at:]).rstrip("\ufffd")
        text = f"{before}{config.needle}{after}"
        return Sample(
            id=f"{self.name}/{index}",
            task=self.name,
            text=f"{INTRO}\n\n{text}\n\n{config.question} {RULE}",
            references=config.phrases,
            metric="needle_phrases",
            max_new_tokens=config.max_new_tokens,
            cluster=f"{self.name}/haystack",
            meta={
                "length": self.length,
                "question": config.question,
                "depth": depth,
                "depths": [round(100 * at / room, 1)],
                "units": room,
            },
        )

    def _tokens(self, count: int, renderer: Renderer) -> list[int]:
        """The first tokens of the text, which is said again where it is too short."""
        kept = self._haystacks.get(id(renderer))
        if kept is None:
            whole = self.text if self.text is not None else essays().text
            text = whole
            characters = count * CHARACTERS_PER_TOKEN
            while True:
                while len(text) < characters:
                    text = f"{text}\n{whole}"
                ids = renderer.tokenizer.encode(text[:characters], add_special_tokens=False)
                if len(ids) > count + 8:  # the last tokens may not be those of a longer text
                    break
                characters *= 2
            kept = self._haystacks[id(renderer)] = (renderer, ids[:count])
        return kept[1]


def place(tokens: Sequence[int], depth: float, periods: set[int]) -> int:
    """Where a needle of that depth stands: behind the full stop before it, at 100 behind all.

    Without a full stop before it the needle stands at the very start, as in the original.
    """
    if depth == 100:
        return len(tokens)
    at = int(len(tokens) * (depth / 100))
    while at and tokens[at - 1] not in periods:
        at -= 1
    return at


def build(config: KamradtConfig, base_dir: Path) -> list[KamradtTask]:
    """The cells of a recipe section, one for every length; nothing is fetched yet.

    Raises:
        EvalkitError: the haystack file beside the recipe cannot be used.
    """
    text = None
    if config.path is not None:
        path = base_dir / config.path
        try:
            text = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise EvalkitError(f"{path}: cannot be read as a haystack: {error}") from None
        if not text:
            raise EvalkitError(f"{path}: a haystack without text")
    return [KamradtTask(config, length, text) for length in config.sizes()]


KIND = TaskKind(
    config=KamradtConfig,
    build=build,
    chooses=("lengths",),
    descriptions=lambda: {"kamradt": "the first needle test: its needle, grid and essays"},
    columns={"kamradt": "needle"},
)
