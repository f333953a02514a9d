"""Incremental token counts of long texts: what was tokenised before is not tokenised again.

A text is cut before every single space between two words; words are tokenised once and their
counts added. That is exact where no token of the vocabulary holds a cut: merges on its two sides
then never meet. Words of letters, digits and hyphens that are long and new (uuids) are cut further
on the same condition. Where a vocabulary has such tokens, nothing is cut (`TokenCounter.of`).

The sum is kept of passages that are likely to come again: paragraphs without their first line
(documents under their number), and the words with which most lines of a text begin (needles,
noise). Of those, only the first and the last word, which may join what stands around them, are
tokenised again.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from itertools import takewhile
from string import ascii_letters, digits
from typing import TYPE_CHECKING

from evalkit.core.types import Tokenizer
from evalkit.dsa.json_types import JsonObject, as_list, as_object
from evalkit.prompts.tokenizers import backend_of

if TYPE_CHECKING:
    import tokenizers

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
"""From so many lines on, words with which most of them begin are searched for."""

_MOST_PASSAGES = 100_000
"""Passages whose counts are kept."""


class TokenCounter:
    """Counts tokens with one tokenizer.

    Args:
        tokenizer: a fast tokenizer of transformers, for which `of` gave a counter.
        backend: the tokenizer inside.
        digits: None, or words are cut between letters, digits, hyphens and marks too, and digits
            into groups of so many from the left (0: not at all).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        backend: tokenizers.Tokenizer,
        *,
        digits: int | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._backend = backend
        self._runs = None if digits is None else _RUNS[digits]
        self._counts: dict[str, int] = {}
        self._pieces: dict[str, int] = {}
        self._passages: dict[str, tuple[str, int]] = {}
        added = backend.get_added_tokens_decoder().values()
        self._special = tuple(token.content for token in added)
        self._starts = {content[:2] for content in self._special}
        self._ends = {content[-1] for content in self._special}
        self._anchors = {anchor: self._full(anchor) for anchor in ("a", "0")}

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> TokenCounter | None:
        """A counter, or None where a token could hold a cut (or nothing is known of it)."""
        backend = backend_of(tokenizer)
        if backend is None:
            return None
        facts: JsonObject = json.loads(backend.to_str())
        added = [as_object(token) for token in as_list(facts.get("added_tokens"))]
        if not _known(facts) or any(map(_meets_cuts, added)):
            return None
        words = _vocabulary(facts)
        special = {str(token["content"]) for token in added}
        tokens = [t for t in words - special if not re.fullmatch(r"<0x[0-9A-F]{2}>", t)]
        # What is no token may vanish or be one with its neighbours.
        if not words & {"Ġ", "▁", " "} or not words >= {"a", "0"} or _holds(_JOINED, tokens):
            return None
        split = json.dumps(facts["pre_tokenizer"]).replace("\\\\", "\\")
        joined = _holds(r"[A-Za-z0-9][-.,:\nĊ]|[A-Za-z][0-9]|[0-9][A-Za-z]", tokens)
        from_the_right = "{1,3}(?" in split  # digits are grouped by what follows them
        if joined or from_the_right or not words >= _CUT_AT:
            return cls(tokenizer, backend)
        if not _holds("[0-9][0-9]", tokens):
            return cls(tokenizer, backend, digits=1)
        return cls(tokenizer, backend, digits=3 if r"\p{N}{1,3}" in split else 0)

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
        counts = list(map(self._counts.get, words))
        total = sum(filter(None, counts))
        if None not in counts:
            return total
        new = Counter(word for word, n in zip(words, counts, strict=True) if n is None)
        return total + self._sum_new(new)

    def _sum_new(self, words: dict[str, int]) -> int:
        """Tokens of words whose counts are not known, each so many times."""
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
        self._backend.no_padding()  # as whoever used it last may have left it
        self._backend.no_truncation()
        encoded = self._backend.encode_batch_fast(texts, add_special_tokens=False)
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


def _vocabulary(facts: JsonObject) -> set[str]:
    """All words of a tokenizer: of a BPE by id, of a Unigram model with scores."""
    vocabulary = as_object(facts["model"])["vocab"]
    if isinstance(vocabulary, dict):
        return set(vocabulary)
    return {str(as_list(entry)[0]) for entry in as_list(vocabulary)}


def _known(facts: JsonObject) -> bool:
    """Whether the steps of a tokenizer treat a word alike whatever words stand beside it."""
    model, steps = as_object(facts["model"]), as_object(facts["pre_tokenizer"])
    if model.get("type") not in ("BPE", "Unigram") or model.get("dropout"):
        return False
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return False
    for step in map(as_object, as_list(steps.get("pretokenizers"))[1:]):
        # a space before every piece of a word
        if step.get("add_prefix_space") or step.get("prepend_scheme") == "always":
            return False
    normalizer = facts["normalizer"]
    return normalizer is None or _local(as_object(normalizer))


def _local(normalizer: JsonObject) -> bool:
    """Whether a normaliser leaves every space where it is."""
    if normalizer["type"] == "Sequence":
        return all(_local(as_object(step)) for step in as_list(normalizer["normalizers"]))
    if normalizer["type"] == "Replace":
        return (normalizer["pattern"], normalizer["content"]) == ({"String": " "}, "▁")
    return normalizer["type"] in _LOCAL


def _meets_cuts(added: JsonObject) -> bool:
    """Whether an added token may hold a cut, or what stands beside one."""
    content = str(added["content"])
    beside = " " in content or re.match("[A-Za-z0-9-]", content)
    return bool(beside or added["lstrip"] or added["rstrip"])


def _holds(pattern: str, tokens: Iterable[str]) -> bool:
    compiled = re.compile(pattern)
    return any(compiled.search(token) for token in tokens)
