"""Co-reference: the asked reply against the prompt's own text, budget, purity."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.scorers import score
from evalkit.tasks.coreference import CoreferenceConfig, build
from evalkit.tasks.coreference.draft import ordinal
from tests.paths import ROOT
from tests.tasks.fakes import FakeRenderer, digest

ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6}
ORDINALS |= {"seventh": 7, "eighth": 8} | {f"{n}th": n for n in range(9, 20)}


def cell(equal=4, length=3000, **more):
    config = {"kind": "coreference", "equal": (equal,), "lengths": (length,), **more}
    (task,) = build(parse(config, CoreferenceConfig, "r"), Path())
    return task


def used(sample, renderer):
    return len(renderer.render(sample).token_ids) + sample.max_new_tokens


def rounds(sample):
    return re.findall(r"^User: (.+)\nWriter: (.+)$", sample.text, re.MULTILINE)


def reading(sample):
    """The answer of a reader who takes the prompt at its word."""
    match = re.search(
        r'The user asked (\d+) times: "(.+)" Say the reply to the (\w+) of these requests again,'
        r" word for word\. Begin with the word (\w+),",
        sample.text,
    )
    count, request, which, word = match.groups()
    replies = [reply for asked, reply in rounds(sample) if asked == request]
    assert len(replies) == len(set(replies)) == int(count)
    return f"{word} {replies[ORDINALS[which] - 1]}"


@given(
    equal=st.integers(2, 12),
    length=st.integers(600, 6000),
    sentences=st.integers(1, 10),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_who_reads_the_text_finds_the_reply(equal, length, sentences, seed):
    renderer = FakeRenderer()
    task = cell(equal, length, sentences=sentences, seed=seed)
    try:
        sample = task.sample(seed, renderer)
    except EvalkitError as error:
        assert str(error).startswith(f"coreference_{equal}@{length}: too short for this task")
        return
    assert (reading(sample),) == sample.references
    assert score(sample.metric, reading(sample), sample.references) == 1
    assert score("prefixed_exact", f"  {reading(sample)}\n", sample.references) == 1
    assert length - 60 * sentences < used(sample, renderer) <= length
    assert len(rounds(sample)) == sample.meta["rounds"] == sample.meta["units"] + equal


def test_every_occurrence_is_asked_in_turn_and_stands_anywhere(renderer):
    task = cell(4, 3000)
    samples = [task.sample(i, renderer) for i in range(24)]
    assert [s.meta["occurrence"] for s in samples] == [1, 2, 3, 4] * 6
    depths = [s.meta["depth"] for s in samples]
    assert min(depths) < 15
    assert max(depths) > 85
    assert len({s.references for s in samples}) == 24


def test_other_requests_are_near_and_the_word_is_nowhere_else(renderer):
    sample = cell(2, 8000).sample(1, renderer)
    asked = re.search(r'times: "(.+?)" Say', sample.text)[1]
    word = sample.references[0].split()[0]
    assert sample.text.count(word) == 1
    assert re.fullmatch(r"[b-z]{8}", word)
    pattern = re.compile(r"Write a (.+) about (.+) in a (.+) style\.")
    own = pattern.fullmatch(asked).groups()
    apart = [
        sum(a != b for a, b in zip(pattern.fullmatch(text).groups(), own, strict=True))
        for text, _ in rounds(sample)
    ]
    assert apart.count(0) == 2
    assert 0.15 < apart.count(1) / len(apart) < 0.6
    assert "compasss" not in sample.text


def test_another_reply_to_the_same_request_scores_far_below_one(renderer):
    task = cell(4, 3000)
    scores = []
    for index in range(10):
        sample = task.sample(index, renderer)
        asked = re.search(r'times: "(.+?)" Say', sample.text)[1]
        word, _, right = sample.references[0].partition(" ")
        wrong = [reply for text, reply in rounds(sample) if text == asked and reply != right]
        scores += [score(sample.metric, f"{word} {reply}", sample.references) for reply in wrong]
    assert len(scores) == 30
    assert 0.1 < sum(scores) / len(scores) < 0.5
    assert max(scores) < 0.7


def test_the_budget_is_kept_and_one_round_more_would_break_it(renderer):
    task = cell()
    for index in range(5):
        sample = task.sample(index, renderer)
        draft = task._draft(index, renderer)
        assert draft.build(sample.meta["units"]) == sample
        assert used(draft.build(sample.meta["units"] + 1), renderer) > 3000
        tokens = renderer.tokenizer.encode(sample.references[0], add_special_tokens=False)
        assert len(tokens) <= sample.max_new_tokens


def test_any_subset_in_any_order_and_process_gives_the_same_samples(renderer):
    every = [cell().sample(i, renderer) for i in range(4)]
    fresh = cell()
    assert [fresh.sample(i, FakeRenderer()) for i in (3, 0)] == [every[3], every[0]]
    code = (
        "from pathlib import Path\n"
        "from evalkit.tasks.coreference import CoreferenceConfig, build\n"
        "from tests.tasks.fakes import FakeRenderer, digest\n"
        "(task,) = build(CoreferenceConfig(lengths=(3000,), equal=(4,)), Path())\n"
        "print(*(digest(task.sample(i, FakeRenderer())) for i in (2, 0)))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "99"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [digest(every[2]), digest(every[0])], done.stderr


def test_a_long_conversation_is_rendered_a_few_times_only(renderer):
    task = cell(8, 30_000)
    task.sample(0, renderer)
    renderer.calls = 0
    for index in range(1, 5):
        assert 30_000 * 0.99 < used(task.sample(index, renderer), renderer) <= 30_000
    assert renderer.calls <= 4 * 4


def test_cells_by_number_and_length():
    config = parse(
        {"kind": "coreference", "lengths": [4096, 8192]}, CoreferenceConfig, "recipe.toml"
    )
    names = [task.name for task in build(config, Path())]
    assert names == [f"coreference_{n}@{length}" for n in (2, 4, 8) for length in (4096, 8192)]
    chars = cell(2, 20_000, unit="characters")
    assert chars.name == "coreference_2@20000chars"
    sample = chars.sample(0, None)
    assert 20_000 - 700 < len(sample.text) <= 20_000


def test_ordinals():
    shown = [ordinal(n) for n in (1, 8, 9, 11, 12, 13, 21, 22, 23, 64)]
    assert shown == [
        *("first", "eighth", "9th", "11th", "12th", "13th", "21st", "22nd", "23rd", "64th"),
    ]


@pytest.mark.parametrize("length", [1, 200, 600])
def test_too_short_a_length_fails_at_once_by_name(length, renderer):
    with pytest.raises(EvalkitError, match=rf"^coreference_8@{length}: too short for this task"):
        cell(8, length).sample(0, renderer)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"equal": [1]}, "equal"),
        ({"equal": [2, 2]}, "twice"),
        ({"equal": []}, "equal"),
        ({"metric": "ratio"}, "metric"),
        ({"sentence": 2}, "did you mean sentences?"),
    ],
)
def test_recipe_mistakes_are_named(change, says):
    with pytest.raises(EvalkitError) as error:
        parse({"kind": "coreference", "lengths": [512], **change}, CoreferenceConfig, "recipe.toml")
    assert says in str(error.value)
