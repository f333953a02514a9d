"""Truncation in the middle, before any chat template: both ends of a prompt are kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from evalkit.core.types import Tokenizer


@dataclass(frozen=True, slots=True)
class Cut:
    """A prompt, shortened if need be.

    Attributes:
        text: what the model reads.
        tokens: of the whole prompt, special tokens included.
        head: the text before the cut, all of it where nothing was cut.
        tail: the text behind the cut.
    """

    text: str
    tokens: int
    head: str
    tail: str = ""

    @property
    def truncated(self) -> bool:
        """Whether something was cut out."""
        return self.text != self.head or bool(self.tail)


def halves(text: str, tokenizer: Tokenizer, limit: int) -> Cut:
    """LongBench's way: the first and last ``limit // 2`` tokens, decoded apart, texts joined.

    Special tokens count, and are left out of the decoded text.
    """
    ids = tokenizer.encode(text)
    if len(ids) <= limit:
        return Cut(text, len(ids), text)
    half = limit // 2
    head = tokenizer.decode(ids[:half], skip_special_tokens=True)
    tail = tokenizer.decode(ids[-half:], skip_special_tokens=True)
    return Cut(head + tail, len(ids), head, tail)


def joined(text: str, tokenizer: Tokenizer, limit: int) -> Cut:
    """LongBench v2's way: the kept tokens are joined and decoded together.

    An odd `limit` keeps one token more behind the cut than before it.
    """
    ids = tokenizer.encode(text)
    if len(ids) <= limit:
        return Cut(text, len(ids), text)
    first, last = ids[: limit // 2], ids[-limit // 2 :]
    whole = tokenizer.decode(first + last, skip_special_tokens=True)
    head = tokenizer.decode(first, skip_special_tokens=True)
    return Cut(whole, len(ids), head, tokenizer.decode(last, skip_special_tokens=True))


def survives(cut: Cut, before: str, context: str, after: str, spans: Sequence[str]) -> bool | None:
    """Whether any of the texts that stood in the context still does.

    Args:
        cut: of the prompt ``before + context + after``.
        before: the prompt up to the context.
        context: where the spans were.
        after: the prompt behind the context.
        spans: texts that answer the question; case does not count, a span is no part of a word.

    Returns:
        None where none of them stood in the context to begin with.
    """
    there = [span for span in spans if _stands_in(span, context)]
    if not there:
        return None
    if not cut.truncated:
        return True
    parts = (cut.head.removeprefix(before), cut.tail.removesuffix(after))
    return any(_stands_in(span, part) for span in there for part in parts)


def _stands_in(span: str, text: str) -> bool:
    span = span.strip()
    if not span:
        return False
    left = r"(?<![0-9A-Za-z])" if _is_ascii_word(span[0]) else ""
    right = r"(?![0-9A-Za-z])" if _is_ascii_word(span[-1]) else ""
    return re.search(left + re.escape(span) + right, text, re.IGNORECASE) is not None


def _is_ascii_word(character: str) -> bool:
    return character.isascii() and character.isalnum()
