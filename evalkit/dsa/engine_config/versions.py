"""Which row of the table holds for an engine, its version and a model type.

The version is taken from the running server where it is known, else from the name
(``sglang==0.5.19``), else the newest release is meant; the choice says which. Standard library
only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from evalkit.dsa.engine_config.dialect import Dialect
from evalkit.dsa.engine_config.dialects import DIALECTS
from evalkit.dsa.families.registry import FAMILIES
from evalkit.dsa.schedule import ScheduleError

_VERSION = re.compile(r"v?\d[\w.+!-]*")


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """A row, and how it was chosen.

    Attributes:
        name: row in `DIALECTS`.
        version: of the engine; "" where the row is not bound to releases.
        origin: where the version is from.
        caution: what must be known about the choice, or "".
    """

    name: str
    version: str
    origin: str
    caution: str = ""

    @property
    def label(self) -> str:
        """Engine and version in a few letters: ``sglang 0.5.23``."""
        row = DIALECTS.get(self.name)
        return f"{row.family} {self.version}" if row and self.version else self.name

    def __str__(self) -> str:
        version = f", version {self.version}" if self.version else ""
        origin = f" ({self.origin})" if self.origin else ""
        return f"{DIALECTS[self.name].title}{version}{origin}"


def families() -> tuple[str, ...]:
    """Names that a version may follow: ``sglang==0.5.23``."""
    return tuple(dict.fromkeys(row.family for row in DIALECTS.values() if row.family))


def is_known(engine: str) -> bool:
    """Whether `choose` can read this name (its version aside)."""
    name, _, version = engine.partition("==")
    return name in families() or (name in DIALECTS and not version)


def choose(engine: str, *, model_type: str = "", reported: str = "") -> EngineChoice:
    """The row of an engine for a model.

    Args:
        engine: name of a row, or of a family with or without a version (``vllm==0.33.0``,
            ``megatron==main``).
        model_type: `model_type` of the checkpoint; "": not known.
        reported: version that the running server reports; it goes before the one in the name.

    Raises:
        ScheduleError: not known (the nearest names are listed), a version that no row reads, or a
            row of its own that was given a version.
    """
    name, _, wanted = engine.partition("==")
    if name not in families():
        if name not in DIALECTS:
            raise ScheduleError(f"engine {engine}: not known ({_near(name)})")
        if wanted:
            raise ScheduleError(f"engine {name} has no versions: leave =={wanted} out")
        return EngineChoice(name, "", "as named")
    record = FAMILIES.get(model_type)
    if name == "transformers" and record is not None and record.dialect:
        return EngineChoice(record.dialect, "", "")
    caution = ""
    if reported and not any(_release(reported)):  # built from a checkout: "dev", "0.0.0.dev0"
        caution = (
            f"the server says version {reported}, which is no release: {name}==VERSION names one"
        )
        reported = ""
    version = reported or wanted
    origin = "the server says so" if reported else "as named" if wanted else "newest release"
    rows = _rows(name, model_type)
    if reported and wanted and _release(reported) != _release(wanted):
        caution = f"the server is version {reported}, not {wanted}"
    if wanted == "main" and not reported:
        return _main(name, rows)
    released = {key: row for key, row in rows.items() if row.status == "released"}
    if not version:
        key = next(k for k, row in released.items() if not row.until)
        return EngineChoice(key, _newest(released), origin, caution)
    if not _VERSION.fullmatch(version):
        raise ScheduleError(f"engine {engine}: write a version such as {name}=={_newest(released)}")
    for key, row in released.items():
        if _within(row, version):
            return EngineChoice(key, version, origin, caution or _untried(released, row, version))
    raise ScheduleError(f"engine {engine}: no row reads version {version}")


def _rows(family: str, model_type: str) -> dict[str, Dialect]:
    """Rows of a family for a model type: those that name it, else those that name none."""
    rows = {key: row for key, row in DIALECTS.items() if row.family == family}
    named = {key: row for key, row in rows.items() if model_type in row.models}
    return named or {key: row for key, row in rows.items() if not row.models}


def _main(family: str, rows: dict[str, Dialect]) -> EngineChoice:
    for key, row in rows.items():
        if row.status == "main":
            return EngineChoice(key, "main", "as named", "not in a release yet")
    raise ScheduleError(f"engine {family}==main: only releases were read; leave ==main out")


def _newest(rows: dict[str, Dialect]) -> str:
    versions = [version for row in rows.values() for version in row.run_against]
    return max(versions, key=_release, default="")


def _untried(released: dict[str, Dialect], row: Dialect, version: str) -> str:
    """What is to be said of a version beyond those that the rows were run against."""
    newest = _newest(released)
    if newest and _release(version) > _release(newest):
        return f"newer than {newest}, the newest one that this was run against"
    oldest = min(row.run_against, key=_release, default="")
    if not row.since and _release(version) < _release(oldest or version):
        return f"older than {oldest}, the oldest one that this was run against"
    return ""


def _within(row: Dialect, version: str) -> bool:
    release = _release(version)
    after = not row.since or release >= _release(row.since)
    return after and (not row.until or release <= _release(row.until))


def _release(version: str) -> tuple[int, ...]:
    """The first three numbers: 0.5.15.post1 → (0, 5, 15)."""
    match = re.match(r"v?(\d+(?:\.\d+){0,2})", version)
    numbers = tuple(int(part) for part in match[1].split(".")) if match else ()
    return (*numbers, 0, 0)[:3]


def _near(name: str) -> str:
    known = tuple(dict.fromkeys((*families(), *DIALECTS)))
    near = get_close_matches(name, known, n=2, cutoff=0.6)
    return (
        f"did you mean {' or '.join(near)}? known: {', '.join(known)}"
        if near
        else (", ".join(known))
    )
