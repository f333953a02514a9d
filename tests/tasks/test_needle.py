import random
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.data.sentences import split
from evalkit.scorers import score
from evalkit.tasks.needle import NeedleConfig, build, haystacks
from evalkit.tasks.needle.config import Spacing
from evalkit.tasks.needle.draft import listed, place
from tests.tasks.fakes import FakeRenderer

PROSE = " ".join(f"This is sentence number {i} of a long tale." for i in range(300))


def cell(base_dir=Path(), **more):
    (task,) = build(NeedleConfig(**{"lengths": (512,), **more}), base_dir)
    return task


def used(sample, renderer):
    return len(renderer.render(sample).token_ids) + sample.max_new_tokens


def units(sample, joint=" "):
    """The context, cut between units."""
    context = sample.text.split("\n\n", 1)[1].rsplit("\n\n", 1)[0]
    return context.split(joint) if joint == "\n" else split(context)


def test_a_prompt_by_hand(renderer):
    task = cell(
        depths=(0, 50, 100),
        repeats=2,
        key_adjectives=("red",),
        key_nouns=("cat",),
        value_digits=4,
        max_new_tokens=8,
    )
    assert (task.name, len(task)) == ("needle@512", 6)
    sample = task.sample(4, renderer)
    (value,) = sample.references
    assert re.fullmatch(r"[1-9]\d{3}", value)
    assert sample.text.startswith(
        "Somewhere in the text below there are access codes. Remember them.\n\n"
    )
    assert sample.text.endswith("\n\nWhat is the access code for red-cat?")
    assert sample.answer_prefix == " The access code for red-cat is"
    sentences = units(sample)
    needle = f"The access code for red-cat is {value}."
    assert sentences.count(needle) == 1
    assert sample.text.count(value) == 1
    assert {s for s in sentences if s != needle} == set(haystacks.FILLER)
    assert sample.meta == {
        "length": 512,
        "haystack": 4,
        "question": "What is the access code for red-cat?",
        "keys": ["red-cat"],
        "depth": 50,
        "depths": [pytest.approx(50, abs=1)],
        "units": len(sentences) - 1,
    }
    assert (sample.id, sample.task, sample.metric) == ("needle@512/4", "needle@512", "needle_exact")
    assert sample.cluster == "needle@512/haystack 4"
    assert sample.max_new_tokens == 8


