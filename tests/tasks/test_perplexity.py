"""Texts that are read: the same words whatever the tokenizer's cut, never more than the length."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from evalkit.core.errors import EvalkitError
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import load_tokenizer
from evalkit.tasks.perplexity import PerplexityConfig, build
from evalkit.tasks.registry import TASKS

PROSE = "The grass is green. The sky is blue. Here we go. There and back again. "


@pytest.fixture(scope="module")
def renderer(paper_checkpoint):
    return ChatRenderer(load_tokenizer(paper_checkpoint))


def tasks(folder, text, name="text.txt", **options):
    (folder / name).write_text(text, encoding="utf-8")
    config = PerplexityConfig(**({"lengths": (32,), "documents": 2, "path": name} | options))
    return build(config, folder)


def test_a_text_is_cut_into_documents_that_fill_the_length(tmp_path, renderer):
    words = (PROSE * 20).split()
    (task,) = tasks(tmp_path, PROSE * 20)
    assert (task.name, len(task)) == ("prose@32", 2)
    for index, start in ((0, 0), (1, len(words) // 2)):
        sample = task.sample(index, renderer)
        taken = sample.text.split(" ")
        assert taken == words[start : start + len(taken)]
        assert renderer.count(sample) <= 32
        more = PROSE * 2  # the next word would not have fitted
        longer = f"{sample.text} {words[start + len(taken)]}"
        assert len(renderer.tokenizer.encode(longer)) > 32, more
        prompt = renderer.render(sample)
        assert prompt.max_new_tokens == 0
        assert not sample.chat


def test_lines_are_documents_and_a_short_one_is_read_whole(tmp_path, renderer):
    short = "The sky\u2028is blue."  # a line separator that JSON leaves as it is
    texts = (short, PROSE * 9)
    lines = "".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts)
    (task,) = tasks(tmp_path, lines, "docs.jsonl")
    assert task.sample(0, renderer).text == short
    assert task.sample(1, renderer).text in PROSE * 9


def test_what_cannot_be_read_is_one_line(tmp_path, renderer):
    with pytest.raises(EvalkitError, match=r"text.txt: cannot be read as documents"):
        build(PerplexityConfig(lengths=(8,), path="text.txt"), tmp_path)
    with pytest.raises(EvalkitError, match="1 documents, 2 are asked for"):
        tasks(tmp_path, '{"text": "a b"}\n', "docs.jsonl")
    with pytest.raises(EvalkitError, match=r"docs.jsonl:2: no text in the field text"):
        tasks(tmp_path, '{"text": "a b"}\n{"txt": ""}\n', "docs.jsonl")
    with pytest.raises(EvalkitError, match="a text of 1 words cannot be cut into 2"):
        tasks(tmp_path, "word")
    (task,) = tasks(tmp_path, "The sky. The sky.", context=20)
    with pytest.raises(EvalkitError, match=r"prose@32: document 0 has \d tokens, context is 20"):
        task.sample(0, renderer)
    with pytest.raises(ValidationError, match="context is 32: nothing of 32 is scored"):
        PerplexityConfig(lengths=(32,), context=32)


def test_the_kind_says_that_it_reads():
    assert [kind.name for kind in TASKS.usable() if kind.reads] == ["perplexity"]
