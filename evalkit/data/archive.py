"""Zip archives read in place: nothing is unpacked, and no name leads outside."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from evalkit.core.errors import EvalkitError

MAX_MEMBER = 2**31
"""Bytes of one member at most, unpacked."""


# The last two: unknown compression, encryption.
_BROKEN = (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError)


def points_outside(member: str) -> bool:
    """Whether a member's name would leave the folder it is unpacked into."""
    parts = PurePosixPath(member).parts
    return member.startswith("/") or ".." in parts or "\\" in member or ":" in member


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive all of whose members are harmless.

    Raises:
        EvalkitError: it is no archive, or damaged, or one of its names leads outside.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if points_outside(info.filename):
                    raise EvalkitError(
                        f"{path}: refused: member {info.filename!r} points outside the archive"
                    )
            yield archive
    except _BROKEN as error:
        raise EvalkitError(f"{path}: cannot be read: {error}") from None


@contextmanager
def member(path: Path, names: tuple[str, ...]) -> Iterator[tuple[IO[bytes], str]]:
    """The first member that exists, as a stream, and its name.

    Raises:
        EvalkitError: none exists, it is too large, or as `opened`.
    """
    with opened(path) as archive:
        known = set(archive.namelist())
        name = next((name for name in names if name in known), None)
        if name is None:
            raise EvalkitError(f"{path}: has no member {' or '.join(names)}")
        if archive.getinfo(name).file_size > MAX_MEMBER:
            raise EvalkitError(f"{path}: refused: member {name} has more than {MAX_MEMBER} bytes")
        with archive.open(name) as stream:
            yield stream, name
