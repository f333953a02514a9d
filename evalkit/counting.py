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

SPACE = re.compile(r"(?<=\S) (?=\S)")
"""Where a text is cut; the space belongs to what follows."""

_JOINED = r"(?:[^ĠĊĉč▁ł\s]|(?<!Â)ł)[Ġ▁ ]"
"""A token with a space behind something else, in the letters of byte-level vocabularies
(``Âł`` is a no-break space, which is no word)."""

_RUNS = re.compile(r"[ -]?(?:[A-Za-z]+|[0-9]+)|.", re.DOTALL)
_LONG = re.compile(r"[A-Za-z0-9-]{16,}[.,]?")
_MOST = 1_000_000
"""Words whose counts are kept."""


class TokenCounter:
    """Counts tokens with one tokenizer.

    Args:
        tokenizer: a fast tokenizer of transformers, for which `of` gave a counter.
        runs: whether words may be cut between letters, digits and hyphens too.
    """

    def __init__(self, tokenizer: Any, *, runs: bool = False) -> None:
        self._tokenizer, self._runs = tokenizer, runs
        self._counts: dict[str, int] = {}
        added = tokenizer.backend_tokenizer.get_added_tokens_decoder().values()
        self._special = tuple(token.content for token in added)
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
        if model.get("type") not in ("BPE", "Unigram") or model.get("dropout"):
            return None
        if any(t["lstrip"] or t["rstrip"] or " " in t["content"] for t in added):
            return None
        special = {token["content"] for token in added}
        vocabulary = model["vocab"]
        words = vocabulary if isinstance(vocabulary, dict) else (word for word, _ in vocabulary)
        tokens = [t for t in words if t not in special and not re.fullmatch(r"<0x[0-9A-F]{2}>", t)]
        if _holds(_JOINED, tokens):
            return None
        return cls(tokenizer, runs=not _holds(r"[A-Za-z0-9]-|[A-Za-z][0-9]|[0-9][A-Za-z]", tokens))

    def count(self, text: str, *, special: bool = False) -> int:
        """Tokens of a text; `special` adds those that the tokenizer puts around it."""
        words = self._words(text)
        first, rest = words[0], Counter(words[1:])
        if len(self._counts) > _MOST:
            self._counts.clear()
        self._learn(f" {word}" for word in rest if f" {word}" not in self._counts)
        found = self._counts
        return self._full(first, special=special) + sum(
            n * found[f" {word}"] for word, n in rest.items()
        )

    def _words(self, text: str) -> list[str]:
        """The text between its cuts; not cut behind a special token, where some begin anew."""
        words = text.split(" ")
        if any(not w or w[0].isspace() or w[-1].isspace() for w in set(words[:-1])):
            words = SPACE.split(text)
        if any(w[-1:] in self._ends and w.endswith(self._special) for w in set(words)):
            joined = [words[0]]
            for word in words[1:]:
                if joined[-1].endswith(self._special):
                    joined[-1] += f" {word}"
                else:
                    joined.append(word)
            return joined
        return words

    def _learn(self, pieces: Iterable[str]) -> None:
        """Counts of pieces, each of which begins at a cut."""
        plain: list[str] = []
        cut: list[str] = []
        for piece in pieces:
            long = self._runs and _LONG.fullmatch(piece, 1)
            (cut if long else plain).append(piece)
        parts = {piece: _RUNS.findall(piece) for piece in cut}
        fresh = {p for found in parts.values() for p in found if p not in self._counts}
        self._encode([*plain, *fresh])
        counts = self._counts
        for piece, found in parts.items():
            counts[piece] = sum(map(counts.__getitem__, found))

    def _encode(self, pieces: list[str]) -> None:
        """Tokenise pieces behind a character that no token joins to them."""
        anchors = ["0" if piece[0].isalpha() else "a" for piece in pieces]
        texts = [anchor + piece for anchor, piece in zip(anchors, pieces, strict=True)]
        backend = self._tokenizer.backend_tokenizer
        for piece, anchor, encoding in zip(
            pieces, anchors, backend.encode_batch_fast(texts, add_special_tokens=False), strict=True
        ):
            self._counts[piece] = len(encoding.ids) - self._anchors[anchor]

    def _full(self, text: str, *, special: bool = False) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=special))


def _holds(pattern: str, tokens: Iterable[str]) -> bool:
    found = re.compile(pattern)
    return any(found.search(token) for token in tokens)
