"""Published index-reuse patterns as named data, each with its origin."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from evalkit.dsa.schedule import ReuseSchedule, ScheduleError


@dataclass(frozen=True, slots=True)
class Published:
    """A pattern that somebody published.

    Attributes:
        name: how it is called here.
        pattern: F/S letters over all layers.
        model: what it was made for.
        origin: where it was published, and how it was found.
        caution: what must be known before it is used, or "".
    """

    name: str
    pattern: str
    model: str
    origin: str
    caution: str = ""

    @property
    def schedule(self) -> ReuseSchedule:
        """The pattern as a schedule."""
        return ReuseSchedule.from_pattern(self.pattern)


@cache
def published() -> Mapping[str, Published]:
    """All published patterns by name."""
    text = files(__package__).joinpath("published_patterns.toml").read_text(encoding="utf-8")
    return {name: Published(name, **entry) for name, entry in tomllib.loads(text).items()}


def published_pattern(name: str) -> Published:
    """One of them.

    Raises:
        ScheduleError: no such name; the known ones are listed.
    """
    if name not in published():
        raise ScheduleError(f"published pattern {name}: not known ({', '.join(published())})")
    return published()[name]
