"""Finding the files of an import, and calling them by names without the machine's folders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

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


def one_run(path: Path, folders: Mapping[str, str]) -> None:
    """Refuse files of several runs: an arm is one run of one model.

    Args:
        path: what was to be imported.
        folders: what tells one run from another, such as its folder, with a file of each.

    Raises:
        EvalkitError: there is more than one; names them.
    """
    if len(folders) < 2:
        return
    named = ", ".join(f"{run or '.'} ({file})" for run, file in list(folders.items())[:4])
    more = " …" if len(folders) > 4 else ""
    raise EvalkitError(
        f"{path}: files of {len(folders)} runs: {named}{more}; an arm is one run of one model:"
        " name the folder or file of one"
    )


def folder_of(name: str, *layout: str) -> str:
    """The folder of a file below what is imported, without the parts of a format's own layout.

    Args:
        name: of the file, as `files_of` tells it.
        layout: patterns of whole folder names that belong to one run, such as its lengths.
    """
    parents = PurePosixPath(name).parent.parts
    return "/".join(p for p in parents if not any(re.fullmatch(k, p) for k in layout))
