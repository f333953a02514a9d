"""How many tokens a long text has, without tokenising what was tokenised before.

A text is cut before every single space between two words; words are tokenised once and their
counts added. That is exact where no token of the vocabulary holds a cut: merges on its two sides
then never meet. Words of letters, digits and hyphens that are long and new (uuids) are cut further
on the same condition. Where a vocabulary has such tokens, nothing is cut (`TokenCounter.of`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

_GAP = re.compile(r"(\s\s+)")
"""White space that is not cut, with the words on both sides."""

_JOINED = r"(?:[^ĠĊĉč▁ł\s]|(?<!Â)ł)[Ġ▁ ]"
"""A token with a space behind something else, in the letters of byte-level vocabularies
(``Âł`` is a no-break space, which is no word)."""

_RUNS = {
    size: re.compile(rf"[ -]?(?:[A-Za-z]+|[0-9]{digits})|[.,:]\s*[A-Za-z]*")
    for size, digits in ((0, "+"), (1, ""), (3, "{1,3}"))
}
"""Pieces of a word, by the most digits that the tokenizer puts together (0: unknown)."""

_COMPOUND = re.compile(r"(?=[A-Za-z]*[0-9-])[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*(?:[.,:]\s*[A-Za-z]*)?")
"""Words that are cut into such pieces: numbers, uuids, compounds."""

_SHORT = 7
"""Words of so many characters are likely to come again, and kept whole."""

_MOST = 1_000_000
"""Words whose counts are kept."""


class TokenCounter:
    """Counts tokens with one tokenizer.

    Args:
        tokenizer: a fast tokenizer of transformers, for which `of` gave a counter.
        digits: None, or words are cut between letters, digits, hyphens and marks too, and digits
            into groups of so many from the left (0: not at all).
    """

    def __init__(self, tokenizer: Any, *, digits: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._runs = None if digits is None else _RUNS[digits]
        self._counts: dict[str, int] = {}
        self._pieces: dict[str, int] = {}
        added = tokenizer.backend_tokenizer.get_added_tokens_decoder().values()
        self._special = tuple(token.content for token in added)
        self._starts = {content[:2] for content in self._special}
        self._ends = {content[-1] for content in self._special}
        self._anchors = {anchor: self._full(anchor) for anchor in ("a", "0")}

    @classmethod
    def of(cls, tokenizer: Any) -> TokenCounter | None:
        """A counter, or None where some token could hold a cut (or nothing is known of it)."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            return None
        facts = json.loads(backend.to_str())
        model, added = facts["model"], facts.get("added_tokens") or ()
        unknown = model.get("type") not in ("BPE", "Unigram") or model.get("dropout")
        if unknown or any(t["lstrip"] or t["rstrip"] or " " in t["content"] for t in added):
            return None
        special = {token["content"] for token in added}
        vocabulary = model["vocab"]
        words = vocabulary if isinstance(vocabulary, dict) else (word for word, _ in vocabulary)
        tokens = [t for t in words if t not in special and not re.fullmatch(r"<0x[0-9A-F]{2}>", t)]
        if _holds(_JOINED, tokens):
            return None
        if _holds(r"[A-Za-z0-9][-.,:]|[A-Za-z][0-9]|[0-9][A-Za-z]", tokens):
            return cls(tokenizer)
        if not _holds("[0-9][0-9]", tokens):
            return cls(tokenizer, digits=1)
        threes = r"\p{N}{1,3}" in json.dumps(facts["pre_tokenizer"]).replace("\\\\", "\\")
        return cls(tokenizer, digits=3 if threes else 0)

    def count(self, text: str, *, special: bool = False) -> int:
        """Tokens of a text; `special` adds those that the tokenizer puts around it."""
        first, *rest = self._words(text)
        if len(self._counts) > _MOST:
            self._counts.clear()
            self._pieces.clear()
        total, fresh, found = 0, {}, self._counts
        for word, n in Counter(rest).items():
            if (known := found.get(word)) is None:
                fresh[word] = n
            else:
                total += n * known
        return self._full(first, special=special) + total + self._fresh(fresh)

    def _words(self, text: str) -> list[str]:
        """The text between its cuts, without their spaces.

        Nothing is cut behind a special token, where some tokenizers begin anew.
        """
        words = [""]
        for number, part in enumerate(_GAP.split(text)):
            first, *rest = (part,) if number % 2 else part.split(" ")
            words[-1] += first
            words += rest
        if text.startswith(" ") and not words[0]:
            words[:2] = [" " + words[1]]
        if not any(start in text for start in self._starts):
            return words
        joined = [words[0]]
        for word in words[1:]:
            if joined[-1][-1:] in self._ends and joined[-1].endswith(self._special):
                joined[-1] += f" {word}"
            else:
                joined.append(word)
        return joined

    def _fresh(self, words: dict[str, int]) -> int:
        """Tokens of words that were not met before, each so many times."""
        plain, cut = list[str](), list[str]()
        for word in words:
            long = self._runs is not None and len(word) > _SHORT and _COMPOUND.fullmatch(word)
            (cut if long else plain).append(word)
        total = 0
        for word, count in self._encode([f" {word}" for word in plain]).items():
            self._counts[word[1:]] = count
            total += count * words[word[1:]]
        if cut and self._runs is not None:
            text = "".join(f" {word}" * words[word] for word in cut)
            pieces = Counter(self._runs.findall(text))
            self._pieces |= self._encode([piece for piece in pieces if piece not in self._pieces])
            total += sum(n * self._pieces[piece] for piece, n in pieces.items())
        return total

    def _encode(self, pieces: list[str]) -> dict[str, int]:
        """Tokenise pieces behind a character that no token joins to them."""
        if not pieces:
            return {}
        anchors = ["0" if piece[0].isalpha() else "a" for piece in pieces]
        texts = [anchor + piece for anchor, piece in zip(anchors, pieces, strict=True)]
        encoded = self._tokenizer.backend_tokenizer.encode_batch_fast(
            texts, add_special_tokens=False
        )
        return {
            piece: len(encoding.ids) - self._anchors[anchor]
            for piece, anchor, encoding in zip(pieces, anchors, encoded, strict=True)
        }

    def _full(self, text: str, *, special: bool = False) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=special))


def _holds(pattern: str, tokens: Iterable[str]) -> bool:
    found = re.compile(pattern)
    return any(found.search(token) for token in tokens)
