"""Text to sequences: packed once, hashed, kept on disk, read at random.

A data directory holds

    tokens.safetensors    per split: ids int32 [N, S] and length of each sequence [N]
    data.json             where the text came from, tokenizer hash, counts, what was left out

Splits are filled in the order calibration, held_out, train, and no document is in two of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from typing_extensions import TypedDict

from distill.config.train import DataConfig
from distill.data.batch import Batch
from distill.data.ngram_filter import NgramFilter
from distill.data.sources import Document, documents
from distill.errors import DistillError, first_line, saving
from evalkit.core.files import write_atomic
from evalkit.core.recipe import canonical_hash
from evalkit.dsa.files import file_sha256, replacing

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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


class DataIdentity(TypedDict):
    """Everything that decides which tokens a data set holds."""

    config: dict[str, object]
    tokenizer_sha256: str
    excluded_ngrams_sha256: str | None


class DataFacts(TypedDict):
    """data.json.

    Attributes:
        identity: see `DataIdentity`.
        counts: documents read, excluded, too short.
        tokens_sha256: of the tokens file.
        tokens: by split.
    """

    identity: DataIdentity
    counts: dict[str, int]
    tokens_sha256: str
    tokens: dict[str, int]


@dataclass(frozen=True, slots=True)
class PackedText:
    """A packed data set.

    Attributes:
        splits: by name.
        facts: what data.json says.
    """

    splits: dict[str, Split]
    facts: DataFacts

    @property
    def sha256(self) -> str:
        """Of the tokens."""
        return self.facts["tokens_sha256"]


def prepare(
    config: DataConfig,
    tokenizer: PreTrainedTokenizerBase,
    base_dir: Path,
    directory: Path,
    exclude: NgramFilter | None,
) -> PackedText:
    """Read the data directory, or make it first.

    Raises:
        DistillError: it was made with other settings or is damaged, or the text is too little.
    """
    identity = identity_of(config, tokenizer, exclude)
    if (directory / FACTS_FILE).is_file():
        return _read(directory, identity)
    stream = documents(config, tokenizer, base_dir)
    splits, counts = pack(stream, config, tokenizer, exclude)
    tensors: dict[str, Tensor] = {}
    for name, split in splits.items():
        tensors |= {f"{name}.ids": split.ids, f"{name}.lengths": split.lengths}
    with saving(directory), replacing(directory / TOKENS_FILE) as new_file:
        save_file(tensors, new_file)
    facts = DataFacts(
        identity=identity,
        counts=counts,
        tokens_sha256=file_sha256(directory / TOKENS_FILE),
        tokens={name: int(split.lengths.sum()) for name, split in splits.items()},
    )
    text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    write_atomic(directory / FACTS_FILE, text)
    return PackedText(splits, facts)


def identity_of(
    config: DataConfig, tokenizer: PreTrainedTokenizerBase, exclude: NgramFilter | None
) -> DataIdentity:
    """Everything that decides which tokens a data set holds."""
    return DataIdentity(
        config=config.model_dump(mode="json"),
        tokenizer_sha256=tokenizer_behaviour_hash(tokenizer),
        excluded_ngrams_sha256=exclude.sha256 if exclude else None,
    )


def tokenizer_behaviour_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """sha256 of the vocabulary with its ids and of a few encodings, as data.json has always had it.

    Not the hash of `evalkit.prompts`, which covers the tokenizer's definition: that one changes
    with the form in which a release writes it, and would refuse packed text that is the same.
    """
    probe = "The quick brown fox, 1234 – ünïcode.\n"
    facts = {"vocab": tokenizer.get_vocab(), "probe": tokenizer.encode(probe)}
    return canonical_hash(facts)


def _read(directory: Path, identity: DataIdentity) -> PackedText:
    path = directory / FACTS_FILE
    try:
        facts = TypeAdapter(DataFacts).validate_python(json.loads(path.read_text(encoding="utf-8")))
        before = dict(facts["identity"])
    except (OSError, ValueError) as error:
        raise DistillError(f"{path}: damaged, remove {directory}: {first_line(error)}") from None
    changed = [key for key, value in identity.items() if before.get(key) != value]
    if changed:
        raise DistillError(
            f"{directory} was made with another {' and '.join(changed)}: remove it, or use another"
            " --out"
        )
    try:
        if file_sha256(directory / TOKENS_FILE) != facts["tokens_sha256"]:
            raise DistillError(f"{directory / TOKENS_FILE}: damaged, remove {directory}")
        tensors = load_file(directory / TOKENS_FILE)
        splits = {n: Split(tensors[f"{n}.ids"], tensors[f"{n}.lengths"]) for n in SPLITS}
    except (OSError, SafetensorError, KeyError) as error:
        message = f"{directory / TOKENS_FILE}: damaged, remove {directory}: {first_line(error)}"
        raise DistillError(message) from None
    return PackedText(splits, facts)


def pack(
    stream: Iterator[Document],
    config: DataConfig,
    tokenizer: PreTrainedTokenizerBase,
    exclude: NgramFilter | None,
) -> tuple[dict[str, Split], dict[str, int]]:
    """Fill the splits from a stream of documents.

    Raises:
        DistillError: the stream ends before they are full.
    """
    counts = {"documents": 0, "excluded": 0, "too_short": 0}

    def allowed() -> Iterator[Document]:
        for document in stream:
            counts["documents"] += 1
            if exclude is not None and exclude.matches(document):
                counts["excluded"] += 1
            elif config.pack == "single" and len(document) < config.shortest:
                counts["too_short"] += 1
            else:
                yield document

    source, splits = allowed(), {}
    pad = tokenizer.pad_token_id or 0
    for name in SPLITS:
        wanted: int = getattr(config, name)
        sequences: list[Document] = []
        if config.pack == "join":
            pieces = _joined(source, config.length, tokenizer.eos_token_id)
        else:
            pieces = (piece for document in source for piece in _cut(document, config))
        for piece in pieces:
            sequences.append(piece)
            if len(sequences) == wanted:  # what is left of this document goes to no other split
                break
        if len(sequences) < wanted:
            raise DistillError(
                f"the text gives {len(sequences)} of {wanted} sequences of the {name} split"
                f" ({counts['documents']} documents read, {counts['excluded']} excluded,"
                f" {counts['too_short']} too short)"
            )
        splits[name] = _padded(sequences, config.length, pad)
    return splits, counts


def _cut(document: Document, config: DataConfig) -> Iterator[Document]:
    for start in range(0, len(document), config.length):
        piece = document[start : start + config.length]
        if len(piece) >= config.shortest:
            yield piece


def _joined(source: Iterator[Document], length: int, eos: int | None) -> Iterator[Document]:
    """Whole documents one after another; one that does not fit begins the next sequence."""
    end = [] if eos is None else [eos]
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


def _padded(sequences: Sequence[Document], length: int, pad: int) -> Split:
    ids = torch.full((len(sequences), length), pad, dtype=torch.int32)
    for i, sequence in enumerate(sequences):
        ids[i, : len(sequence)] = torch.tensor(sequence, dtype=torch.int32)
    return Split(ids, torch.tensor([len(sequence) for sequence in sequences]))
