"""RULER's generators in wording of our own: everything here runs without a download."""

import hashlib
import os
import re
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.data.documents import Pool, Question
from evalkit.data.essays import prose
from evalkit.tasks.common.fit_length import Fitter
from evalkit.tasks.ruler import RulerConfig, build
from evalkit.tasks.ruler.config import APPLIES, ESSAYS
from evalkit.tasks.ruler.task import FAMILIES
from tests.paths import ROOT
from tests.tasks.fakes import TASKS, FakeRenderer, FakeTokenizer, digest, ruler

pytestmark = pytest.mark.usefixtures("own_wording")
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
LENGTHS = {"vt": 1024, "cwe": 1024, "niah_multikey_3": 1024}
CELLS = [(name, LENGTHS.get(name, 512)) for name in TASKS]


def used(sample, renderer):
    return len(renderer.render(sample).token_ids) + sample.max_new_tokens


@pytest.mark.parametrize(("name", "length"), CELLS)
def test_any_subset_in_any_order_gives_the_same_samples(name, length, renderer):
    every = [ruler(name, length).sample(i, renderer) for i in range(4)]
    fresh = ruler(name, length)
    assert fresh.sample(3, FakeRenderer()) == every[3]
    assert fresh.sample(1, FakeRenderer()) == every[1]
    assert [sample.id for sample in every] == [f"{name}@{length}/{i}" for i in range(4)]
    assert len({sample.text for sample in every}) == 4


def test_the_samples_are_pinned(renderer):
    """Another value here means that generated samples have changed: runs of before do not pair."""
    made = [digest(ruler(*cell).sample(i, renderer)) for cell in CELLS for i in range(3)]
    assert hashlib.sha256(" ".join(made).encode()).hexdigest()[:16] == "6af05450deef10fb"


