"""Prose of Python's manual: paragraphs of whole sentences, in an order of the seed."""

from __future__ import annotations

import hashlib
import sys

import pytest

from distill.data.python_docs import LEAST_WORDS, pages, paragraphs
from distill.errors import DistillError
from tests.paths import ROOT

PAGE = """The "if" statement
******************

The statement is used for conditional execution, and it selects exactly one
of the suites by evaluating the expressions one by one until one is true.

   if_stmt ::= "if" assignment_expression ":" suite
               ("elif" assignment_expression ":" suite)*

Too short to be prose.

x.real x.imag x.conjugate() foo_bar(baz) __init__ 1 2 3 + 4 - 5 * 6 / 7 // 8 ** 9.
"""


def test_only_prose_is_kept():
    assert list(paragraphs(PAGE)) == [
        "The statement is used for conditional execution, and it selects exactly one of the suites"
        " by evaluating the expressions one by one until one is true."
    ]


def test_the_manual_is_enough_for_the_small_recipes_and_the_seed_orders_it():
    first, again, other = (list(pages(seed)) for seed in (0, 0, 1))
    assert first == again != other
    assert sorted(first) == sorted(other)
    assert sum(map(len, first)) > 200_000
    kept = [block for page in first for block in page.split("\n\n")]
    assert all(len(block.split()) >= LEAST_WORDS for block in kept)


def test_the_card_has_the_counts_and_the_hash_of_the_version_that_it_names():
    card = (ROOT / "data_cards" / "python_docs.md").read_text(encoding="utf-8")
    named = ".".join(map(str, sys.version_info[:3]))
    if f"of Python {named}," not in card:
        pytest.skip(f"the card is about another Python than {named}")
    text = list(pages(0))
    assert hashlib.sha256("\f".join(text).encode()).hexdigest() in card
    for count in (len(text), sum(map(len, text))):
        assert f": {count}\n" in card


def test_a_python_without_its_manual_is_told_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(DistillError, match="no module pydoc_data"):
        next(pages(0))
