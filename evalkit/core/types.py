"""The nouns of an evaluation: Sample, Prompt, Completion. Frozen, plain data.

What is kept of them on disk is in `evalkit.core.records`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from evalkit.dsa.json_types import JsonObject

PERPLEXITY = "perplexity"
"""Metric of samples that are read instead of answered."""


@dataclass(frozen=True, slots=True)
class Followup:
    """A second question that quotes the answer to the first (reason first, then answer).

    Attributes:
        text: the user's turn, with `PLACE` where the first answer goes.
        max_new_tokens: budget of the second answer, the one that is scored.
        answer_prefix: as in `Sample`.
    """

    PLACE: ClassVar[str] = "$COT$"

    text: str
    max_new_tokens: int
    answer_prefix: str = ""

    def fill(self, first_answer: str) -> str:
        """The user's turn with the first answer, stripped, in its place (the last one)."""
        before, _, after = self.text.rpartition(self.PLACE)
        return before + first_answer.strip() + after


@dataclass(frozen=True, slots=True)
class Sample:
    """One question of one benchmark, before any chat template.

    Attributes:
        id: unique within a run, ``"<task>/<index>"`` (for example ``"niah_single_1@512/7"``).
        task: the cell that is scored and reported (for example ``"niah_single_1@512"``).
        text: the user's turn.
        answer_prefix: text at the very start of the assistant's turn, part of the prompt.
        references: gold answers; their meaning is the metric's.
        metric: name in `evalkit.scorers`.
        max_new_tokens: budget of the answer.
        cluster: samples of one cluster share a haystack and are resampled together.
        stop: strings that end the answer (cut off, not part of it).
        chat: False exempts the sample from the chat template whatever the recipe says.
        meta: what the report wants to know (length, depth, question ...); JSON values only.
        followup: a second call whose answer is scored instead, or None.
        scored_from: where it is not 0, nothing is generated: the text is read, and its tokens from
            this one on (0-based) are scored by their log-probabilities.
    """

    id: str
    task: str
    text: str
    references: tuple[str, ...]
    metric: str
    max_new_tokens: int
    answer_prefix: str = ""
    cluster: str = ""
    stop: tuple[str, ...] = ()
    chat: bool = True
    meta: JsonObject = field(default_factory=dict)
    followup: Followup | None = None
    scored_from: int = 0


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered sample: what the engine reads.

    Attributes:
        sample: the sample it was rendered from.
        token_ids: the whole prompt, special tokens included.
        text: the same as text, for servers that take no token ids.
        sha256: hash of the token ids; equal hashes mean equal prompts.
        reasoning_tokens: tokens that a reasoning block may take besides the answer's own budget.
        reasoning_opened: whether the assistant's turn begins within a reasoning block.
        reasoning_closed: whether a block that the template opened was closed before the answer
            prefix.
        template_arguments: what the chat template was given, for servers that render by themselves.
    """

    sample: Sample
    token_ids: tuple[int, ...]
    text: str
    sha256: str
    reasoning_tokens: int = 0
    reasoning_opened: bool = False
    reasoning_closed: bool = False
    template_arguments: JsonObject = field(default_factory=dict)

    @property
    def max_new_tokens(self) -> int:
        """The most that may be generated: reasoning and answer; nothing of a text that is read."""
        if self.sample.scored_from:
            return 0
        return self.reasoning_tokens + self.sample.max_new_tokens

    @property
    def size(self) -> int:
        """Positions that it takes: its tokens and the most that may be generated behind them."""
        return len(self.token_ids) + self.max_new_tokens


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine returned for one prompt.

    Attributes:
        sample_id: the sample answered.
        text: raw completion, special tokens removed, stop strings cut; of a text that was read,
            `evalkit.core.records.likelihood.Likelihood` as text.
        finish_reason: ``"stop"``, ``"length"``, ``"cut_early"`` (before the budget) or ``"error"``.
        prompt_tokens: tokens read.
        completion_tokens: tokens generated.
        seconds: wall time of the request (of the batch, divided evenly, for batched engines).
        error: one line when ``finish_reason == "error"``, else None.
        redacted: whether the text held a secret, which is no longer in it.
    """

    sample_id: str
    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    error: str | None = None
    redacted: bool = False


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that tasks and prompts use."""

    bos_token_id: int | None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Text to token ids."""
        ...

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = False) -> str:
        """Token ids to text."""
        ...


class Renderer(Protocol):
    """Turns samples into prompts; tasks ask it how long a prompt will be."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Of the model."""
        ...

    def render(self, sample: Sample) -> Prompt:
        """The prompt of a sample: chat template (unless exempt), then the answer prefix."""
        ...

    def count(self, sample: Sample) -> int:
        """Tokens of `render(sample)`."""
        ...

    def overhead(self, *, chat: bool = True) -> int:
        """Tokens that the template and special tokens add around the text."""
        ...
