"""Text to sequences: packed once, hashed, kept on disk, read at random.

A data directory holds

    tokens.safetensors    per split: ids int32 [N, S] and length of each sequence [N]
    data.json             where the text came from, tokenizer hash, counts, what was left out

Splits are filled in the order calibration, held_out, train, and no document is in two of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from distill.config.train import DataConfig
from distill.data.batch import Batch
from distill.data.sources import Document, documents
from distill.errors import DistillError
from evalkit.core.files import write_atomic, writing
from evalkit.core.recipe import canonical_hash
from evalkit.dsa.files import file_sha256, replacing

SPLITS = ("calibration", "held_out", "train")
TOKENS_FILE, FACTS_FILE = "tokens.safetensors", "data.json"


@dataclass(frozen=True, slots=True)
class Split:
    """Sequences of one split.

    Attributes:
        ids: int32 [N, S], padded at the end.
        lengths: int64 [N].
    """

    ids: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, numbers: Sequence[int], device: torch.device | str = "cpu") -> Batch:
        """Some sequences, cut to the longest of them."""
        lengths = self.lengths[list(numbers)]
        longest = int(lengths.max())
        ids = self.ids[list(numbers), :longest].long().to(device)
        valid = torch.arange(longest) < lengths[:, None]
        return Batch(ids, valid.to(device), numbers[0])

    def batches(self, size: int, device: torch.device | str = "cpu") -> list[Batch]:
        """All sequences in order."""
        count = len(self)
        return [
            self.batch(range(start, min(count, start + size)), device)
            for start in range(0, count, size)
        ]


@dataclass(frozen=True, slots=True)
class Sequences:
    """A packed data set.

    Attributes:
        splits: by name.
        facts: what data.json says.
    """

    splits: dict[str, Split]
    facts: dict[str, Any]

    @property
    def sha256(self) -> str:
        """Of the tokens."""
        return str(self.facts["tokens_sha256"])


def prepare(
    config: DataConfig, tokenizer: Any, base_dir: Path, directory: Path, forbidden: Forbidden | None
) -> Sequences:
    """Read the data directory, or make it first.

    Raises:
        DistillError: it was made with other settings or is damaged, or the text is too little.
    """
    wanted = identity(config, tokenizer, forbidden)
    if (directory / FACTS_FILE).is_file():
        return _read(directory, wanted)
    stream = documents(config, tokenizer, base_dir)
    splits, counts = pack(stream, config, tokenizer, forbidden)
    tensors: dict[str, Tensor] = {}
    for name, split in splits.items():
        tensors |= {f"{name}.ids": split.ids, f"{name}.lengths": split.lengths}
    with writing(directory), replacing(directory / TOKENS_FILE) as fresh:
        save_file(tensors, fresh)
    facts = {
        "identity": wanted,
        "counts": counts,
        "tokens_sha256": file_sha256(directory / TOKENS_FILE),
    }
    facts["tokens"] = {name: int(split.lengths.sum()) for name, split in splits.items()}
    text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    write_atomic(directory / FACTS_FILE, text)
    return Sequences(splits, facts)


def identity(config: DataConfig, tokenizer: Any, forbidden: Forbidden | None) -> dict[str, Any]:
    """Everything that decides which tokens a data set holds."""
    return {
        "config": config.model_dump(mode="json"),
        "tokenizer_sha256": tokenizer_hash(tokenizer),
        "excluded_ngrams_sha256": forbidden.sha256 if forbidden else None,
    }


def tokenizer_hash(tokenizer: Any) -> str:
    """sha256 of the vocabulary with its ids and of a few encodings."""
    probe = "The quick brown fox, 1234 – ünïcode.\n"
    facts = {"vocab": tokenizer.get_vocab(), "probe": tokenizer.encode(probe)}
    return canonical_hash(facts)


def _read(directory: Path, wanted: dict[str, Any]) -> Sequences:
    facts = json.loads((directory / FACTS_FILE).read_text(encoding="utf-8"))
    if facts.get("identity") != wanted:
        old = facts.get("identity", {})
        changed = [k for k in wanted if old.get(k) != wanted[k]]
        raise DistillError(
            f"{directory} was made with another {' and '.join(changed)}: remove it, or use another"
            " --out"
        )
    try:
        if file_sha256(directory / TOKENS_FILE) != facts["tokens_sha256"]:
            raise DistillError(f"{directory / TOKENS_FILE}: damaged, remove {directory}")
        tensors = load_file(directory / TOKENS_FILE)
    except (OSError, SafetensorError) as error:
        raise DistillError(f"{directory / TOKENS_FILE}: {error}") from None
    splits = {n: Split(tensors[f"{n}.ids"], tensors[f"{n}.lengths"]) for n in SPLITS}
    return Sequences(splits, facts)


class Forbidden:
    """Token n-grams of evaluation prompts that the text must not contain.

    An n-gram that more than one prompt has is a template (instructions, a common haystack), not
    content, and is allowed.
    """

    def __init__(self, prompts: Iterable[Sequence[int]], n: int) -> None:
        self.n = n
        seen: dict[int, int] = {}
        for number, prompt in enumerate(prompts):
            for gram in self._grams(prompt):
                seen[gram] = number if seen.get(gram, number) == number else -1
        self._own = frozenset(gram for gram, number in seen.items() if number >= 0)

    @property
    def sha256(self) -> str:
        """Of the set."""
        text = ",".join(map(str, sorted(self._own)))
        return hashlib.sha256(text.encode()).hexdigest()

    def found_in(self, ids: Sequence[int]) -> bool:
        """Whether a document repeats a passage of an evaluation prompt."""
        return not self._own.isdisjoint(self._grams(ids))

    def _grams(self, ids: Sequence[int]) -> set[int]:
        return {_hash(ids[i : i + self.n]) for i in range(len(ids) - self.n + 1)}


def _hash(gram: Sequence[int]) -> int:
    digest = hashlib.blake2b(",".join(map(str, gram)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def pack(
    stream: Iterator[Document], config: DataConfig, tokenizer: Any, forbidden: Forbidden | None
) -> tuple[dict[str, Split], dict[str, int]]:
    """Fill the splits from a stream of documents.

    Raises:
        DistillError: the stream ends before they are full.
    """
    counts = {"documents": 0, "excluded": 0, "too_short": 0}

    def allowed() -> Iterator[Document]:
        for document in stream:
            counts["documents"] += 1
            if forbidden is not None and forbidden.found_in(document):
                counts["excluded"] += 1
            elif config.pack == "single" and len(document) < config.shortest:
                counts["too_short"] += 1
            else:
                yield document

    source, splits = allowed(), {}
    pad = tokenizer.pad_token_id or 0
    for name in SPLITS:
        wanted: int = getattr(config, name)
        rows: list[Document] = []
        pieces = _joined(source, config.length, tokenizer) if config.pack == "join" else (
            piece for document in source for piece in _cut(document, config)
        )  # fmt: skip
        for piece in pieces:
            rows.append(piece)
            if len(rows) == wanted:  # what is left of this document goes to no other split
                break
        if len(rows) < wanted:
            raise DistillError(
                f"the text gives {len(rows)} of {wanted} sequences of the {name} split"
                f" ({counts['documents']} documents read, {counts['excluded']} excluded,"
                f" {counts['too_short']} too short)"
            )
        splits[name] = _split(rows, config.length, pad)
    return splits, counts


def _cut(document: Document, config: DataConfig) -> Iterator[Document]:
    for start in range(0, len(document), config.length):
        piece = document[start : start + config.length]
        if len(piece) >= config.shortest:
            yield piece


def _joined(source: Iterator[Document], length: int, tokenizer: Any) -> Iterator[Document]:
    """Whole documents one after another; one that does not fit begins the next sequence."""
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    current: list[int] = []
    for document in source:
        ids = [*document, *end]
        if current and len(current) + len(ids) > length:
            yield current
            current = []
        while len(ids) > length:
            yield ids[:length]
            ids = ids[length:]
        current = current + ids
    if current:
        yield current


def _split(rows: Sequence[Document], length: int, pad: int) -> Split:
    ids = torch.full((len(rows), length), pad, dtype=torch.int32)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.int32)
    return Split(ids, torch.tensor([len(row) for row in rows]))
