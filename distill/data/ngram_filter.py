"""Decontamination: token n-grams of evaluation prompts that the text must not contain."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence


class NgramFilter:
    """N-grams that are the content of one prompt.

    An n-gram that more than one prompt has is a template (instructions, a common haystack), not
    content, and is allowed.
    """

    def __init__(self, prompts: Iterable[Sequence[int]], n: int) -> None:
        self.n = n
        prompt_of: dict[int, int] = {}
        for number, prompt in enumerate(prompts):
            for gram in self._grams(prompt):
                prompt_of[gram] = number if prompt_of.get(gram, number) == number else -1
        self._content = frozenset(gram for gram, number in prompt_of.items() if number >= 0)

    @property
    def sha256(self) -> str:
        """Of the set of n-grams."""
        text = ",".join(map(str, sorted(self._content)))
        return hashlib.sha256(text.encode()).hexdigest()

    def matches(self, ids: Sequence[int]) -> bool:
        """Whether a document repeats a passage of an evaluation prompt."""
        return not self._content.isdisjoint(self._grams(ids))

    def _grams(self, ids: Sequence[int]) -> set[int]:
        return {_hash(ids[i : i + self.n]) for i in range(len(ids) - self.n + 1)}


def _hash(gram: Sequence[int]) -> int:
    digest = hashlib.blake2b(",".join(map(str, gram)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
