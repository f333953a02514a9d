"""What pins one file of outside data: a wheel, or a file of a repository at a commit."""

from __future__ import annotations

from dataclasses import dataclass

from evalkit.core.errors import EvalkitError
from evalkit.data.cards import CardSource, WheelSource


@dataclass(frozen=True, slots=True)
class Wheel:
    """One release of one package, pinned by the sha256 of its pure-Python wheel."""

    name: str
    version: str
    sha256: str

    @classmethod
    def of(cls, source: CardSource) -> Wheel:
        """The wheel that a card names; raises EvalkitError where it names another kind."""
        if not isinstance(source, WheelSource):
            raise EvalkitError(f"source {source.id} is no wheel")
        return cls(source.package, source.version, source.sha256)

    @property
    def file(self) -> str:
        """The wheel's file name."""
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"

    @property
    def origin(self) -> str:
        """Where it comes from, for people."""
        return f"PyPI {self.name}=={self.version}"

    @property
    def revision(self) -> str:
        """The release."""
        return self.version

    @property
    def cached(self) -> str:
        """Its name in the cache."""
        return self.file


@dataclass(frozen=True, slots=True)
class Remote:
    """One file of a hub data set or of a GitHub repository, at a commit.

    Attributes:
        kind: ``hub`` or ``raw``.
        repo: ``owner/name``.
        path: of the file in it.
        revision: commit.
        sha256: None where none is known: the first download is recorded and enforced afterwards.
    """

    kind: str
    repo: str
    path: str
    revision: str
    sha256: str | None = None

    @property
    def file(self) -> str:
        """The file name."""
        return self.path.rpartition("/")[2]

    @property
    def origin(self) -> str:
        """Where it comes from, for people."""
        return f"{'hub' if self.kind == 'hub' else 'GitHub'} {self.repo} {self.path}"

    @property
    def cached(self) -> str:
        """Its name in the cache."""
        return f"{self.repo.replace('/', '--')}--{self.revision[:12]}--{self.file}"


Source = Wheel | Remote
