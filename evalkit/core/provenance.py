"""Where numbers come from: package versions and the commit of a checkout."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("dsa-evalkit", "torch", "transformers", "tokenizers", "numpy", "scipy", "wonderwords")


def environment() -> dict[str, Any]:
    """Versions of what decides the numbers; no host name, no path, no user."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {"python": platform.python_version(), "packages": versions, "commit": commit()}


def with_guests(
    facts: Mapping[str, Any], packages: Mapping[str, str], before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Facts of `environment` that also name the packages whose tasks, scorers … a run uses.

    Args:
        facts: of `environment`.
        packages: version by name; without any, nothing is added.
        before: facts of an earlier part of the run, whose packages stay.
    """
    guests = {**(before or {}).get("guests", {}), **facts.get("guests", {}), **packages}
    return {**facts, **({"guests": guests} if guests else {})}


def commit() -> str | None:
    """Commit of the checkout this package runs from (``-dirty`` with local changes), or None."""
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


def model_name(arm: Mapping[str, Any]) -> str:
    """The checkpoint without the folders of a machine; empty where it is not known."""
    model = str(arm.get("model") or "")
    return model.rstrip("/").rpartition("/")[2] if model.startswith("/") else model
