"""Records by name: ours, and those that other installed packages add by entry points.

A task, scorer, engine or format is a record that the module which defines it exports. A `Registry`
lists ours; a package lists its own in its metadata, under the registry's group::

    [project.entry-points."evalkit.tasks"]
    my_task = "my_package.task:KIND"

Nothing of another package is imported before it is asked for by name, so that a broken one stops
only what uses it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from evalkit.core.errors import EvalkitError, in_one_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

GROUPS = ("evalkit.", "distill.")
"""How the names of our groups of entry points begin."""

OURS = "evalkit"
"""The package of our own records in messages."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A record of another package.

    Attributes:
        name: by which recipes and commands ask for it.
        distribution: the package, as it was installed.
        version: of the package.
        entry: where the record is.
        rivals: other packages that add the same name.
    """

    name: str
    distribution: str
    version: str
    entry: EntryPoint = field(repr=False)
    rivals: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """Name and version of the package."""
        return f"{self.distribution} {self.version}"

    @property
    def value(self) -> object:
        """The record, imported when it is first asked for.

        Raises:
            EvalkitError: it cannot be imported, or another package adds the same name.
        """
        group = self.entry.group
        if self.rivals:
            both = " and ".join((self.package, *self.rivals))
            raise EvalkitError(f"{both} both add {self.name} to {group}: uninstall one of them")
        try:
            return self.entry.load()
        except (Exception, SystemExit) as error:
            raise EvalkitError(
                f"{self.package}: {group} {self.name} ({self.entry.value}) cannot be imported:"
                f" {type(error).__name__}: {in_one_line(error)}"
            ) from error


@cache
def load_plugins(group: str) -> dict[str, Plugin]:
    """What the installed packages add to a group of entry points, by name; nothing is imported."""
    from importlib.metadata import entry_points

    plugins: dict[str, Plugin] = {}
    for entry in entry_points(group=group):
        distribution, version = _package(entry)
        first = plugins.get(entry.name)
        rivals = () if first is None else (*first.rivals, first.package)
        plugins[entry.name] = Plugin(entry.name, distribution, version, entry, rivals)
    return plugins


class Registry(Generic[T]):
    """Records of one type by name: ours first, then those of other packages.

    Args:
        what: a record in messages, such as ``metric``.
        record: its type.
        builtin: where ours are, ``module:object`` by name; a new one is one line.
        group: of the entry points by which packages add more; None: they cannot.
    """

    def __init__(
        self, what: str, record: type[T], builtin: Mapping[str, str], group: str | None = None
    ) -> None:
        self.what, self.record, self.group = what, record, group
        self.builtin = dict(builtin)

    @property
    def plugins(self) -> Mapping[str, Plugin]:
        """Those of other packages."""
        return {} if self.group is None else load_plugins(self.group)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.builtin, *self.plugins]))

    def __len__(self) -> int:
        return len(set(self))

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self.plugins

    def __getitem__(self, name: str) -> T:
        """The record of a name.

        Raises:
            EvalkitError: the name is unknown (the nearest known one is suggested), or its package
                has a fault; the message names the package.
        """
        plugin = self.plugins.get(name)
        if plugin is None:
            if name not in self.builtin:
                raise EvalkitError(f"unknown {self.what} {name}; {near(name, self)}")
            return self._own(name)
        if name in self.builtin:
            raise EvalkitError(
                f"{plugin.package}: adds the {self.what} {name}, which is one of evalkit's own:"
                " uninstall it, or rename its entry point"
            )
        return self._checked(name, plugin.value, plugin.package)

    def ours(self) -> Iterator[T]:
        """Those of no other package."""
        yield from map(self._own, self.builtin)

    def usable(self) -> Iterator[T]:
        """Every record that can be had: ours, then those of packages without a fault."""
        yield from self.ours()
        for name in self.plugins:
            if name not in self.builtin:
                with suppress(EvalkitError):
                    yield self[name]

    def _own(self, name: str) -> T:
        return self._checked(name, _object(self.builtin[name]), OURS)

    def _checked(self, name: str, value: object, package: str) -> T:
        if not isinstance(value, self.record):
            raise EvalkitError(
                f"{package}: the {self.what} {name} is of the type {type(value).__name__}, not"
                f" {self.record.__name__}"
            )
        return value

    def package(self, name: str) -> str:
        """Name and version of the package that adds a name; `OURS` for ours."""
        plugin = self.plugins.get(name)
        return OURS if plugin is None else plugin.package

    def packages(self, names: Iterable[str]) -> dict[str, str]:
        """Versions of the other packages that some names come from, for the record of a run."""
        used = [self.plugins[name] for name in names if name in self.plugins]
        return {plugin.distribution: plugin.version for plugin in used}


@cache
def _object(place: str) -> object:
    """What is at ``module:object``."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def near(name: str, names: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known one, else all of them."""
    known = list(names)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"


@contextmanager
def running(package: str) -> Iterator[None]:
    """While code of a package runs: an error in it is one line that names the package.

    Args:
        package: as `Registry.package` or `package_of` say it; errors of ``evalkit`` pass unchanged.
    """
    try:
        yield
    except EvalkitError:
        raise
    except Exception as error:
        if package == OURS:
            raise
        line = fault(error) or f"{package}: {type(error).__name__}: {in_one_line(error)}"
        raise EvalkitError(line) from error


def fault(error: BaseException) -> str | None:
    """One line about an error in the code of another package; None where no such code ran.

    The package is found by the traceback: its last frame in a module of a package that adds
    something.
    """
    place = None
    for name, line in _frames(error.__traceback__):
        package = _modules().get(name.partition(".")[0])
        if package is not None:
            place = f"{package}: {name}, line {line}"
    return place and f"{place}: {type(error).__name__}: {in_one_line(error)}"


def package_of(value: object) -> str:
    """The package that the type of a value comes from; `OURS` for ours."""
    return _modules().get(type(value).__module__.partition(".")[0], OURS)


def _frames(traceback: TracebackType | None) -> Iterator[tuple[str, int]]:
    """Module and line of every frame, the one that raised last."""
    while traceback is not None:
        yield str(traceback.tb_frame.f_globals.get("__name__", "")), traceback.tb_lineno
        traceback = traceback.tb_next


@cache
def _modules() -> dict[str, str]:
    """Top-level modules of the packages that add something, and their packages."""
    from importlib.metadata import entry_points

    return {
        plugin.entry.value.partition(":")[0].partition(".")[0].strip(): plugin.package
        for group in entry_points().groups
        if group.startswith(GROUPS)
        for plugin in load_plugins(group).values()
    }


def _package(entry: EntryPoint) -> tuple[str, str]:
    if entry.dist is None:  # only of entry points that no distribution lists
        return "unknown package", ""
    return entry.dist.name, entry.dist.version