@given(
    length=st.integers(150, 3000),
    depth=st.floats(0, 100),
    haystack=st.sampled_from(["filler", "needles"]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_needle_is_where_it_was_asked_and_the_budget_is_full(length, depth, haystack, seed):
    renderer = FakeRenderer()
    task = cell(lengths=(length,), depths=(depth,), haystack=haystack, seed=seed)
    sample = task.sample(0, renderer)
    sentences = units(sample, "\n" if haystack == "needles" else " ")
    needle = f"The access code for {sample.meta['keys'][0]} is {sample.references[0]}."
    before = sentences.index(needle)
    assert abs(before - depth / 100 * (len(sentences) - 1)) <= 0.5
    assert length - 25 < used(sample, renderer) <= length


def test_samples_do_not_depend_on_order(renderer):
    every = [cell(repeats=3).sample(i, renderer) for i in range(15)]
    fresh = cell(repeats=3)
    assert [fresh.sample(i, FakeRenderer()) for i in (14, 0, 7)] == [every[i] for i in (14, 0, 7)]
    assert len({sample.references for sample in every}) == 15


def test_depth_runs_fastest_and_repeats_share_out_the_haystacks(renderer):
    task = cell(depths=(0, 100), repeats=4, haystacks=2)
    samples = [task.sample(i, renderer) for i in range(8)]
    assert [s.meta["depth"] for s in samples] == [0, 100] * 4
    assert [s.meta["haystack"] for s in samples] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert len({s.cluster for s in samples}) == 2
    filler = [[u for u in units(s) if "code" not in u] for s in samples]
    shortest = min(map(len, filler))
    assert filler[0][:shortest] == filler[1][:shortest] == filler[4][:shortest]
    assert filler[0][:shortest] != filler[2][:shortest]


@pytest.mark.parametrize("haystack", ["filler", "needles", "file"])
def test_every_sample_has_a_haystack_of_its_own(haystack, tmp_path, renderer):
    """Sixty samples are sixty units: no two read one order or cut, at whatever depth."""
    (tmp_path / "tale.txt").write_text(PROSE, encoding="utf-8")
    path = {"path": "tale.txt"} if haystack == "file" else {}
    task = cell(tmp_path, repeats=12, haystack=haystack, **path)
    samples = [task.sample(i, renderer) for i in range(len(task))]
    assert len({sample.cluster for sample in samples}) == 60
    joint = "\n" if haystack == "needles" else " "
    texts = [[u for u in units(s, joint) if s.references[0] not in u] for s in samples]
    assert len({tuple(text[:12]) for text in texts}) >= 50  # of 300 cuts some are drawn twice


@pytest.mark.parametrize("haystack", ["filler", "needles"])
def test_several_needles_and_several_asked(haystack, renderer):
    task = cell(
        needles=6, asked=3, depths=(40,), repeats=5, haystack=haystack, lengths=(900,), value="uuid"
    )
    for index in range(5):
        sample = task.sample(index, renderer)
        sentences = units(sample, "\n" if haystack == "needles" else " ")
        codes = dict(
            re.match(r"The access code for (.+) is (\S+)\.", s).groups()
            for s in sentences
            if s.startswith("The access code")
        )
        found = [s for s in sentences if s.startswith("The access code")]
        assert len(codes) == len(set(codes.values())) == len(found)
        assert len(found) == (len(sentences) if haystack == "needles" else 6)
        a, b, c = sample.meta["keys"]
        assert sample.text.endswith(f"What are the access codes for {a}, {b}, and {c}?")
        assert sample.answer_prefix == f" The access codes for {a}, {b}, and {c} are"
        assert sample.references == tuple(codes[key] for key in (a, b, c))
        assert sorted(sample.meta["depths"]) == pytest.approx([40, 60, 80], abs=4)
        assert sample.max_new_tokens == 3 * 48
        assert score(sample.metric, " and ".join(sample.references), sample.references) == 1


def test_lengths_in_characters_need_no_tokenizer():
    class Blind:
        tokenizer = None

        def render(self, sample):
            raise AssertionError("asked for tokens")

        count = render

    task = cell(lengths=(32_000,), unit="characters", depths=(0, 33, 100))
    assert task.name == "needle@32000chars"
    for index in range(3):
        sample = task.sample(index, Blind())
        assert 32_000 - 34 < len(sample.text) + len(sample.answer_prefix) <= 32_000


def test_a_long_prompt_is_rendered_a_few_times_only(renderer):
    task = cell(lengths=(40_000,))
    task.sample(0, renderer)
    renderer.calls = 0
    for index in range(1, 5):
        assert 40_000 * 0.995 < used(task.sample(index, renderer), renderer) <= 40_000
    assert renderer.calls <= 4 * 3


def test_a_file_is_a_haystack(tmp_path, renderer):
    (tmp_path / "tale.txt").write_text(PROSE.replace(". ", ".\n"), encoding="utf-8")
    task = cell(tmp_path, haystack="file", path="tale.txt", repeats=2, depths=(50,))
    first, second = (units(task.sample(i, renderer)) for i in range(2))
    assert first[0] != second[0]
    texts = [s for s in first if s.startswith("This")]
    assert len(texts) == len(first) - 1
    numbers = [int(re.search(r"\d+", s)[0]) for s in texts]
    assert all((b - a) % 300 == 1 for a, b in pairwise(numbers))


def test_a_short_file_is_repeated_and_text_without_full_stops_is_cut(tmp_path, renderer):
    (tmp_path / "log.txt").write_text("word " * 200, encoding="utf-8")
    sample = cell(tmp_path, haystack="file", path="log.txt", lengths=(1500,)).sample(0, renderer)
    assert sample.text.count("word") > 1000
    assert max(len(u.split()) for u in haystacks.cut("word " * 200, split)) == haystacks.LONGEST


@pytest.mark.parametrize(("content", "says"), [(None, "cannot be read"), (" \n", "without text")])
def test_a_bad_haystack_file_is_refused_when_the_task_is_built(tmp_path, content, says):
    if content is not None:
        (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    with pytest.raises(EvalkitError, match=says):
        cell(tmp_path, haystack="file", path="a.txt")


@pytest.mark.usefixtures("official")
def test_essays_are_a_haystack(renderer):
    sample = cell(haystack="essays", lengths=(2000,)).sample(2, renderer)
    assert 1900 < used(sample, renderer) <= 2000


def test_too_short_a_length_fails_at_once_by_name(renderer):
    with pytest.raises(EvalkitError, match=r"^needle@90: too short for this task: .* tokens"):
        cell(lengths=(90,)).sample(0, renderer)
    with pytest.raises(EvalkitError, match=r"^n@90chars: too short for this task: .* characters"):
        cell(lengths=(90,), unit="characters", name="n").sample(0, renderer)


def test_too_few_words_for_the_keys_fail_by_name(renderer):
    few = {"key_adjectives": ("red", "big"), "key_nouns": ("cat", "dog")}
    with pytest.raises(EvalkitError, match=r"^needle@512: 2 adjectives and 2 nouns"):
        cell(haystack="needles", **few).sample(0, renderer)
    assert cell(needles=4, **few).sample(0, renderer).text.count("access code for") == 5


def test_other_needles_never_share_a_key_or_a_value(renderer):
    task = cell(
        haystack="needles",
        lengths=(150,),
        repeats=20,
        key_adjectives=("red", "big", "old"),
        key_nouns=("cat", "dog", "cow"),
        value_digits=1,
        max_new_tokens=8,
    )
    for index in range(100):
        found = re.findall(r"access code for (\S+) is (\d)\.", task.sample(index, renderer).text)
        assert 5 <= len(found) <= 9
        assert len(dict(found)) == len({value for _, value in found}) == len(found)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"asked": 2}, "asked is 2, but needles only 1"),
        ({"haystack": "file"}, "path goes with"),
        ({"path": "a.txt"}, "path goes with"),
        ({"haystacks": 3, "repeats": 2}, "only 2 repeats"),
        ({"lengths": [5, 5]}, "twice"),
        ({"depths": [0, 101]}, "depths"),
        ({"depths": []}, "depths"),
        ({"name": "a@b"}, "name"),
        ({"repeat": 3}, "did you mean repeats?"),
    ],
)
def test_recipe_mistakes_are_named(change, says):
    with pytest.raises(EvalkitError) as error:
        parse({"kind": "needle", "lengths": [512], **change}, NeedleConfig, "recipe.toml")
    assert says in str(error.value)


