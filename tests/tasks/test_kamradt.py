"""The original needle test: where the needle stands, what fits, what is refused."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.scorers import score
from evalkit.tasks.needle.kamradt import (
    NEEDLE,
    KamradtConfig,
    Lengths,
    build,
    place,
)
from tests.tasks.fakes import FakeRenderer

PIECES = re.compile(r"\s|[^\s\w]|\w+")


class WordTokenizer:
    """Words, single marks and single spaces; decodes what it encoded."""

    bos_token_id = None

    def __init__(self):
        self.pieces, self.ids = [], {}

    def encode(self, text, *, add_special_tokens=True):
        ids = []
        for piece in PIECES.findall(text):
            if piece not in self.ids:
                self.ids[piece] = len(self.pieces)
                self.pieces.append(piece)
            ids.append(self.ids[piece])
        return ids

    def decode(self, token_ids, *, skip_special_tokens=False):
        return "".join(self.pieces[i] for i in token_ids)


PROSE = " ".join(f"Sentence {i} has some words in it." for i in range(60))


@pytest.fixture
def words():
    return FakeRenderer(WordTokenizer())


def cell(tmp_path, length=1000, text=PROSE, **more):
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    config = {"kind": "needle_kamradt", "path": "text.txt", "lengths": (length,), **more}
    (task,) = build(parse(config, KamradtConfig, "r"), tmp_path)
    return task


def context(sample):
    return sample.text.split("\n\n", 1)[1].rsplit("\n\nWhat is", 1)[0]


def test_a_prompt_by_hand(tmp_path, words):
    task = cell(tmp_path, depths=(0, 50, 100))
    assert (task.name, len(task)) == ("kamradt@1000", 3)
    sample = task.sample(1, words)
    before, after = context(sample).split(NEEDLE)
    needle = len(words.tokenizer.encode(NEEDLE))
    room = 1000 - 200 - needle
    # half of the text, then back behind the last full stop
    half = words.tokenizer.decode(words.tokenizer.encode(f"{PROSE}\n{PROSE}")[: room // 2])
    assert before == half[: half.rindex(".") + 1]
    assert after.startswith(" Sentence ")
    assert len(words.tokenizer.encode(before + after)) == room
    assert sample.text.endswith(
        "\n\nWhat is the best thing to do in San Francisco? Answer from the text alone, short and"
        " direct."
    )
    assert (sample.metric, sample.references) == ("needle_phrases", ("sandwich", "Dolores Park"))
    assert sample.meta["depth"] == 50
    assert sample.meta["depths"] == [pytest.approx(50, abs=2)]
    assert sample.answer_prefix == ""
    assert context(task.sample(0, words)).startswith(NEEDLE)
    assert context(task.sample(2, words)).endswith(NEEDLE)
    assert score(sample.metric, NEEDLE, sample.references) == 1


def test_samples_do_not_depend_on_order(tmp_path, words):
    task = cell(tmp_path, depths={"count": 5})
    every = [task.sample(i, words) for i in range(5)]
    fresh = cell(tmp_path, depths={"count": 5})
    other = FakeRenderer(WordTokenizer())
    assert [fresh.sample(i, other) for i in (4, 2, 0)] == every[::-2]


@given(tokens=st.lists(st.sampled_from([1, 2, 3, 9]), max_size=60), depth=st.floats(0, 100))
@settings(max_examples=200, deadline=None)
def test_the_place_is_that_of_the_original_walk(tokens, depth):
    """The published loop, word for word in its effect: shorten until a full stop is last."""
    if depth == 100:
        assert place(tokens, depth, {9}) == len(tokens)
        return
    head = tokens[: int(len(tokens) * (depth / 100))]
    while head and head[-1] != 9:
        head.pop()
    assert place(tokens, depth, {9}) == len(head)


def test_text_without_full_stops_has_the_needle_in_front(tmp_path, words):
    sample = cell(tmp_path, text="word " * 900, depths=(80,)).sample(0, words)
    assert context(sample).startswith(NEEDLE)
    assert sample.meta["depths"] == [0]


def test_a_short_text_is_said_again(tmp_path, words):
    sample = cell(tmp_path, 3000, text="One. Two. Three.", depths=(50,)).sample(0, words)
    assert context(sample).count("One.") > 150


def test_the_grid_is_the_original_one():
    config = KamradtConfig()
    assert config.sizes()[:4] == (1000, 1441, 1882, 2324)
    assert (len(config.sizes()), config.sizes()[-1]) == (35, 16000)
    assert config.percents()[:4] == (0, 3, 6, 9)
    assert (len(config.percents()), config.percents()[-1]) == (35, 100)
    tasks = build(config, Path())
    assert sum(map(len, tasks)) == 35 * 35
    assert tasks[0].deviations == {}


@pytest.mark.shared
def test_lengths_and_depths_are_those_of_the_published_results(shared):
    lines = (shared / "data" / "needle" / "claude-2.1_responses.jsonl").read_text().splitlines()
    rows = list(map(json.loads, lines))
    config = parse(
        {
            "kind": "needle_kamradt",
            "lengths": {"first": 1000, "last": 200_000, "count": 35},
            "depths": {"spacing": "sigmoid", "count": 35},
        },
        KamradtConfig,
        "recipe.toml",
    )
    published = sorted({row["context_length"] for row in rows})
    assert max(abs(a - b) for a, b in zip(config.sizes(), published, strict=True)) <= 1
    assert config.percents() == tuple(sorted({row["depth_percent"] for row in rows}))


def test_departures_are_told(tmp_path):
    changed = cell(tmp_path, needle=" The code is 7. ", question="What code?", phrases=("7",))
    assert changed.deviations == {
        "needle": " The code is 7. ",
        "question": "What code?",
        "phrases": ("7",),
        "haystack": "text.txt",
    }


def test_what_does_not_fit_is_refused_by_name_and_nothing_is_cut(tmp_path, words):
    with pytest.raises(EvalkitError, match=r"^kamradt@220: too short for this task: 200 tokens of"):
        cell(tmp_path, 220).sample(0, words)
    with pytest.raises(EvalkitError, match=r"^kamradt@1000: .* a buffer of 40 is too small$"):
        cell(tmp_path, buffer=40).sample(0, words)
    with pytest.raises(EvalkitError, match=r"^kamradt@1000: no sample 35 among 35"):
        cell(tmp_path).sample(35, words)
    for kind in ("needle_kamradt", "needle", "ruler"):
        section = {"kind": kind, "lengths": [512], "max_length": 256}
        from tests.tasks.test_registry import recipe

        with pytest.raises(EvalkitError, match="unknown key"):
            recipe(section | ({"tasks": ["vt"]} if kind == "ruler" else {}))


@pytest.mark.parametrize(("content", "says"), [(None, "cannot be read"), (" \n", "without text")])
def test_a_bad_haystack_file_is_refused_when_the_task_is_built(tmp_path, content, says):
    if content is not None:
        (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    with pytest.raises(EvalkitError, match=says):
        build(KamradtConfig(path="a.txt"), tmp_path)


@pytest.mark.usefixtures("official")
def test_essays_are_the_haystack(words):
    task = build(KamradtConfig(lengths=(2000,), depths=(30, 70)), Path())[0]
    for index in range(2):
        sample = task.sample(index, words)
        used = len(words.render(sample).token_ids) + sample.max_new_tokens
        assert 1850 < used <= 2000
        before, after = context(sample).split(NEEDLE)
        assert before.endswith(".")
        assert after[:2].strip()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"phrases": ["beach"]}, "'beach' is not in the needle"),
        ({"phrases": []}, "phrases"),
        ({"lengths": {"first": 10, "last": 5, "count": 3}}, "too near"),
        ({"lengths": [5, 5]}, "twice"),
        ({"depths": [101]}, "depths"),
        ({"needle": " "}, "needle"),
        ({"questions": "x"}, "did you mean question?"),
    ],
)
def test_recipe_mistakes_are_named(change, says):
    with pytest.raises(EvalkitError) as error:
        parse({"kind": "needle_kamradt", **change}, KamradtConfig, "recipe.toml")
    assert says in str(error.value)


def test_even_lengths():
    assert Lengths(first=1, last=10, count=4).values() == (1, 4, 7, 10)
