"""Text to sequences: packing, splits, what is excluded, what is refused."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoTokenizer

from distill.config.train import DataConfig
from distill.data.ngram_filter import NgramFilter
from distill.data.packing import pack, prepare
from distill.data.sources import documents, prompts_of
from distill.errors import DistillError
from tests.paths import TINY_MODEL


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(TINY_MODEL)


def config(**options):
    base = {"length": 10, "train": 3, "held_out": 1, "calibration": 1, "shortest": 4}
    return DataConfig.model_validate(base | options)


def packed(docs, tokenizer, exclude=None, **options):
    return pack(iter(docs), config(**options), tokenizer, exclude)


def rows(split):
    return [row[:n].tolist() for row, n in zip(split.ids, split.lengths.tolist(), strict=True)]


def doc(start, length):
    return list(range(start, start + length))


def test_single_keeps_sequences_within_documents_and_documents_within_splits(tokenizer):
    docs = [doc(100, 25), doc(200, 2), doc(300, 10), doc(400, 23), doc(500, 9)]
    splits, counts = packed(docs, tokenizer)
    assert rows(splits["calibration"]) == [doc(100, 10)]
    assert rows(splits["held_out"]) == [doc(300, 10)]  # nothing more of the first document
    assert rows(splits["train"]) == [doc(400, 10), doc(410, 10), doc(500, 9)]  # 3 left: too short
    assert counts == {"documents": 5, "excluded": 0, "too_short": 1}
    batch = splits["train"].batch([2])
    assert batch.ids.shape == (1, 9)
    assert batch.valid.all()
    both = splits["train"].batch([0, 2])
    assert both.valid.sum(1).tolist() == [10, 9]
    assert both.ids[1, 9] == tokenizer.pad_token_id


def test_join_fills_with_whole_documents(tokenizer):
    end = tokenizer.eos_token_id
    docs = [doc(100, 4), doc(200, 4), doc(300, 3), doc(400, 12), doc(500, 4), doc(600, 9)]
    splits, _ = packed(docs, tokenizer, pack="join", train=1)
    assert rows(splits["calibration"]) == [[*doc(100, 4), end, *doc(200, 4), end]]
    assert rows(splits["held_out"]) == [doc(400, 10)]
    assert rows(splits["train"]) == [[*doc(500, 4), end]]  # the next does not fit


def test_too_little_text_is_refused_with_counts(tokenizer):
    with pytest.raises(DistillError, match=r"gives 2 of 3 sequences of the train split"):
        packed([doc(100, 10), doc(200, 10), doc(300, 20)], tokenizer)


def test_documents_that_repeat_an_evaluation_prompt_are_left_out(tokenizer):
    template = doc(900, 6)
    prompts = [[*template, *doc(100, 8)], [*template, *doc(200, 8)]]
    ngrams = NgramFilter(prompts, 5)
    assert ngrams.matches(doc(100, 8))
    assert ngrams.matches([1, 2, *doc(201, 5)])
    assert not ngrams.matches([*template, 1, 2, 3])  # what all prompts share is no content
    assert not ngrams.matches(doc(100, 4))
    docs = [doc(300, 10), doc(101, 9), doc(400, 10), doc(500, 10), doc(600, 10), doc(700, 10)]
    splits, counts = packed(docs, tokenizer, ngrams)
    assert counts["excluded"] == 1
    assert rows(splits["held_out"]) == [doc(400, 10)]


def test_prepared_data_is_read_again_and_guarded(tokenizer, tmp_path):
    text = tmp_path / "text.jsonl"
    text.write_text(
        "".join(json.dumps({"text": "The grass is green. " * 8}) + "\n" for _ in range(5))
    )
    options = config(source={"kind": "text", "paths": ["*.jsonl"]}, length=16)
    first = prepare(options, tokenizer, tmp_path, tmp_path / "data", None)
    text.unlink()
    again = prepare(options, tokenizer, tmp_path, tmp_path / "data", None)
    assert torch.equal(first.splits["train"].ids, again.splits["train"].ids)
    assert again.sha256 == first.sha256
    assert again.facts["tokens"]["train"] == int(first.splits["train"].lengths.sum())
    with pytest.raises(DistillError, match="another config"):
        prepare(config(length=12), tokenizer, tmp_path, tmp_path / "data", None)
    with pytest.raises(DistillError, match="excluded_ngrams"):
        prepare(options, tokenizer, tmp_path, tmp_path / "data", NgramFilter([doc(0, 9)], 4))
    file = tmp_path / "data" / "tokens.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    with pytest.raises(DistillError, match="damaged"):
        prepare(options, tokenizer, tmp_path, tmp_path / "data", None)


def test_local_sources(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("The sky is blue.")
    (tmp_path / "b.jsonl").write_text('{"body": "The sun is yellow."}\n')
    (tmp_path / "c.csv").write_text("x")

    def read(*paths, column="body"):
        options = config(source={"kind": "text", "paths": paths, "column": column})
        return [
            tokenizer.decode(d, skip_special_tokens=True)
            for d in documents(options, tokenizer, tmp_path)
        ]

    assert read("*.txt", "b.jsonl") == ["The sky is blue.", "The sun is yellow."]
    with pytest.raises(DistillError, match=r"no file nothing\*"):
        read("nothing*")
    with pytest.raises(DistillError, match=r"b\.jsonl:1 has no text field title \(fields: body\)"):
        read("b.jsonl", column="title")
    with pytest.raises(DistillError, match=r"c\.csv: use"):
        read("c.csv")
    with pytest.raises(DistillError, match="no such file"):
        list(prompts_of(["missing.jsonl"], tmp_path))


def test_parquet_and_hub_are_streamed(tokenizer, tmp_path, monkeypatch):
    import datasets

    datasets.Dataset.from_dict({"text": ["The sky is blue."]}).to_parquet(tmp_path / "d.parquet")
    local = config(source={"kind": "text", "paths": ["d.parquet"]})
    assert len(list(documents(local, tokenizer, tmp_path))) == 1
    asked = {}

    def load(name, subset, **kwargs):
        asked.update(kwargs, name=name, subset=subset)
        return iter([{"text": "Here we go."}])

    monkeypatch.setattr(datasets, "load_dataset", load)
    hub = config(source={"kind": "hub", "name": "a/b", "revision": "abc", "config": "en"})
    assert len(list(documents(hub, tokenizer, tmp_path))) == 1
    assert asked == {
        "name": "a/b",
        "subset": "en",
        "split": "train",
        "revision": "abc",
        "streaming": True,
    }


def test_the_tiny_generator_gives_no_padding_and_no_labels(tokenizer, tmp_path):
    stream = documents(config(length=128, source={"kind": "tiny", "seed": 3}), tokenizer, tmp_path)
    first, second = next(stream), next(stream)
    assert first != second
    assert tokenizer.pad_token_id not in first
    assert 64 <= len(first) <= 128
