"""Development questions: the shapes of the tasks `ruler` and `needle`, one question each.

The product's own task code is the judge of the shipped model; these questions are quick to make
and to score, with every token of the answer known, and serve development and the ceiling.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from distill.data.tiny_corpus import text, wording
from distill.data.tiny_corpus.tokenizer import BOS, EOS, PAD


@dataclass(frozen=True, slots=True)
class Exam:
    """A kind of question: wording, haystack, number of keys (None: as many as fit)."""

    wording: str
    haystack: str
    keys: int | None


EXAMS = {
    "single": Exam("ruler", "repeat", 1),
    "multikey4": Exam("ruler", "repeat", 4),
    "multikey_full": Exam("ruler", "none", None),
    "needle": Exam("access", "filler", 1),
    "needle4": Exam("access", "filler", 4),
    "needle21": Exam("access", "filler", 21),
    "secret4": Exam("secret", "filler", 4),
    "note4": Exam("note", "filler", 4),
    "key4": Exam("key", "repeat", 4),
}


@dataclass(slots=True)
class Paper:
    """Questions of one exam, right padded: [count, time] ids and where each prompt ends."""

    ids: Tensor
    prompt: Tensor
    keys: list[str]
    values: list[str]


ANSWER_LENGTH = text.DIGITS + 3
"""Space, digits, full stop, end of text."""


def _question(rng: random.Random, exam: Exam, length: int) -> tuple[list[int], str, str]:
    entry, stack = wording.wordings()[exam.wording], wording.haystacks()[exam.haystack]
    key, value = f"{wording.adjectives()[0]}-{wording.nouns()[0]}", "1" * text.DIGITS
    ask = text.fill(entry.question + entry.answer, key).ids
    intro = [BOS, *text.encode(entry.intro)]
    room = length - len(intro) - len(ask) - ANSWER_LENGTH
    size = len(text.fill(stack.joint + entry.needle, key, value))
    keys = text.draw_keys(rng, min(exam.keys or room // size, room // size))
    values = [text.draw_value(rng) for _ in keys]
    room -= size * len(keys)
    lines: list[str] = []
    while stack.units:
        unit = rng.choice(stack.units)
        room -= len(text.encode(stack.joint + unit))
        if room < 0:
            break
        lines.append(unit)
    for key, value in zip(keys, values, strict=True):
        lines.insert(rng.randrange(len(lines) + 1), entry.needle.format(key=key, value=value))
    pick = rng.randrange(len(keys))
    asked = (entry.question + entry.answer).format(key=keys[pick])
    body = entry.intro + stack.joint.join(lines) + asked
    return [BOS, *text.encode(body)], keys[pick], values[pick]


def make_paper(name: str, count: int, length: int, seed: int) -> Paper:
    """`count` questions of at most `length` tokens with their answers."""
    rng = random.Random(f"exam-{name}-{length}-{seed}")
    ids, ends, keys, values = [], [], [], []
    for _ in range(count):
        prompt, key, value = _question(rng, EXAMS[name], length)
        answer = [*text.encode(" " + value + "."), EOS]
        ids.append(prompt + answer + [PAD] * (length - len(prompt) - len(answer)))
        ends.append(len(prompt))
        keys.append(key)
        values.append(value)
    return Paper(torch.tensor(ids), torch.tensor(ends), keys, values)


def score(logits: Tensor, ids: Tensor, prompt: Tensor) -> tuple[Tensor, Tensor]:
    """Whether greedy generation would say the value, and whether it would then stop.

    `logits` [count, ANSWER_LENGTH, vocabulary] are those of the rows that predict the answer.
    All tokens up to one must be right for it to be generated, so teacher forcing decides both.
    """
    rows = prompt[:, None] + torch.arange(ANSWER_LENGTH)
    right = (logits.argmax(-1) == ids.gather(1, rows)).cumprod(1).bool()
    return right[:, text.DIGITS], right[:, -1]


def answer_rows(prompt: Tensor) -> Tensor:
    """[count, ANSWER_LENGTH] rows whose logits predict the answer."""
    return prompt[:, None] - 1 + torch.arange(ANSWER_LENGTH)