@pytest.mark.parametrize("name", ["niah_multikey_3", "cwe"])
def test_another_process_gives_the_same_samples(name, renderer):
    command = [sys.executable, "-m", "tests.tasks.fakes", name, "1024", "2,0"]
    environment = {**os.environ, "PYTHONHASHSEED": "4321"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    task = ruler(name, 1024)
    assert done.stdout.split() == [digest(task.sample(i, renderer)) for i in (2, 0)], done.stderr


@pytest.mark.parametrize(("name", "length"), CELLS)
def test_seed_and_length_change_the_sample(name, length, renderer):
    base = ruler(name, length).sample(0, renderer)
    assert ruler(name, length, seed=43).sample(0, renderer).references != base.references
    assert ruler(name, length + 1).sample(0, renderer).references != base.references


@pytest.mark.parametrize(("name", "length"), [*CELLS, ("vt", 5000), ("niah_multikey_2", 4096)])
def test_the_budget_is_kept_and_one_step_more_would_break_it(name, length, renderer):
    task = ruler(name, length)
    for index in range(5):
        sample = task.sample(index, renderer)
        assert used(sample, renderer) <= length
        draft = FAMILIES[task.cell.spec.family](task.cell, index, renderer)
        k = next(k for k in range(4000) if draft.grid.at(k) == sample.meta["units"])
        assert draft.build(draft.grid.at(k)) == sample
        assert used(draft.build(draft.grid.at(k + 1)), renderer) > length


@given(length=st.integers(300, 2500), index=st.integers(0, 499), name=st.sampled_from([*TASKS]))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_length_is_kept_or_refused_by_name(length, index, name):
    renderer = FakeRenderer()
    try:
        sample = ruler(name, length).sample(index, renderer)
    except EvalkitError as error:
        assert str(error).startswith(f"{name}@{length}: too short")
    else:
        assert length * 0.5 < used(sample, renderer) <= length


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("length", [1, 100, 190])
def test_too_short_a_length_fails_by_name(name, length, renderer):
    with pytest.raises(EvalkitError, match=rf"^{name}@{length}: too short for this task"):
        ruler(name, length).sample(0, renderer)


def test_most_samples_are_rendered_once(renderer):
    task = ruler("niah_multikey_2", 8192)
    task.sample(0, renderer)
    renderer.calls = 0
    for index in range(1, 21):
        task.sample(index, renderer)
    assert renderer.calls <= 28


def test_a_needle_prompt_by_hand(renderer):
    task = ruler("niah_single_1", 320, key_adjectives=("red",), key_nouns=("cat",), value_digits=4)
    sample = task.sample(0, renderer)
    (value,) = sample.references
    lines = sample.text.split("\n")
    assert lines.pop(0) == "A codes of kind number is here."
    assert lines.pop() == "What is the number for red-cat?"
    assert lines.count(f"One of the special magic numbers for red-cat is: {value}.") == 1
    assert lines.count(NOISE) == len(lines) - 1 == sample.meta["units"] == 5
    assert re.fullmatch(r"[1-9]\d{3}", value)
    assert sample.answer_prefix == " The number for red-cat is"
    assert (sample.metric, sample.max_new_tokens, sample.task) == ("ruler_all", 128, task.name)
    assert sample.meta["question"] == "What is the number for red-cat?"
    place = next(i for i, line in enumerate(lines) if "magic" in line)
    assert sample.meta["depth"] == 100 * place / 5


@pytest.mark.parametrize("name", ["niah_multiquery", "niah_multivalue"])
def test_four_values_are_asked_in_the_plural(name, renderer):
    sample = ruler(name, 1024).sample(0, renderer)
    assert len(sample.references) == len(set(sample.references)) == 4
    keys = sample.meta["keys"]
    assert len(keys) == (4 if name == "niah_multiquery" else 1)
    joined = ", ".join(keys[:-1]) + ", and " + keys[-1] if len(keys) > 1 else keys[0]
    assert sample.answer_prefix == f" The numbers for {joined} are"
    assert sample.text.startswith("Some codes of kind numbers are here.\n")
    lines = [f"One of the special magic numbers for {k} is: {v}." for k, v in _pairs(sample)]
    assert all(sample.text.count(line) == 1 for line in lines)


@pytest.mark.parametrize("name", ["niah_multiquery", "niah_multivalue"])
def test_needles_stand_in_any_order_at_the_depths_told(name, renderer):
    task = ruler(name, 1024)
    in_order = []
    for index in range(20):
        sample = task.sample(index, renderer)
        lines = sample.text.split("\n")[1:-1]
        noise = [sum("magic" not in line for line in lines[:i]) for i in range(len(lines))]
        at = {line.split()[-1][:-1]: noise[i] for i, line in enumerate(lines) if "magic" in line}
        depths = [100 * at[value] / sample.meta["units"] for value in sample.references]
        assert sample.meta["depths"] == pytest.approx(depths, abs=0.051)
        assert sample.meta["depth"] == sample.meta["depths"][0]
        in_order.append(depths == sorted(depths))
    assert sum(in_order) < 8


def _pairs(sample):
    keys = sample.meta["keys"]
    return zip(keys * (4 // len(keys)), sample.references, strict=True)


@pytest.mark.parametrize("name", ["niah_multikey_2", "niah_multikey_3"])
def test_distractors_never_share_a_key_or_a_value(name, renderer):
    task = ruler(name, 4096)
    for index in range(5):
        sample = task.sample(index, renderer)
        found = re.findall(r"special magic \w+ for (.+?) is: (\S+)\.", sample.text)
        keys, values = zip(*found, strict=True)
        assert len(found) == sample.meta["units"] + 1
        assert len(set(keys)) == len(set(values)) == len(found)
        assert dict(found)[sample.meta["keys"][0]] == sample.references[0]
        assert sample.text.count(sample.references[0]) == 1


def test_needles_are_put_everywhere(renderer):
    task = ruler("niah_single_1", 1024)
    depths = [task.sample(i, renderer).meta["depth"] for i in range(60)]
    assert min(depths) < 15
    assert max(depths) > 85
    assert len(set(depths)) > 10


def test_variable_tracking_states_one_chain_and_solves_another_first(renderer):
    sample = ruler("vt", 1024).sample(3, renderer)
    example, task = sample.text.split("\n\n\n\n")
    value = re.search(r"have the value (\d{5})\?$", task)[1]
    chain = re.findall(r"VAR ([A-Z]{5}) = (?:VAR )?(\w+)", task)
    assert [name for name, _ in chain] == list(sample.references)
    assert [source for _, source in chain] == [value, *sample.references[:-1]]
    assert sample.answer_prefix == f" Answer: 5 variables have the value {value}: "
    names = example.split(": ")[-1].split()
    assert re.findall(r"VAR ([A-Z]{3}) =", example) == names
    assert (
        f" Answer: 5 variables have the value {re.search('value (.*)[?]', example)[1]}" in example
    )
    tokens = len(FakeTokenizer().encode(example.strip(), add_special_tokens=False))
    line = len(FakeTokenizer().encode(f"{NOISE}\n", add_special_tokens=False))
    assert 500 - 30 - 5 * line < tokens <= 500 - 30


@pytest.mark.parametrize(("length", "often", "seldom"), [(2048, 6, 1), (8192, 30, 3)])
def test_common_words_occur_as_often_as_said(length, often, seldom, renderer):
    sample = ruler("cwe", length).sample(0, renderer)
    example, task = sample.text.split("\nA list.\n")
    words = re.findall(r"\d+\. (.*?)(?= \d+\.|\nQ)", task)
    assert [int(n) for n in re.findall(r"(\d+)\. ", task)] == list(range(1, len(words) + 1))
    counts = {word: words.count(word) for word in set(words)}
    assert {word for word, count in counts.items() if count == often} == set(sample.references)
    assert sorted(set(counts.values())) == [seldom, often]
    assert len(counts) == sample.meta["units"]
    shown = example.split("are:")[1]
    assert re.match(r"1\. .* 10\. ", shown)


def test_the_asked_coded_words_are_ranks_two_to_four(renderer):
    for length in (400, 2000):
        sample = ruler("fwe", length).sample(1, renderer)
        words = sample.text.removeprefix("Coded words. ").split("\n")[0].split(" ")
        counts = {word: words.count(word) for word in set(words)}
        ranked = sorted(counts, key=counts.get, reverse=True)
        assert ranked[0] == "..."
        assert set(ranked[1:4]) == set(sample.references)
        assert counts[ranked[3]] > counts[ranked[4]]
        assert all(re.fullmatch("[a-z]{6}", word) for word in ranked[1:])


def test_documents_come_once_each_with_the_gold_one_among_them(monkeypatch, renderer):
    documents = tuple(f"Document text number {i}." for i in range(37))
    questions = (Question("Which is it?", ("7", "seven"), (7,), (5, 6, 8)),) * 5
    monkeypatch.setattr("evalkit.tasks.ruler.qa.pool", lambda name: Pool(questions, documents))
    for length, shown in ((350, 20), (4096, 37)):
        task = ruler("qa_1", length)
        for index in range(5):
            sample = task.sample(index, renderer)
            assert sample.meta["units"] == shown
            blocks = re.findall(r"Document (\d+):\nDocument text number (\d+)\.", sample.text)
            assert [int(i) for i, _ in blocks] == list(range(1, shown + 1))
            numbers = [int(number) for _, number in blocks]
            assert len(set(numbers)) == shown
            assert {5, 6, 7, 8} <= set(numbers)
            assert sample.meta["gold_documents"] == [1 + numbers.index(7)]
            assert sample.references == ("7", "seven")
            assert sample.metric == "ruler_part"
            assert sample.cluster == f"qa_1@{length}/document 7"
            assert used(sample, renderer) <= length
    with pytest.raises(EvalkitError, match=r"^qa_1@350: sample 5, but squad has 5 questions"):
        ruler("qa_1", 350).sample(5, renderer)


def test_small_models_get_small_vocabularies_and_it_shows(tmp_path, renderer):
    (tmp_path / "nouns.txt").write_text("cat\ndog\ncow\npig\nant\nbee\n", encoding="utf-8")
    config = RulerConfig(
        tasks=("niah_multikey_2",),
        lengths=(512,),
        samples=3,
        key_adjectives=("red", "big", "old", "new"),
        key_nouns="nouns.txt",
        value_digits=4,
        distractors=20,
        tokens_to_generate=8,
    )
    (task,) = build(config, tmp_path)
    assert task.name == "niah_multikey_2@512"
    assert len(task) == 3
    assert list(task.deviations) == [
        "key_adjectives",
        "key_nouns",
        "value_digits",
        "distractors",
        "tokens_to_generate",
    ]
    assert task.deviations["distractors"] == 20
    assert task.deviations["key_nouns"].startswith("6 words, sha256 ")
    sample = task.sample(2, renderer)
    assert sample.text.count("special magic numbers for") == 21
    assert re.search(r"for (red|big|old|new)-(cat|dog|cow|pig|ant|bee) is: \d{4}\.", sample.text)
    assert sample.max_new_tokens == 8


def test_official_values_are_no_deviations():
    task = ruler("niah_multikey_2", 512, value_digits=7, tokens_to_generate=128, num_keys=1)
    assert task.deviations == {}
    assert ruler("vt", 512, tokens_to_generate=8).deviations == {"tokens_to_generate": 8}
    assert ruler("niah_single_1", 512, num_keys=4, step=1).deviations == {"num_keys": 4, "step": 1}


def test_more_needles_and_smaller_steps(renderer):
    sample = ruler("niah_single_1", 600, num_keys=7, step=1).sample(0, renderer)
    assert sample.text.count("special magic") == 7
    assert sample.meta["units"] >= 7
    assert 600 - used(sample, renderer) < 40


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"distractors": 2, "num_keys": 3}, "2 distractors hold no 3 needles"),
        ({"distractors": 200}, "too short for this task"),
        ({"key_adjectives": ("red",), "key_nouns": ("a", "b")}, "too few distinct keys"),
        ({"value_digits": 1}, "too few distinct numbers"),
    ],
)
def test_impossible_settings_are_refused_by_name(more, says, renderer):
    with pytest.raises(EvalkitError, match=rf"^niah_multikey_2@512: .*{says}"):
        ruler("niah_multikey_2", 512, **more).sample(0, renderer)


