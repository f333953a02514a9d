"""Reasoning blocks of an answer: what stands between two markers, such as ``<think>``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

OPEN, CLOSE = "<think>", "</think>"
"""The markers in which reasoning is recorded that came apart from its answer."""

_CHANNEL = "<|channel|>{}<|message|>"

BLOCKS = (
    (OPEN, CLOSE),  # DeepSeek, Qwen3, GLM, Kimi-K2, MiniMax-M2, OLMo 3, Nemotron, Ernie 4.5 …
    # By the name of the parser in vllm/reasoning (vLLM 0.33), where nothing else is named.
    ("<longcat_think>", "</longcat_think>"),  # longcat
    ("<mm:think>", "</mm:think>"),  # minimax_m3
    ("<seed:think>", "</seed:think>"),  # seedoss
    ("[THINK]", "[/THINK]"),  # mistral (SpecialTokens.begin_think of mistral-common)
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A (common/chat.cpp of llama.cpp)
    ("<|channel>thought\n", "<channel|>"),  # gemma4
    ("<|inner_prefix|>", "<|inner_suffix|>"),  # apertus
    ("◁think▷", "◁/think▷"),  # Kimi-VL, Kimi-Dev (their cards)
    # gpt-oss (the harmony format): analysis is a message of its own, the answer another.
    (_CHANNEL.format("analysis"), f"<|end|><|start|>assistant{_CHANNEL.format('final')}"),
)
"""The markers that are known, as (opening, closing). Other forms are answer like all text."""


def has_reasoning(text: str) -> bool:
    """Whether any marker stands in a text."""
    return any(marker in text for marker in chain.from_iterable(BLOCKS))


def without_reasoning(text: str) -> str:
    """The answer without its reasoning; a block that was never closed leaves nothing behind it.

    A closing marker alone ends a block that the prompt opened.
    """
    for opening, closing in BLOCKS:
        if opening in text or closing in text:
            answer = _without_blocks(text, opening, closing)
            text = answer.rpartition(closing)[2].partition(opening)[0]
    return text


def is_unclosed(text: str, *, opened: bool = False) -> bool:
    """Whether a reasoning block was opened and never closed: the answer did not come.

    Args:
        text: the completion.
        opened: whether the prompt had opened a block already.
    """
    unclosed = any(
        opening in text and opening in _without_blocks(text, opening, closing)
        for opening, closing in BLOCKS
    )
    return unclosed or (opened and not answer_start(text))


def answer_start(text: str) -> int:
    """Where the answer begins that stands behind the last closed block; 0 where none is closed."""
    ends = (text.rfind(closing) + len(closing) for _, closing in BLOCKS if closing in text)
    return max(ends, default=0)


def still_reasons(text: str, *, opened: bool = False) -> bool:
    """Whether all of an answer so far is reasoning, in a block that it or the prompt opened."""
    return not answer_start(text) and (opened or any(opening in text for opening, _ in BLOCKS))


def closing_of(turn: str) -> str:
    """The marker that closes what the beginning of an assistant's turn leaves open; "" for none.

    On a line of its own where the turn goes on behind the opening marker with a new line, as the
    templates write an empty block.
    """
    places = {
        closing: start + len(opening)
        for opening, closing in BLOCKS
        if (start := turn.rfind(opening)) > turn.rfind(closing)
    }
    closing = max(places, key=lambda marker: places[marker], default="")
    if closing and turn[places[closing] :].endswith("\n"):
        return f"\n{closing}\n\n"
    return closing


def marker_tokens(special: Iterable[str]) -> frozenset[str]:
    """The special tokens of a tokenizer that markers are written with.

    They must stay in a text from which special tokens are removed.
    """
    tokens = [token for token in special if token]
    kept: set[str] = set()
    for opening, closing in BLOCKS:
        begin = {token for token in tokens if token in opening}
        end = {token for token in tokens if token in closing}
        if begin and end:
            kept |= begin | end
    return frozenset(kept)


def _without_blocks(text: str, opening: str, closing: str) -> str:
    """A text without its closed blocks, in linear time whatever it holds."""
    kept, at = [], 0
    while (start := text.find(opening, at)) >= 0 and (end := text.find(closing, start)) >= 0:
        kept.append(text[at:start])
        at = end + len(closing)
    return "".join(kept) + text[at:]
