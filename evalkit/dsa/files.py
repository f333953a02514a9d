"""Files written whole or not at all, and their checksums; standard library only."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes its place, synced, once the block has ended.

    Readers see the old file or the new one, never half of it. After an error the old one stays.

    Raises:
        OSError: the folder cannot be written to, or the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def file_sha256(path: Path) -> str:
    """sha256 of a file's content, in hexadecimal digits.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