def test_a_sample_that_is_not_there_is_refused(renderer):
    with pytest.raises(EvalkitError, match=r"^vt@1024: no sample 5 among 5$"):
        ruler("vt", 1024, samples=5).sample(5, renderer)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tasks": ["niah_singel_1"]}, "did you mean niah_single_1?"),
        ({"tasks": ["vt", "vt"]}, "twice"),
        ({"lengths": []}, "lengths"),
        ({"lengths": [0]}, "lengths"),
        ({"distractor": 3}, "did you mean distractors?"),
        ({"tasks": ["vt"], "distractors": 3}, "concerns none of the tasks"),
        ({"samples": 0}, "samples"),
    ],
)
def test_recipe_mistakes_are_named(change, says):
    data = {"kind": "ruler", "tasks": ["niah_multikey_2"], "lengths": [512], **change}
    with pytest.raises(EvalkitError) as error:
        parse(data, RulerConfig, "recipe.toml")
    assert says in str(error.value)


def test_the_estimate_does_not_depend_on_the_samples_made_before(renderer):
    """Two orders, a tokenizer that makes the estimate useless: still the same samples."""

    class Uneven(FakeTokenizer):
        def encode(self, text, *, add_special_tokens=True):
            ids = super().encode(text, add_special_tokens=add_special_tokens)
            return ids * (1 + len(text) % 3)

    one, two = (ruler("niah_multikey_2", 3000) for _ in range(2))
    first = [one.sample(i, FakeRenderer(Uneven())) for i in (0, 1, 2)]
    second = [two.sample(i, FakeRenderer(Uneven())) for i in (2, 1, 0)]
    assert first == second[::-1]
    assert isinstance(one._fitter, Fitter)


