"""Workload of a speed benchmark: prompts of one length, and their arrival times."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from evalkit.config.bench import BenchConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.types import Prompt, Sample
from evalkit.prompts.tokenizers import ChatTokenizer, hash_ids

FEWEST_WORDS = 100  # with fewer, prompts would repeat themselves


def prompts(
    config: BenchConfig, tokenizer: ChatTokenizer, count: int, *, as_text: bool, first: int = 0
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
    usable = [] if text is not None else _usable(tokenizer, as_text)
    size = config.input_tokens * (2 if as_text else 1)  # what is too long is cut
    result = []
    for number in range(first, first + count):
        rng = random.Random(f"{config.seed}/{number}")
        ids = rng.choices(usable, k=size) if text is None else _passage(tokenizer, text, rng, size)
        result.append(_prompt(config, tokenizer, number, ids, as_text))
    return result


def arrivals(config: BenchConfig, count: int, round_: int = 0) -> list[float]:
    """Seconds after the start at which requests are due; all at once without a rate."""
    if config.rate is None:
        return [0.0] * count
    if config.arrival == "fixed":
        return [number / config.rate for number in range(count)]
    rng = random.Random(f"arrivals/{config.seed}/{round_}")
    due, times = 0.0, []
    for _ in range(count):
        times.append(due)
        due += rng.expovariate(config.rate)
    return times


def _prompt(
    config: BenchConfig, tokenizer: ChatTokenizer, number: int, ids: Sequence[int], as_text: bool
) -> Prompt:
    text = str(tokenizer.decode(list(ids)))
    if as_text:
        text, ids = _fitting(tokenizer, ids, config.input_tokens)
    sample = Sample(
        f"bench/{number}", "bench", text, ("x",), "none", config.output_tokens, chat=False
    )
    return Prompt(sample, tuple(ids), text, hash_ids(ids))


def _fitting(tokenizer: ChatTokenizer, ids: Sequence[int], size: int) -> tuple[str, list[int]]:
    """Text of the longest run of tokens that the tokenizer reads as `size` tokens at most.

    Text may split into other tokens than it was made of, and special tokens come on top.
    """

    def read(count: int) -> tuple[str, list[int]]:
        text = str(tokenizer.decode(list(ids[:count])))
        return text, list(tokenizer.encode(text))

    low, high = 1, len(ids)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(read(middle)[1]) <= size else (low, middle - 1)
    return read(low)


def _usable(tokenizer: ChatTokenizer, as_text: bool) -> list[int]:
    """Tokens that are not special; for text, words that come back as the tokens they were."""
    special = set(getattr(tokenizer, "all_special_ids", None) or ())
    usable = [i for i in range(len(tokenizer)) if i not in special]
    if not as_text:
        return usable
    texts = {i: str(tokenizer.decode([i])) for i in usable}
    words = [i for i, text in texts.items() if text[:1] == " " and text[1:].isalnum()]
    stable = [i for i in words if tokenizer.encode(texts[i], add_special_tokens=False) == [i]]
    whole = [i for i, text in texts.items() if "\ufffd" not in text]
    return stable if len(stable) >= FEWEST_WORDS else whole


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


def _passage(tokenizer: ChatTokenizer, text: str, rng: random.Random, count: int) -> list[int]:
    """`count` tokens of the text from a random place on, around its end if need be."""
    at = rng.randrange(len(text))
    piece = ""
    ids: list[int] = []
    while len(ids) < count:
        piece += text[at : at + 8 * count] or text
        at = (at + 8 * count) % len(text)
        ids = tokenizer.encode(piece, add_special_tokens=False)
    return list(ids[:count])
