"""Finding the files of an import, and calling them by names without the machine's folders."""

from __future__ import annotations

from pathlib import Path

from evalkit.core.errors import EvalkitError


def folder(path: Path, what: str) -> Path:
    """A folder that is there.

    Raises:
        EvalkitError: it is not, or it is a file.
    """
    if not path.exists():
        raise EvalkitError(f"{path}: no such file or folder")
    if not path.is_dir():
        raise EvalkitError(f"{path}: {what} is a folder, this is a file")
    return path


def files_of(path: Path, pattern: str, what: str) -> list[tuple[Path, str]]:
    """A file itself, or the files below a folder, each with its name for messages; sorted.

    Raises:
        EvalkitError: there is none.
    """
    if path.is_file():
        return [(path, path.name)]
    try:
        files = sorted(file for file in folder(path, what).rglob(pattern) if file.is_file())
    except OSError as error:
        raise EvalkitError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not files:
        raise EvalkitError(f"{path}: no {pattern} in it: {what} was expected")
    return [(file, file.relative_to(path).as_posix()) for file in files]