def test_another_haystack_is_a_departure_that_shows(renderer):
    """Small vocabularies have no essays: such tasks then run in noise, and say so."""
    task = ruler("niah_multikey_2", 600, haystack="repeat", step=1)
    assert task.deviations["haystack"] == "repeat"
    sample = task.sample(0, renderer)
    assert "grass" in sample.text
    assert all(sample.text.count(value) == 1 for value in sample.references)
    official = ruler("niah_multivalue", 600, haystack="repeat", step=1)
    assert "haystack" not in official.deviations
    assert len(official.sample(0, renderer).references) == 4
    lines = ruler("niah_single_1", 600, haystack="needle", step=1).sample(0, renderer)
    assert "grass" not in lines.text


def test_essays_of_ones_own_begin_at_a_sentence_and_are_whole(renderer, monkeypatch):
    """Every sample has a cut of its own; officially all begin with the first word."""
    tale = prose(" ".join(f"This is sentence number {i} of a long tale." for i in range(900)))
    monkeypatch.setattr("evalkit.tasks.ruler.niah.essays", lambda: tale)
    options = {"haystack": "essay", "step": 10, "num_keys": 3, "samples": 40}
    official = ruler("niah_single_1", 700, **options)
    own = ruler("niah_single_1", 700, own_essays=True, **options)
    texts = {}
    for name, task in (("official", official), ("own", own)):
        samples = [task.sample(i, renderer) for i in range(40)]
        assert all(600 < used(sample, renderer) <= 700 for sample in samples)
        assert len({sample.cluster for sample in samples}) == 40
        texts[name] = [context(sample) for sample in samples]
    whole = tale.text
    assert all(whole.startswith(text) for text in texts["official"])
    assert all(text in whole and text.startswith("This is") for text in texts["own"])
    assert len({text[:40] for text in texts["own"]}) > 30
    again = [own.sample(i, FakeRenderer()) for i in (7, 0)]
    assert [context(sample) for sample in again] == [texts["own"][7], texts["own"][0]]


def context(sample):
    """The haystack without its needles."""
    text = sample.text.split("\n", 1)[1].rsplit("\n", 1)[0]
    return " ".join(re.sub(r"One of the special magic \S+ for .+? is: \S+\.", "", text).split())


def test_essays_too_short_for_cuts_begin_where_they_begin(renderer, monkeypatch):
    tale = prose(" ".join(f"This is sentence number {i} of a tale." for i in range(20)))
    monkeypatch.setattr("evalkit.tasks.ruler.niah.essays", lambda: tale)
    task = ruler("niah_single_1", 700, haystack="essay", step=10, own_essays=True)
    assert context(task.sample(0, renderer)) == tale.text


def test_essays_of_ones_own_are_a_departure_that_shows():
    assert RulerConfig(tasks=("niah_single_2",), lengths=(512,), own_essays=True)
    assert APPLIES["own_essays"] == ESSAYS
    with pytest.raises(EvalkitError, match="own_essays concerns none of the tasks"):
        data = {"kind": "ruler", "tasks": ["vt"], "lengths": [512], "own_essays": True}
        parse(data, RulerConfig, "recipe.toml")
