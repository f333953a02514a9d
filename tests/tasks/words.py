"""A tokenizer of words that can decode, and benchmark files of our own invention."""

import hashlib
import json
import re
import zipfile

from evalkit.core.types import Prompt

PIECE = re.compile(r"\s?[^\s]+|\s")

QA = "Read.\n\n{context}\n\nQuestion: {input}\nAnswer:"
PROMPTS = {
    "qasper": QA,
    "hotpotqa": QA,
    "trec": "Classes.\n{context}\n{input}",
    "samsum": "Short.\n\n{context}\n\n{input}",
    "lcc": "Go on.\n{context}Next line:\n",
    "multi_news": "News: {context}\n\nSummary:",
    "passage_retrieval_en": "{context}\n\nWhich? {input}\n\nIt is: ",
}
LENGTHS = {"qasper": 12, "hotpotqa": 3, "trec": 6, "samsum": 13, "lcc": 6, "multi_news": 50}
LENGTHS["passage_retrieval_en"] = 3


class WordTokenizer:
    """Words with the space before them; BOS is 0 and decodes to ``<s>`` unless skipped."""

    bos_token_id = 0

    def __init__(self):
        self.pieces = ["<s>"]
        self.ids = {}

    def encode(self, text, *, add_special_tokens=True):
        found = [0] if add_special_tokens else []
        for piece in PIECE.findall(text):
            if piece not in self.ids:
                self.ids[piece] = len(self.pieces)
                self.pieces.append(piece)
            found.append(self.ids[piece])
        return found

    def decode(self, token_ids, *, skip_special_tokens=False):
        return "".join(self.pieces[i] for i in token_ids if i or not skip_special_tokens)


class WordRenderer:
    """No chat template."""

    def __init__(self):
        self.tokenizer = WordTokenizer()

    def render(self, sample):
        ids = tuple(self.tokenizer.encode(sample.text))
        return Prompt(sample, ids, sample.text, hashlib.sha256(repr(ids).encode()).hexdigest())

    def count(self, sample):
        return len(self.render(sample).token_ids)

    def overhead(self, *, chat=True):
        return 1


def record(task="qasper", **more):
    """One record in the layout of ``data.zip``."""
    words = " ".join(f"w{i}" for i in range(40))
    return {
        "input": "Who lit the lamp?",
        "context": f"{words} Mira lit it. {words}",
        "answers": ["Mira"],
        "length": 100,
        "dataset": task,
        "language": "en",
        "all_classes": ["Tide", "Lamp"] if task == "trec" else None,
        "_id": "0" * 48,
        **more,
    }


def jsonl(records):
    return "".join(
        (r if isinstance(r, str) else json.dumps(r, ensure_ascii=True)) + "\n" for r in records
    )


def write_folder(folder, files):
    """Task files beside each other."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, records in files.items():
        (folder / f"{name}.jsonl").write_text(jsonl(records), encoding="utf-8")
    return folder


def write_zip(path, files):
    """Task files in an archive, as upstream lays them out."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, records in files.items():
            archive.writestr(f"data/{name}.jsonl", jsonl(records))
    return path


def write_prompts(folder, prompts=PROMPTS, lengths=LENGTHS):
    """The two prompt tables."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dataset2prompt.json").write_text(json.dumps(prompts), encoding="utf-8")
    (folder / "dataset2maxlen.json").write_text(json.dumps(lengths), encoding="utf-8")
    return folder
