"""Seeded training text: `example(seed, index, length)` is a pure function of its arguments.

A text is a list of needles, haystack units and questions in some order.  Every token carries
a kind that says how it is trained: RANDOM is unpredictable, ANSWER is the number to retrieve with
its space, STOP is what ends an answer, TEXT is everything else.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from operator import itemgetter

from distill.data.tiny_corpus import wording
from distill.data.tiny_corpus.tokenizer import BOS, EOS, PAD, build

RANDOM, ANSWER, TEXT, STOP = 0, 1, 2, 3
DIGITS = 4
PLURAL_SHARE = 0.1


@dataclass(slots=True)
class Tokens:
    """Token ids with their kinds."""

    ids: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)

    def add(self, ids: list[int], kind: int) -> None:
        """Append tokens of one kind."""
        self.ids += ids
        self.kinds += [kind] * len(ids)

    def extend(self, other: Tokens) -> None:
        """Append other tokens with their kinds."""
        self.ids += other.ids
        self.kinds += other.kinds

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class TextPlan:
    """What one text is made of."""

    needle: wording.Wording
    question: wording.Wording
    stack: wording.Haystack
    intro: str
    exam: bool
    """All questions at the end, as in the tasks; otherwise anywhere after their needle."""


@cache
def _encoder() -> Callable[[str], list[int]]:
    tokenizer = build()

    @cache
    def encode(text: str) -> tuple[int, ...]:
        return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])

    return lambda text: list(encode(text))


def encode(text: str) -> list[int]:
    """Token ids without special tokens."""
    return _encoder()(text)


def listed(keys: list[str]) -> list[str]:
    """Pieces of RULER's way to list keys: keys at even places, what joins them at odd ones."""
    out: list[str] = []
    for number, key in enumerate(keys):
        if number:
            out.append(", and" if number == len(keys) - 1 else ",")
        out.append(f" {key}")
    return out


def fill_plural(template: str, keys: list[str]) -> Tokens:
    """Tokens of a template that names several keys."""
    before, after = template.split(" {query}")
    out = Tokens()
    out.add(encode(before), TEXT)
    for number, piece in enumerate(listed(keys)):
        out.add(encode(piece), TEXT if number % 2 else RANDOM)
    out.add(encode(after), TEXT)
    return out


def plural_answer(keys: list[str], values: list[str]) -> Tokens:
    """Several values, each led by its key: ` a-b: 1234, c-d: 5678, and e-f: 9012.`"""
    out = Tokens()
    for number, piece in enumerate(listed(keys)):
        out.add(encode(piece), ANSWER)
        if number % 2 == 0:
            out.add(encode(f": {values[number // 2]}"), ANSWER)
    out.add([*encode("."), EOS], STOP)
    return out


def fill(template: str, key: str, value: str = "", value_kind: int = RANDOM) -> Tokens:
    """Tokens of a template; the key and the value are RANDOM unless said otherwise."""
    out = Tokens()
    for part in re.split(r"( \{key\}| \{value\})", template):
        if part == " {key}":
            out.add(encode(f" {key}"), RANDOM)
        elif part == " {value}":
            out.add(encode(" "), TEXT)
            out.add(encode(value), value_kind)
        elif part:
            out.add(encode(part), TEXT)
    return out


def answer_tokens(value: str) -> Tokens:
    """What the model is to say after the answer prefix: the value, a full stop, the end."""
    out = Tokens()
    out.add(encode(" " + value), ANSWER)
    out.add([*encode("."), EOS], STOP)
    return out


def question_tokens(entry: wording.Wording, key: str, value: str, whole: bool = True) -> Tokens:
    """Question, answer prefix and answer; `whole=False` leaves out the question sentence."""
    out = fill(entry.question, key) if whole else Tokens()
    # Without its question the answer sentence opens a line or a text of its own.
    out.extend(fill(entry.answer if whole else "\n" + entry.answer.lstrip(" "), key))
    out.extend(answer_tokens(value))
    return out


