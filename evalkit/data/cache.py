"""The folder of fetched files, checksums, and the lock of those without a known one."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.files import write_atomic
from evalkit.dsa.files import file_sha256

LOCK = "evalkit-data.lock.json"
"""Checksums of first downloads for which upstream publishes none; enforced afterwards."""


def cache_dir() -> Path:
    """Folder of fetched files: ``EVALKIT_CACHE``, else the platform's cache folder."""
    if chosen := os.environ.get("EVALKIT_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "evalkit"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "evalkit" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evalkit"


def is_offline() -> bool:
    """Whether ``EVALKIT_OFFLINE`` forbids downloads."""
    return os.environ.get("EVALKIT_OFFLINE", "") not in ("", "0")


def sha256(path: Path) -> str:
    """Of a file; computed once per process as long as the file stays the same."""
    stat = path.stat()
    return _sha256_of(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=64)
def _sha256_of(path: Path, _size: int, _mtime: int) -> str:
    return file_sha256(path)


def install(target: Path, fetch: Callable[[Path], Path], check: Callable[[Path], None]) -> Path:
    """Fetch into a folder beside the target, check, move into place.

    Safe with other processes; whatever goes wrong, the cache stays as it was.

    Args:
        target: the file to be.
        fetch: downloads into a folder and returns the file.
        check: raises EvalkitError for a file that must not be used.

    Raises:
        EvalkitError: from `fetch` and `check`, or the cache cannot be used.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetch-") as folder:
            fresh = fetch(Path(folder))
            check(fresh)
            fresh.replace(target)
    except OSError as error:
        raise EvalkitError(f"{target.parent}: cannot be used as a cache: {error}") from None
    return target


def locked(key: str) -> str | None:
    """The recorded sha256 of a source, None before its first download."""
    return _read_lock().get(key)


def record(key: str, digest: str) -> None:
    """Keep the checksum of a first download."""
    lock = _read_lock() | {key: digest}
    path = cache_dir() / LOCK
    write_atomic(path, json.dumps(lock, indent=1, sort_keys=True) + "\n")


def _read_lock() -> dict[str, str]:
    path = cache_dir() / LOCK
    try:
        lock = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise EvalkitError(f"{path}: damaged: {error}; mend or delete it") from None
    if not isinstance(lock, dict) or not all(isinstance(v, str) for v in lock.values()):
        raise EvalkitError(f"{path}: damaged: not names and checksums; mend or delete it")
    return lock


def looks_right(path: Path) -> str | None:
    """What is wrong with a file that is not what its name says (an error page ...), or None."""
    with path.open("rb") as file:
        start = file.read(4096)
        file.seek(max(0, path.stat().st_size - 4096))
        end = file.read()
    if path.suffix in (".zip", ".whl"):
        return None if zipfile.is_zipfile(path) else "no zip archive"
    if path.suffix == ".json":
        whole = start.lstrip()[:1] + end.rstrip()[-1:]
        return None if whole in (b"[]", b"{}") else "no whole JSON file"
    if not start.strip():
        return "empty"
    page = start.lstrip()[:15].lower()
    return "a web page" if page.startswith((b"<!doctype html", b"<html")) else None
