"""The small model's training text: a pure function, and exactly the tasks' wording."""

import hashlib
import json
import re

import pytest

from distill.data.tiny_corpus import text, tokenizer, wording
from recipes.tiny import exams, train

TOKENIZER = tokenizer.build()


@pytest.mark.parametrize("length", [96, 256, 512])
def test_same_arguments_same_text(length):
    first, again = (text.example(3, 41, length) for _ in range(2))
    assert first == again
    assert text.example(4, 41, length) != first
    assert text.example(3, 42, length) != first


def test_text_is_frozen():
    made = [(t.ids, t.kinds) for t in (text.example(0, i, 256) for i in range(50))]
    digest = hashlib.sha256(json.dumps(made).encode()).hexdigest()
    assert digest == "d1188a6ccf05dfacb5a07d06f1990271cdd4c30ecc4efa6fcd3464ea673a481a"


@pytest.mark.parametrize("length", [96, 256, 1024])
def test_texts_fill_their_length_and_come_back(length):
    for index in range(40):
        made = text.example(1, index, length)
        assert len(made.ids) == len(made.kinds) == length
        real = [token for token in made.ids if token != tokenizer.PAD]
        assert real[0] == tokenizer.BOS
        assert TOKENIZER(TOKENIZER.decode(real[1:]))["input_ids"] == real


def test_every_answer_is_a_needle_before_it_and_ends():
    plural = 0
    for index in range(100):
        made = text.example(2, index, 256)
        at, asked = 0, 0
        while at < len(made.kinds):
            if made.kinds[at] != text.ANSWER:
                at += 1
                continue
            end = made.kinds.index(text.STOP, at)
            assert set(made.kinds[at:end]) == {text.ANSWER}
            numbers = re.findall(r"\d+", TOKENIZER.decode(made.ids[at:end]))
            before = re.findall(r"\d+", TOKENIZER.decode(made.ids[:at]))
            assert numbers and all(len(number) == text.DIGITS for number in numbers)
            assert set(numbers) <= set(before)
            assert made.kinds[end : end + 2] == [text.STOP] * 2
            assert made.ids[end + 1] == tokenizer.EOS
            asked, plural, at = asked + 1, plural + (len(numbers) > 1), end + 2
        assert asked
    assert 0 < plural < 30


def test_batches_of_a_step_differ_by_shard_and_step():
    phase = train.PHASES[-1]
    ids = [train.draw_batch(0, step, shard, phase)[0] for step in (7, 8) for shard in (0, 1)]
    flat = [tuple(row) for batch in ids for row in batch.tolist()]
    assert len(set(flat)) == len(flat)
    assert train.draw_batch(0, 7, 0, phase)[0].equal(ids[0])


@pytest.mark.parametrize("name", list(exams.EXAMS))
def test_exams_fit_and_hold_their_answer(name):
    paper = exams.make_paper(name, 5, 256, seed=3)
    assert paper.ids.shape == (5, 256)
    for row, end, key, value in zip(paper.ids, paper.prompt, paper.keys, paper.values, strict=True):
        prompt = TOKENIZER.decode(row[:end], skip_special_tokens=True)
        assert value in prompt
        assert key in prompt
        answer = [t for t in row[end:].tolist() if t != tokenizer.PAD]
        assert TOKENIZER.decode(answer) == f" {value}.<eos>"


def test_key_words_do_not_occur_in_the_sentences():
    # The type flags of the start would mark them as keys.
    for word in wording.adjectives():
        token = tokenizer.vocabulary()[" " + word]
        for stack in wording.haystacks().values():
            assert token not in [t for unit in stack.units for t in text.encode(" " + unit)]