def draw_keys(rng: random.Random, count: int) -> list[str]:
    """Distinct keys; in 3 of 10 texts they share adjectives and nouns with one another."""
    first: tuple[str, ...] | list[str] = wording.adjectives()
    second: tuple[str, ...] | list[str] = wording.nouns()
    if rng.random() < 0.3:
        first = rng.sample(first, 4 + count // 3)
        second = rng.sample(second, 4 + count // 3)
    keys: dict[str, None] = {}
    while len(keys) < count:
        keys[f"{rng.choice(first)}-{rng.choice(second)}"] = None
    return list(keys)


def draw_value(rng: random.Random, digits: int = DIGITS) -> str:
    """A number without leading zero."""
    return str(rng.randrange(10 ** (digits - 1), 10**digits))


def draw_plan(rng: random.Random, length: int) -> TextPlan:
    """Wordings, haystack and structure of one text; 1 text in 6 mixes two wordings."""
    entries = list(wording.wordings().values())
    weights = [entry.weight for entry in entries]
    needle = rng.choices(entries, weights)[0]
    question = rng.choices(entries, weights)[0] if rng.random() < 1 / 6 else needle
    kinds, shares = zip(*needle.haystack.items(), strict=True)
    stack = wording.haystacks()[rng.choices(kinds, shares)[0]]
    intro = question.intro if length >= 200 and rng.random() < 0.7 else ""
    return TextPlan(needle, question, stack, intro, length >= 200 and rng.random() < 0.3)


Part = tuple[float, Callable[[str], Tokens]]
"""A place in the text, 0 to 1, and what stands there; the argument joins it to what precedes."""


def _unit(lead: str, *, unit: str) -> Tokens:
    out = Tokens()
    out.add(encode(lead + unit), TEXT)
    return out


def _needle(lead: str, *, plan: TextPlan, key: str, value: str) -> Tokens:
    return fill(lead + plan.needle.needle, key, value)


def _question(_: str, *, plan: TextPlan, key: str, value: str, whole: bool = True) -> Tokens:
    return question_tokens(plan.question, key, value, whole)


def _haystack_parts(rng: random.Random, stack: wording.Haystack, room: int) -> list[Part]:
    """As many units as fit into `room` tokens, in order, at random places."""
    units: list[str] = []
    order: list[str] = []
    while stack.units:
        if not order:
            order = list(stack.units)
            if stack.shuffle:
                rng.shuffle(order)
        room -= len(encode(stack.joint + order[-1]))
        if room < 0:
            break
        units.append(order.pop())
    times = sorted(rng.random() for _ in units)
    return [(time, partial(_unit, unit=unit)) for time, unit in zip(times, units, strict=True)]


def _count(rng: random.Random, plan: TextPlan, most: float) -> int:
    """How many needles to place: few, half full or full; often one, when there is a haystack."""
    if plan.stack.units and rng.random() < 0.2:
        return 1
    shares = (0.25, 0.5, 0.8) if plan.stack.units else (0.5, 1.0, 1.0)
    return max(1, int(rng.choice(shares) * most))


def _sizes(plan: TextPlan) -> tuple[int, int]:
    """Tokens of a needle and of a question; the same for all keys and values."""
    key, value = f"{wording.adjectives()[0]}-{wording.nouns()[0]}", "1" * DIGITS
    lead = plan.stack.joint
    needle = _needle(lead, plan=plan, key=key, value=value)
    return len(needle), len(question_tokens(plan.question, key, value))


def _mixed(rng: random.Random, plan: TextPlan, room: int) -> list[Part]:
    """Questions anywhere after their needle."""
    needle, question = _sizes(plan)
    parts: list[Part] = []
    used = 0
    for key in draw_keys(rng, _count(rng, plan, room / (needle + 0.7 * question))):
        value, time = draw_value(rng), rng.random()
        if used + needle + (0 if parts else question) > room:
            break
        parts.append((time, partial(_needle, plan=plan, key=key, value=value)))
        used += needle
        if used + question <= room and (len(parts) == 1 or rng.random() < 0.8):
            # RULER's answer sentence differs from its needle, so it can do without a question.
            whole = plan.question is not wording.wordings()["ruler"] or rng.random() < 0.5
            asked = partial(_question, plan=plan, key=key, value=value, whole=whole)
            parts.append((time + (1 - time) * rng.random() + 1e-6, asked))
            used += len(asked(""))
    return parts + _haystack_parts(rng, plan.stack, room - used)


def _exam(rng: random.Random, plan: TextPlan, room: int) -> list[Part]:
    """All questions after the haystack, two to four of them."""
    needle, question = _sizes(plan)
    asked = rng.choice([2, 3, 4])
    while asked > 1 and room - asked * question < needle:
        asked -= 1
    keys = draw_keys(rng, _count(rng, plan, (room - asked * question) / needle))
    parts: list[Part] = []
    questions: list[Part] = []
    for key in keys:
        value = draw_value(rng)
        parts.append((rng.random(), partial(_needle, plan=plan, key=key, value=value)))
        questions.append((2 + rng.random(), partial(_question, plan=plan, key=key, value=value)))
    questions = rng.sample(questions, min(asked, len(keys)))
    room -= needle * len(keys) + question * len(questions)
    return parts + _haystack_parts(rng, plan.stack, room) + questions


def _plural(rng: random.Random, length: int) -> Tokens:
    """RULER's plural form: several keys asked in one question, after the haystack."""
    entry, needle = wording.plural(), wording.wordings()["ruler"]
    stack = wording.haystacks()[rng.choice(["repeat", "none"])]
    plan = TextPlan(needle, needle, stack, entry.intro, True)
    asked, size = rng.choice([2, 3, 4]), _sizes(plan)[0]
    out = Tokens([BOS], [RANDOM])
    out.add(encode(entry.intro), TEXT)
    sizing = ["a-b"] * asked
    tail = len(fill_plural(entry.question, sizing)) + len(fill_plural(entry.answer, sizing))
    room = length - len(out) - tail - len(plural_answer(sizing, ["1" * DIGITS] * asked))
    keys = draw_keys(rng, max(asked, _count(rng, plan, room / size)))
    values = {key: draw_value(rng) for key in keys}
    parts: list[Part] = [
        (rng.random(), partial(_needle, plan=plan, key=key, value=values[key])) for key in keys
    ]
    parts += _haystack_parts(rng, stack, room - size * len(keys))
    parts.sort(key=itemgetter(0))
    for number, (_, render) in enumerate(parts):
        out.extend(render(stack.joint if number else ""))
    picks = rng.sample(keys, asked)
    out.extend(fill_plural(entry.question, picks))
    out.extend(fill_plural(entry.answer, picks))
    out.extend(plural_answer(picks, [values[key] for key in picks]))
    out.add([PAD] * (length - len(out)), RANDOM)
    return out


def example(seed: int, index: int, length: int) -> Tokens:
    """Text number `index`, padded to `length` tokens."""
    rng = random.Random(f"tiny-{seed}-{index}-{length}")
    if length >= 200 and rng.random() < PLURAL_SHARE:
        return _plural(rng, length)
    plan = draw_plan(rng, length)
    out = Tokens([BOS], [RANDOM])
    out.add(encode(plan.intro), TEXT)
    room = length - len(out)
    parts = _exam(rng, plan, room) if plan.exam else _mixed(rng, plan, room)
    parts.sort(key=itemgetter(0))
    for number, (_, render) in enumerate(parts):
        out.extend(render(plan.stack.joint if number else ""))
    out.add([PAD] * (length - len(out)), RANDOM)
    return out