def test_depths_by_name():
    assert Spacing(count=5).depths() == (0, 25, 50, 75, 100)
    sigmoid = Spacing(spacing="sigmoid", count=35).depths()
    assert (len(sigmoid), sigmoid[0], sigmoid[1], sigmoid[17], sigmoid[-2], sigmoid[-1]) == (
        (35, 0, 0.896, 50, 99.104, 100)
    )
    config = parse(
        {"lengths": [512], "depths": {"spacing": "linear", "count": 3}}, NeedleConfig, "r"
    )
    assert config.percents() == (0, 50, 100)


@given(st.floats(0, 100), st.integers(1, 5000))
def test_a_place_is_inside_the_text(depth, count):
    assert 0 <= place(depth, count) <= count
    assert abs(place(depth, count) - depth * count / 100) <= 0.5


def test_questions_list_their_keys():
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == [
        "a",
        "a and b",
        "a, b, and c",
    ]


def test_filler_comes_in_rounds():
    drawn = haystacks.filler(random.Random(1)).take(30)
    rounds = [drawn[i : i + 10] for i in (0, 10, 20)]
    assert all(set(part) == set(haystacks.FILLER) for part in rounds)
    assert rounds[0] != rounds[1]


@pytest.mark.shared
def test_small_models_have_prompts_in_their_own_tokens(tiny_renderer):
    task = cell(lengths=(256,), value_digits=4, max_new_tokens=8, haystack="needles")
    for index in range(5):
        assert 236 < used(task.sample(index, tiny_renderer), tiny_renderer) <= 256
