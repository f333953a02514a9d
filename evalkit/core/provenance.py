"""Where numbers come from: package versions and the commit of a checkout."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from evalkit.core.json_fields import optional_fields
from evalkit.dsa.json_types import JsonObject

DISTRIBUTION = "dsa-evalkit"
PACKAGES = (DISTRIBUTION, "torch", "transformers", "tokenizers", "numpy", "scipy", "wonderwords")


def environment() -> JsonObject:
    """Versions of what decides the numbers; no host name, no path, no user."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {"python": platform.python_version(), "packages": versions, "commit": commit()}


def with_guests(
    facts: JsonObject, packages: Mapping[str, str], before: JsonObject | None = None
) -> JsonObject:
    """Facts of `environment` that also name the packages whose tasks, scorers … a run uses.

    Args:
        facts: of `environment`.
        packages: version by name; without any, nothing is added.
        before: facts of an earlier part of the run, whose packages stay.
    """
    guests = {
        **optional_fields(before or {}, "guests"),
        **optional_fields(facts, "guests"),
        **packages,
    }
    return {**facts, **({"guests": guests} if guests else {})}


@cache
def commit() -> str | None:
    """Commit of the checkout this package runs from (``-dirty`` with local changes), or None.

    Asked once: what a process has loaded does not change.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "HEAD")
        dirty = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("-dirty" if dirty else "")


def _git(root: Path, *args: str) -> str:
    return subprocess.run(  # noqa: S603 - fixed arguments
        ["git", "-C", str(root), *args],  # noqa: S607 - the user's git
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    ).stdout.strip()


def model_name(model: str | None) -> str:
    """A checkpoint without the folders of a machine; empty where it is not known."""
    model = model or ""
    return model.rstrip("/").rpartition("/")[2] if model.startswith("/") else model
