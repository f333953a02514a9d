"""A behavioural probe: greedy continuations of prompts that are longer than a selection.

No server cooperation is needed. Up to `Layout.dense_tokens` tokens every schedule is exact, so the
prompts are longer. Continuations that are equal under two schedules say that the setting probably
did nothing; different ones say that it did something. Between two starts of one server they say
what repetition alone does.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalkit.core.secrets import redact
from evalkit.core.types import Completion, Prompt, Sample
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import ChatTokenizer

_WORDS = (
    *("the", "grass", "is", "green", "and", "sky", "blue", "while", "rivers", "run", "past"),
    *("quiet", "towns", "where", "people", "count", "ships", "boats", "letters", "numbers"),
    *("stones", "rings", "lamps", "doors", "stairs", "roofs", "gardens", "horses", "birds"),
)
MARGIN = 1.25  # prompts are so much longer than the longest dense sequence
LEAST = 64  # tokens beyond it at least


@dataclass(frozen=True, slots=True)
class ProbeAgreement:
    """Two sets of continuations side by side.

    Attributes:
        equal: continuations that agree.
        compared: how many both have.
    """

    equal: int
    compared: int

    @property
    def same(self) -> bool:
        """Nothing differs, and something was compared."""
        return self.compared > 0 and self.equal == self.compared


def probe_prompts(
    tokenizer: ChatTokenizer,
    dense_tokens: int,
    count: int,
    new_tokens: int,
    *,
    max_positions: int | None = None,
) -> list[Prompt]:
    """Seeded prompts of words, longer than the longest dense sequence.

    Args:
        tokenizer: of the model.
        dense_tokens: longest sequence that indexers select whole; 0 for a model without.
        count: how many prompts.
        new_tokens: budget of each continuation.
        max_positions: of the model; prompt and continuation stay within.
    """
    size = max(int(dense_tokens * MARGIN), dense_tokens + LEAST)
    if max_positions:
        size = min(size, max_positions - new_tokens - 1)
    renderer = ChatRenderer(tokenizer)
    prompts = []
    for number in range(count):
        text = _text(tokenizer, random.Random(number), size)
        sample = Sample(f"probe/{number}", "probe", text, ("x",), "none", new_tokens, chat=False)
        prompts.append(renderer.render(sample))
    return prompts


def _text(tokenizer: ChatTokenizer, rng: random.Random, size: int) -> str:
    """Words that come to `size` tokens or a few less."""
    words = [rng.choice(_WORDS) for _ in range(size)]
    low, high = 1, size
    while low < high:  # the longest run of words within the size
        middle = (low + high + 1) // 2
        fits = len(tokenizer.encode(" ".join(words[:middle]))) <= size
        low, high = (middle, high) if fits else (low, middle - 1)
    return " ".join(words[:low])


def continuations(completions: Sequence[Completion]) -> dict[str, str]:
    """Text by prompt, without the requests that failed."""
    return {c.sample_id: redact(c.text) for c in completions if c.finish_reason != "error"}


def agreement(one: Mapping[str, str], two: Mapping[str, str]) -> ProbeAgreement:
    """How many of the continuations that both have agree."""
    both = [i for i in one if i in two]
    return ProbeAgreement(sum(one[i] == two[i] for i in both), len(both))
