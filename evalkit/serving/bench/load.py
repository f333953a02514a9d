"""The load of a benchmark: prompts of one length, and when they arrive."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evalkit.bench_config import BenchConfig
from evalkit.prompts import hash_ids
from evalkit.types import EvalkitError, Prompt, Sample


def prompts(
    config: BenchConfig, tokenizer: Any, count: int, *, as_text: bool, first: int = 0
) -> list[Prompt]:
    """Distinct prompts of `input_tokens` tokens; a function of seed and number alone.

    Args:
        config: the load.
        tokenizer: of the model.
        count: how many.
        as_text: the server takes text only: prompts are then text that has the length, or a token
            or two less where no text has it exactly.
        first: number of the first one, so that warm-up and rounds do not repeat each other.
    """
    text = _text(config)
    found = []
    for number in range(first, first + count):
        rng = random.Random(f"{config.seed}/{number}")
        if text is None:
            ids = _random_ids(tokenizer, rng, config.input_tokens)
        else:
            ids = _stretch(tokenizer, text, rng, config.input_tokens)
        found.append(_prompt(config, tokenizer, number, ids, as_text))
    return found


def arrivals(config: BenchConfig, count: int, round_: int = 0) -> list[float]:
    """Seconds after the start at which requests are due; all at once without a rate."""
    if config.rate is None:
        return [0.0] * count
    if config.arrival == "fixed":
        return [number / config.rate for number in range(count)]
    rng = random.Random(f"arrivals/{config.seed}/{round_}")
    due, found = 0.0, []
    for _ in range(count):
        found.append(due)
        due += rng.expovariate(config.rate)
    return found


def _prompt(
    config: BenchConfig, tokenizer: Any, number: int, ids: Sequence[int], as_text: bool
) -> Prompt:
    text = str(tokenizer.decode(list(ids)))
    if as_text:
        ids = tokenizer.encode(text)
        while len(ids) > config.input_tokens:  # special tokens, and text that splits otherwise
            text = str(tokenizer.decode(ids[: config.input_tokens], skip_special_tokens=True))
            shorter = tokenizer.encode(text)
            if len(shorter) >= len(ids):
                shorter = tokenizer.encode(text[: -max(1, len(text) // 50)])
                text = text[: -max(1, len(text) // 50)]
            ids = shorter
    sample = Sample(
        f"bench/{number}", "bench", text, ("x",), "none", config.output_tokens, chat=False
    )
    return Prompt(sample, tuple(ids), text, hash_ids(ids))


def _random_ids(tokenizer: Any, rng: random.Random, count: int) -> list[int]:
    special = set(getattr(tokenizer, "all_special_ids", None) or ())
    usable = [i for i in range(len(tokenizer)) if i not in special]
    return [rng.choice(usable) for _ in range(count)]


def _text(config: BenchConfig) -> str | None:
    if config.text_file is None:
        return None
    try:
        text = Path(config.text_file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EvalkitError(f"bench.text_file {config.text_file}: {error}") from None
    if not text.strip():
        raise EvalkitError(f"bench.text_file {config.text_file}: it is empty")
    return text


def _stretch(tokenizer: Any, text: str, rng: random.Random, count: int) -> list[int]:
    """`count` tokens of the text from a random place on, around its end if need be."""
    at = rng.randrange(len(text))
    piece = ""
    ids: list[int] = []
    while len(ids) < count:
        piece += text[at : at + 8 * count] or text
        at = (at + 8 * count) % len(text)
        ids = tokenizer.encode(piece, add_special_tokens=False)
    return list(ids[:count])
