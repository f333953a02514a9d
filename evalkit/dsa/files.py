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
    The new file may be read by whom the umask lets, whoever wrote it (safetensors lets nobody).

    Raises:
        OSError: the folder cannot be written to, or the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def follow_umask(directory: Path) -> None:
    """Let the files of a directory be read by whom the umask lets, as any new file.

    Raises:
        OSError: the directory cannot be written to.
    """
    new = directory / f".{os.getpid()}.tmp"
    new.touch()
    mode = new.stat().st_mode
    new.unlink()
    for path in directory.iterdir():
        if path.is_file():
            path.chmod(mode)


def file_sha256(path: Path) -> str:
    """sha256 of a file's content, in hexadecimal digits.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
