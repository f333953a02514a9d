"""English prose that every Python installation holds: the reference manual behind `help()`.

The pages of `pydoc_data.topics` (© Python Software Foundation, PSF licence), their paragraphs of
prose without code, tables and signatures. It owes no evaluation anything. What it says differs
between versions of Python: `data.json` keeps the hash of the tokens.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from distill.errors import DistillError

_WORD = re.compile(r"[\"'(“‘]?[A-Za-z][a-z’'-]*[\"')”’.,;:!?]*")
LEAST_WORDS = 12
PLAIN_SHARE = 0.8


def pages(seed: int) -> Iterator[str]:
    """The pages in an order of the seed, each as paragraphs with an empty line between them.

    Raises:
        DistillError: this Python came without its manual.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise DistillError(
            "data.source python_docs: this Python has no module pydoc_data; install its standard"
            " library whole, or name text of yours (kind = 'text')"
        ) from None
    names = sorted(topics)
    random.Random(f"python_docs-{seed}").shuffle(names)
    for name in names:
        page = "\n\n".join(paragraphs(topics[name]))
        if page:
            yield page


def paragraphs(page: str) -> Iterator[str]:
    """Paragraphs of prose, each on one line: whole sentences, most of whose words are plain."""
    for block in re.split(r"\n\s*\n", page):
        text = " ".join(block.split())
        words = text.split()
        plain = sum(_WORD.fullmatch(word) is not None for word in words)
        whole = text[:1].isupper() and text.rstrip("\"')")[-1:] in (".", ":")
        if whole and len(words) >= LEAST_WORDS and plain >= PLAIN_SHARE * len(words):
            yield text
