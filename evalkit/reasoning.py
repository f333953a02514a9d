"""Reasoning blocks of an answer: what stands between ``<think>`` and ``</think>``."""

from __future__ import annotations

import re

from evalkit.types import Prompt

OPEN, CLOSE = "<think>", "</think>"
_BLOCK = re.compile(rf"{OPEN}.*?{CLOSE}", re.DOTALL)


def without_reasoning(text: str) -> str:
    """The answer without its reasoning; a block that was never closed leaves nothing behind it.

    A closing tag alone ends a block that the prompt opened.
    """
    if OPEN not in text and CLOSE not in text:
        return text
    rest = _BLOCK.sub("", text)
    return rest.rpartition(CLOSE)[2].partition(OPEN)[0]


def is_unclosed(text: str, *, opened: bool = False) -> bool:
    """Whether a reasoning block was opened and never closed: the answer did not come.

    Args:
        text: the completion.
        opened: whether the prompt had opened a block already.
    """
    return OPEN in _BLOCK.sub("", text) or (opened and CLOSE not in text)


def opens_reasoning(prompt: Prompt) -> bool:
    """Whether the prompt itself opens the block, so that the answer only closes it."""
    return prompt.text.rstrip().endswith(OPEN)
