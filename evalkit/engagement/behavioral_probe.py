"""A behavioural probe: greedy continuations of prompts that are longer than a selection.

No server cooperation is needed. Below `index_topk` tokens (DeepSeek-V4: 4 × it) every schedule is
exact, so the prompts are longer. Continuations that are equal under two schedules say that the
setting probably did nothing; different ones say that it did something. Between two starts of one
server they give the noise floor.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalkit.core.types import Completion, Prompt, Sample
from evalkit.prompts.renderer import ChatRenderer

_WORDS = (
    *("the", "grass", "is", "green", "and", "sky", "blue", "while", "rivers", "run", "past"),
    *("quiet", "towns", "where", "people", "count", "ships", "boats", "letters", "numbers"),
    *("stones", "rings", "lamps", "doors", "stairs", "roofs", "gardens", "horses", "birds"),
)
MARGIN = 1.25  # prompts are so much longer than the reach of a selection
LEAST = 64  # tokens beyond it at least


@dataclass(frozen=True, slots=True)
class ProbeResult:
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


def reach(config: Mapping[str, Any]) -> int:
    """Tokens up to which every schedule is exact; 0 for a model without selections."""
    text = config.get("text_config") or config
    topk = int(text.get("index_topk") or 0)
    return 4 * topk if text.get("model_type") == "deepseek_v4" else topk


def probe_prompts(
    tokenizer: Any, config: Mapping[str, Any], count: int, new_tokens: int
) -> list[Prompt]:
    """Seeded prompts of words, longer than the reach of a selection."""
    beyond = reach(config)
    size = max(int(beyond * MARGIN), beyond + LEAST)
    limit = (config.get("text_config") or config).get("max_position_embeddings")
    if limit:
        size = min(size, int(limit) - new_tokens - 1)
    renderer = ChatRenderer(tokenizer)
    found = []
    for number in range(count):
        text = _text(tokenizer, random.Random(number), size)
        sample = Sample(f"probe/{number}", "probe", text, ("x",), "none", new_tokens, chat=False)
        found.append(renderer.render(sample))
    return found


def _text(tokenizer: Any, rng: random.Random, size: int) -> str:
    """Words that come to `size` tokens or a few less."""
    words = [rng.choice(_WORDS) for _ in range(size)]
    low, high = 1, size
    while low < high:  # the longest run of words within the size
        middle = (low + high + 1) // 2
        fits = len(tokenizer.encode(" ".join(words[:middle]))) <= size
        low, high = (middle, high) if fits else (low, middle - 1)
    return " ".join(words[:low])


def results(completions: Sequence[Completion]) -> dict[str, str]:
    """Continuations by prompt, without those that failed."""
    return {c.sample_id: c.text for c in completions if c.finish_reason != "error"}


def compare(one: Mapping[str, str], two: Mapping[str, str]) -> ProbeResult:
    """Continuations that both have, and how many agree."""
    both = [i for i in one if i in two]
    return ProbeResult(sum(one[i] == two[i] for i in both), len(both))
