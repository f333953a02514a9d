"""How many tokens a long text has, without tokenising what was tokenised before.

A text is cut before every single space between two words; words are tokenised once and their
counts added. That is exact where no token of the vocabulary holds a cut: merges on its two sides
then never meet. Words of letters, digits and hyphens that are long and new (uuids) are cut further
on the same condition. Where a vocabulary has such tokens, nothing is cut (`TokenCounter.of`).

The sum is kept of passages that are likely to come again: paragraphs without their first line
(documents under their number), and the words with which most lines of a text begin (needles,
noise). Of those, only the first and the last word, which may meet what stands around them, are
looked at anew.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from itertools import takewhile
from string import ascii_letters, digits
from typing import Any

_GAP = re.compile(r"([\s▁][\s▁]+)")
"""White space that is not cut, with the words on both sides; many tokenizers write a space ▁."""

_JOINED = r"(?:[^ĠĊĉč▁łĢ\s]|(?<!Â)ł|(?<!ãĢ)Ģ)[Ġ▁ ]"
"""A token with a space behind something else, in the letters of byte-level vocabularies
(``Âł`` and ``ãĢĢ`` are a no-break and an ideographic space, which are no words)."""

_LOCAL = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Prepend"}
"""Normalisers that put nothing in the place of a space and bring no two together."""

_CUT_AT = {*ascii_letters, *digits, *"-.,:"}
"""Characters beside which words are cut further."""

_RUNS = {
    size: re.compile(rf"[ -]?(?:[A-Za-z]+|[0-9]{digits})|[.,:\n][^ ]*")
    for size, digits in ((0, "+"), (1, ""), (3, "{1,3}"))
}
"""Pieces of a word, by the most digits that the tokenizer puts together (0: unknown)."""

_COMPOUND = re.compile(
    r"(?=.*\n|.{8})(?=.*\n|[A-Za-z]*[0-9-])[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*(?:[.,:\n][^ ]*)?"
)
"""Words that are cut into such pieces: where two lines meet, and numbers, uuids, compounds, but
for short ones, which are likely to come again."""

_MOST = 1_000_000
"""Words and pieces whose counts are kept."""

_LONG = range(150, 5000)
"""Paragraphs of so many characters are likely to come again."""

_MANY = 100
"""So many lines are worth a look for words with which most of them begin."""

_MOST_PASSAGES = 100_000
"""Passages whose counts are kept."""


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
        self._passages: dict[str, tuple[str, int]] = {}
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
        if not _known(facts) or any(map(_meets_cuts, added)):
            return None
        special = {token["content"] for token in added}
        vocabulary = model["vocab"]
        listed = vocabulary if isinstance(vocabulary, dict) else (word for word, _ in vocabulary)
        words = set[str](listed)
        tokens = [t for t in words - special if not re.fullmatch(r"<0x[0-9A-F]{2}>", t)]
        # What is no token may vanish or be one with its neighbours.
        if not words & {"Ġ", "▁", " "} or not words >= {"a", "0"} or _holds(_JOINED, tokens):
            return None
        split = json.dumps(facts["pre_tokenizer"]).replace("\\\\", "\\")
        joined = _holds(r"[A-Za-z0-9][-.,:\nĊ]|[A-Za-z][0-9]|[0-9][A-Za-z]", tokens)
        from_the_right = "{1,3}(?" in split  # digits are grouped by what follows them
        if joined or from_the_right or not words >= _CUT_AT:
            return cls(tokenizer)
        if not _holds("[0-9][0-9]", tokens):
            return cls(tokenizer, digits=1)
        return cls(tokenizer, digits=3 if r"\p{N}{1,3}" in split else 0)

    def count(self, text: str, *, special: bool = False) -> int:
        """Tokens of a text; `special` adds those that the tokenizer puts around it."""
        if len(self._counts) + len(self._pieces) > _MOST:
            self._counts.clear()
            self._pieces.clear()
        if len(self._passages) > _MOST_PASSAGES:
            self._passages.clear()
        shortened, tokens = self._shortened(text)
        first, *rest = self._words(shortened)
        return self._full(first, special=special) + self._sum(rest) + tokens

    def _shortened(self, text: str) -> tuple[str, int]:
        """The text without the inner words of passages that come again, and the tokens of those."""
        tokens = 0
        paragraphs = [part.partition("\n") for part in text.split("\n\n")]
        if long := [body for _, _, body in paragraphs if len(body) in _LONG]:
            self._learn(set(long).difference(self._passages))
            known = list(map(self._passages.__getitem__, long))
            tokens += sum(inner for _, inner in known)
            ends = (short for short, _ in known)
            text = "\n\n".join(
                head + newline + (next(ends) if len(body) in _LONG else body)
                for head, newline, body in paragraphs
            )
        lines = text.split("\n")
        if len(lines) > _MANY:
            start = _common_start(*lines[len(lines) // 2 :][:2])
            self._learn({start}.difference(self._passages))
            short, inner = self._passages[start]
            if inner:
                tokens += text.count(start) * inner
                text = text.replace(start, short)
        return text, tokens

    def _learn(self, passages: Iterable[str]) -> None:
        """Keep passages without their inner words, and the tokens of those.

        All words stay where there may be a special token, or where one may end on the first word:
        a cut in the passage alone is then not sure to be one in every text.
        """
        inner = dict[str, list[str]]()
        for passage in passages:
            body = passage.strip()
            first, *words = self._words(body)
            if not words or first[-1] in self._ends or self._may_be_special(body):
                self._passages[passage] = passage, 0
            else:
                self._passages[passage] = passage.replace(body, f"{first} {words.pop()}"), 0
                inner[passage] = words
        self._keep([*set[str]().union(*inner.values()).difference(self._counts)])
        for passage, words in inner.items():
            tokens = sum(map(self._counts.__getitem__, words))
            self._passages[passage] = self._passages[passage][0], tokens

    def _words(self, text: str) -> list[str]:
        """The text between its cuts, without their spaces.

        Nothing is cut behind a special token, where some tokenizers begin anew.
        """
        gaps = set(_GAP.findall(text))
        parts = _GAP.split(text) if any(" " in gap for gap in gaps) else [text]
        words = [""]
        for number, part in enumerate(parts):
            first, *rest = (part,) if number % 2 else part.split(" ")
            words[-1] += first
            words += rest
        if text.startswith(" ") and not words[0]:
            words[:2] = [" " + words[1]]
        if not self._may_be_special(text):
            return words
        joined = [words[0]]
        for word in words[1:]:
            if joined[-1][-1:] in self._ends and joined[-1].endswith(self._special):
                joined[-1] += f" {word}"
            else:
                joined.append(word)
        return joined

    def _may_be_special(self, text: str) -> bool:
        return any(start in text for start in self._starts)

    def _sum(self, words: list[str]) -> int:
        """Tokens of words, each behind a cut."""
        found = list(map(self._counts.get, words))
        known = sum(filter(None, found))
        if None not in found:
            return known
        fresh = Counter(word for word, n in zip(words, found, strict=True) if n is None)
        return known + self._fresh(fresh)

    def _fresh(self, words: dict[str, int]) -> int:
        """Tokens of words of which no counts are kept, each so many times."""
        cut = list(filter(_COMPOUND.fullmatch, words)) if self._runs else []
        plain = [*words.keys() - set(cut)]
        self._keep(plain)
        total = sum(self._counts[word] * words[word] for word in plain)
        if cut and self._runs:
            pieces = self._runs.findall("".join(f" {word}" * words[word] for word in cut))
            new = [*set(pieces).difference(self._pieces)]
            self._pieces.update(zip(new, self._encode(new), strict=True))
            total += sum(map(self._pieces.__getitem__, pieces))
        return total

    def _keep(self, words: list[str]) -> None:
        """Tokenise words behind a cut and keep their counts."""
        self._counts.update(zip(words, self._encode([f" {word}" for word in words]), strict=True))

    def _encode(self, pieces: list[str]) -> list[int]:
        """Tokens of pieces behind a character that no token joins to them."""
        if not pieces:
            return []
        anchors = ["0" if piece[0].isalpha() else "a" for piece in pieces]
        texts = [anchor + piece for anchor, piece in zip(anchors, pieces, strict=True)]
        backend = self._tokenizer.backend_tokenizer
        backend.no_padding()  # as whoever used it last may have left it
        backend.no_truncation()
        encoded = backend.encode_batch_fast(texts, add_special_tokens=False)
        return [
            len(encoding.ids) - self._anchors[anchor]
            for anchor, encoding in zip(anchors, encoded, strict=True)
        ]

    def _full(self, text: str, *, special: bool = False) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=special))


def _common_start(one: str, two: str) -> str:
    """The words with which both lines begin."""
    pairs = zip(one.split(" "), two.split(" "), strict=False)
    return " ".join(word for word, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _known(facts: dict[str, Any]) -> bool:
    """Whether the steps of a tokenizer treat a word alike whatever words stand beside it."""
    model, steps = facts["model"], facts["pre_tokenizer"] or {}
    if model.get("type") not in ("BPE", "Unigram") or model.get("dropout"):
        return False
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return False
    for step in steps.get("pretokenizers", [])[1:]:  # a space before every piece of a word
        if step.get("add_prefix_space") or step.get("prepend_scheme") == "always":
            return False
    return _local(facts["normalizer"])


def _local(normalizer: dict[str, Any] | None) -> bool:
    """Whether a normaliser leaves every space where it is."""
    if normalizer is None:
        return True
    if normalizer["type"] == "Sequence":
        return all(map(_local, normalizer["normalizers"]))
    if normalizer["type"] == "Replace":
        return (normalizer["pattern"], normalizer["content"]) == ({"String": " "}, "▁")
    return normalizer["type"] in _LOCAL


def _meets_cuts(added: dict[str, Any]) -> bool:
    """Whether an added token may hold a cut, or what stands beside one."""
    content = added["content"]
    beside = " " in content or re.match("[A-Za-z0-9-]", content)
    return bool(beside or added["lstrip"] or added["rstrip"])


def _holds(pattern: str, tokens: Iterable[str]) -> bool:
    found = re.compile(pattern)
    return any(found.search(token) for token in tokens)
