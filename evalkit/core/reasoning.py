"""Reasoning blocks of an answer: what stands between ``<think>`` and ``</think>``."""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


def without_reasoning(text: str) -> str:
    """The answer without its reasoning; a block that was never closed leaves nothing behind it.

    A closing tag alone ends a block that the prompt opened.
    """
    if OPEN not in text and CLOSE not in text:
        return text
    return _without_blocks(text).rpartition(CLOSE)[2].partition(OPEN)[0]


def is_unclosed(text: str, *, opened: bool = False) -> bool:
    """Whether a reasoning block was opened and never closed: the answer did not come.

    Args:
        text: the completion.
        opened: whether the prompt had opened a block already.
    """
    return OPEN in _without_blocks(text) or (opened and CLOSE not in text)


def leaves_open(turn: str) -> bool:
    """Whether the beginning of an assistant's turn opens a block that the answer has to close."""
    return turn.rfind(OPEN) > turn.rfind(CLOSE)


def _without_blocks(text: str) -> str:
    """A text without its closed blocks, in linear time whatever it holds."""
    kept, at = [], 0
    while (start := text.find(OPEN, at)) >= 0 and (end := text.find(CLOSE, start)) >= 0:
        kept.append(text[at:start])
        at = end + len(CLOSE)
    return "".join(kept) + text[at:]
