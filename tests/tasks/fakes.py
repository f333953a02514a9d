"""A tokenizer, a renderer and RULER wording of our own, for tests without any download.

As a script: prints one digest per sample, for the test that asks another process.
"""

import hashlib
import json
import re
import sys
import zlib
from dataclasses import asdict
from pathlib import Path

from evalkit.core.types import Prompt, Sample
from evalkit.tasks.ruler import RulerConfig, build, templates

PIECE = re.compile(r" ?[A-Za-z]+|\d{1,3}|\s|[^\sA-Za-z\d]")


class FakeTokenizer:
    """Words with their space, up to three digits, single other characters."""

    bos_token_id = 0

    def encode(self, text, *, add_special_tokens=True):
        ids = [1 + zlib.crc32(piece.encode()) for piece in PIECE.findall(text)]
        return [0, *ids] if add_special_tokens else ids

    def decode(self, token_ids, *, skip_special_tokens=False):
        raise NotImplementedError


class FakeRenderer:
    """A chat template of a few tokens; counts how often it is asked."""

    def __init__(self, tokenizer=None):
        self.tokenizer = tokenizer or FakeTokenizer()
        self.calls = 0

    def render(self, sample):
        self.calls += 1
        text = f"<user>{sample.text}</user><assistant>{sample.answer_prefix}"
        ids = tuple(self.tokenizer.encode(text))
        return Prompt(sample, ids, text, hashlib.sha256(repr(ids).encode()).hexdigest())

    def count(self, sample):
        return len(self.render(sample).token_ids)

    def overhead(self, *, chat=True):
        return len(self.tokenizer.encode("<user></user><assistant>"))


WORDING = {
    "niah": (
        "Some codes of kind {type_needle_v} are here.\n{context}\nWhat are all the "
        "{type_needle_v} for {query}?",
        " The {type_needle_v} for {query} are",
        128,
    ),
    "variable_tracking": (
        "Follow the variables.\n\n{context}\nQuestion: Which have the value {query}?",
        " Answer: {num_v} variables have the value {query}: ",
        30,
    ),
    "common_words_extraction": (
        "A list.\n{context}\nQuestion: Which 10 words are the most common?",
        " Answer: The top 10 are:",
        120,
    ),
    "freq_words_extraction": (
        "Coded words. {context}\nQuestion: Which three are the most frequent?",
        " Answer: They are:",
        50,
    ),
}
WORDING["qa"] = ("Documents.\n\n{context}\n\nQuestion: {query}", " Answer:", 32)
KEYS = {"num_needle_k": 1, "num_needle_v": 1, "num_needle_q": 1}
LINES = {"type_haystack": "needle", "type_needle_k": "words", "type_needle_v": "numbers"}
TASKS = {
    "niah_single_1": ("niah", {**LINES, **KEYS, "type_haystack": "repeat"}),
    "niah_multikey_2": ("niah", {**LINES, **KEYS}),
    "niah_multikey_3": (
        "niah",
        {**LINES, **KEYS, "type_needle_k": "uuids", "type_needle_v": "uuids"},
    ),
    "niah_multiquery": ("niah", {**LINES, **KEYS, "type_haystack": "repeat", "num_needle_q": 4}),
    "niah_multivalue": ("niah", {**LINES, **KEYS, "type_haystack": "repeat", "num_needle_v": 4}),
    "vt": ("variable_tracking", {"num_chains": 1, "num_hops": 4}),
    "cwe": ("common_words_extraction", {"freq_cw": 30, "freq_ucw": 3, "num_cw": 10}),
    "fwe": ("freq_words_extraction", {"alpha": 2.0}),
}


def own_specs():
    """The tasks that need no corpus, and one over documents, in our own words."""
    tasks = TASKS | {"qa_1": ("qa", {"dataset": "squad"})}
    return {
        name: templates.Spec(name, family, args, *WORDING[family])
        for name, (family, args) in tasks.items()
    }


def ruler(name, length, **more):
    """One RULER cell."""
    (task,) = build(RulerConfig(tasks=(name,), lengths=(length,), **more), Path())
    return task


def digest(sample: Sample) -> str:
    """A hash of everything in a sample that is answered."""
    fields = asdict(sample)
    assert fields.pop("scored_from") == 0
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


if __name__ == "__main__":
    from evalkit.tasks.ruler import task as module

    module.specs = own_specs
    for index in map(int, sys.argv[3].split(",")):
        print(digest(ruler(sys.argv[1], int(sys.argv[2])).sample(index, FakeRenderer())))
