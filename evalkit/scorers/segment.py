"""Chinese words by jieba, the official tokenizer: loaded when first needed, silent, no cache file.

jieba keeps its dictionary as a marshalled file in the shared temporary folder, where anybody may
have put one; here the dictionary is read from the package itself, once per process.
"""

from __future__ import annotations

import warnings
from functools import cache, lru_cache
from typing import Any

from evalkit.core.errors import EvalkitError


def words(text: str) -> list[str]:
    """jieba's tokens of a text, white space and punctuation included, in order.

    Raises:
        EvalkitError: jieba is not installed.
    """
    return list(_cut(text))


@lru_cache(maxsize=64)
def _cut(text: str) -> tuple[str, ...]:
    """Kept for a while: one answer is compared with several references."""
    return tuple(_tokenizer().cut(text))


@cache
def _tokenizer() -> Any:
    try:
        with warnings.catch_warnings():  # its source has invalid escapes
            warnings.simplefilter("ignore")
            import jieba  # type: ignore[import-untyped]
    except ImportError:
        raise EvalkitError(
            "the Chinese metrics need the package jieba: pip install jieba==0.42.1"
        ) from None
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer
