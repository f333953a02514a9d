"""The model is trained on the wording of the tasks that it is shown with."""

import pytest

from distill.data.tiny_corpus import wording
from evalkit.core.errors import EvalkitError
from evalkit.tasks.needle import draft
from evalkit.tasks.ruler import niah, templates


@pytest.fixture
def official(monkeypatch):
    monkeypatch.setenv("EVALKIT_OFFLINE", "1")
    try:
        return templates.specs()["niah_single_1"]
    except EvalkitError as error:
        pytest.skip(f"RULER's package is not at hand: {error}")


def test_singular_form_is_ruler(official):
    ours = wording.wordings()["ruler"]
    whole = niah.singular(official.template) + niah.singular(official.answer_prefix)
    filled = whole.format(type_needle_v="number", query="{key}", context="{context}")
    assert filled == ours.intro + "{context}" + ours.question + ours.answer


def test_plural_form_is_ruler(official):
    ours = wording.plural()
    whole = official.template + official.answer_prefix
    filled = whole.format(type_needle_v="numbers", query="{query}", context="{context}")
    assert filled == ours.intro + "{context}" + ours.question + ours.answer


def test_needles_are_those_of_the_tasks():
    entries = wording.wordings()
    needle = niah.NEEDLE.format(kind="numbers", key="{key}", value="{value}")
    assert entries["ruler"].needle == needle
    assert entries["access"].needle == draft.NEEDLE


def test_access_wording_is_the_needle_task():
    ours = wording.wordings()["access"]
    whole = draft.PROMPT + draft.QUESTION[0] + draft.PREFIX[0]
    filled = whole.format(keys="{key}", context="{context}")
    assert filled == ours.intro + "{context}" + ours.question + ours.answer


def test_haystacks_are_those_of_the_tasks():
    from evalkit.tasks.needle import haystacks as needle_haystacks
    from evalkit.tasks.ruler import haystacks as ruler_haystacks

    stacks = wording.haystacks()
    assert set(stacks["filler"].units) == set(needle_haystacks.FILLER)
    assert stacks["repeat"].units == (ruler_haystacks.NOISE,)
