"""Where documents come from: Python's manual, local files, the hub, the small model's generator.

Token ids out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from distill.config.train import DataConfig, HubData, PythonDocs, TextData, TinyData
from distill.data import python_docs
from distill.errors import DistillError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Document = Sequence[int]


def documents(
    config: DataConfig, tokenizer: PreTrainedTokenizerBase, base_dir: Path
) -> Iterator[Document]:
    """Documents as token ids, special tokens as the tokenizer adds them.

    Raises:
        DistillError: the source is not there.
    """
    source = config.source
    if isinstance(source, TinyData):
        yield from _tiny(source, config.length)
        return
    for text in _texts(source, base_dir):
        ids: list[int] = tokenizer.encode(text)
        yield ids


def _texts(source: PythonDocs | TextData | HubData, base_dir: Path) -> Iterator[str]:
    if isinstance(source, PythonDocs):
        return python_docs.pages(source.seed)
    return _hub(source) if isinstance(source, HubData) else _local(source, base_dir)


def _tiny(source: TinyData, length: int) -> Iterator[Document]:
    """Texts of the generator, without its padding and without what it knows about answers."""
    from distill.data.tiny_corpus.text import example
    from distill.data.tiny_corpus.tokenizer import PAD

    for index in count():
        yield [token for token in example(source.seed, index, length).ids if token != PAD]


def _local(source: TextData, base_dir: Path) -> Iterator[str]:
    for pattern in source.paths:
        path = Path(pattern).expanduser()
        root = Path(path.anchor) if path.is_absolute() else base_dir
        relative = path.relative_to(path.anchor) if path.is_absolute() else path
        files = sorted(root.glob(str(relative)))
        if not files:
            raise DistillError(f"data: no file {pattern} (looked in {root})")
        for file in files:
            yield from _file(file, source.column)


def prompts_of(names: Sequence[str], base_dir: Path) -> Iterator[str]:
    """Texts of the prompts that evaluations use: JSONL files with a field ``text``.

    Raises:
        DistillError: a file is not there or has no such field.
    """
    for name in names:
        path = base_dir / Path(name).expanduser()
        if not path.is_file():
            raise DistillError(f"data.exclude: {path}: no such file")
        yield from _file(path, "text")


def _file(file: Path, column: str) -> Iterator[str]:
    readers = {".txt": _plain, ".jsonl": _lines, ".json": _lines, ".parquet": _parquet}
    if file.suffix not in readers:
        raise DistillError(f"data: {file}: use .txt, .jsonl or .parquet")
    try:
        yield from readers[file.suffix](file, column)
    except UnicodeDecodeError as error:
        raise DistillError(
            f"data: {file}: not UTF-8 (byte {error.start}): convert it, for example by"
            f" iconv -f latin1 -t utf-8"
        ) from None
    except OSError as error:
        raise DistillError(f"data: {file}: cannot be read: {first_line(error)}") from None


def _plain(file: Path, _: str) -> Iterator[str]:
    yield file.read_text(encoding="utf-8")


def _lines(file: Path, column: str) -> Iterator[str]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise DistillError(
                    f"data: {file}:{number}: not JSON ({error.msg}); one object a line"
                ) from None
            yield _field(row, column, f"{file}:{number}")


def _parquet(file: Path, column: str) -> Iterator[str]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    try:
        rows = load_dataset("parquet", data_files=str(file), split="train", streaming=True)
        for number, row in enumerate(rows, 1):
            yield _field(row, column, f"{file}, row {number}")
    except (DatasetsError, ValueError) as error:
        raise DistillError(f"data: {file}: not a parquet file: {first_line(error)}") from None


def _hub(source: HubData) -> Iterator[str]:
    from datasets import load_dataset

    try:
        rows = load_dataset(
            source.name, source.config, split=source.split, revision=source.revision, streaming=True
        )
        for number, row in enumerate(rows, 1):
            yield _field(row, source.column, f"{source.name}, row {number}")
    except (OSError, ValueError) as error:
        raise DistillError(f"data {source.name}: {first_line(error)}") from None


def _field(row: object, column: str, location: str) -> str:
    if not isinstance(row, dict) or not isinstance(row.get(column), str):
        known = ", ".join(row) if isinstance(row, dict) else type(row).__name__
        raise DistillError(f"data: {location} has no text field {column} (fields: {known})")
    return str(row[column])
