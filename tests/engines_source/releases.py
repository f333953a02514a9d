"""Pinned releases of engines, fetched from the package index, and text out of them.

A new release is one line in `RELEASES`, its number in the row's `run_against`, and this run. Wheels
are read, never installed; only their Python text is kept, and none of it goes into the repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import pytest

# package, version, and the family of rows that it proves
RELEASES = (
    ("sglang", "0.5.17", "sglang"),
    ("sglang", "0.5.19", "sglang"),
    ("sglang", "0.5.20", "sglang"),
    ("sglang", "0.5.23", "sglang"),
    ("vllm", "0.33.0", "vllm"),
    ("vllm-ascend", "0.23.0", "vllm-ascend"),
    ("megatron-core", "0.16.1", "megatron"),
)
FAMILIES = {package: family for package, _, family in RELEASES}
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "dsa-evalkit" / "engines"
_PLATFORM = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311")
_PLATFORM += ("--abi", "abi3", "--abi", "none", "--platform", "manylinux_2_34_x86_64")
_PLATFORM += ("--platform", "manylinux_2_28_x86_64", "--platform", "any")


def versions(package: str) -> tuple[str, ...]:
    """The pinned versions of a package."""
    return tuple(version for name, version, _ in RELEASES if name == package)


@cache
def sources(package: str, version: str) -> dict[str, str]:
    """Text of every Python file of a release by path; skips where it cannot be fetched."""
    archive = CACHE / f"{package}-{version}.zip"
    if not archive.is_file():
        _fetch(package, version, archive)
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name).decode("utf-8", "replace") for name in opened.namelist()}


def everything(package: str, version: str) -> str:
    """All Python text of a release."""
    return "\n".join(sources(package, version).values())


def _fetch(package: str, version: str, archive: Path) -> None:
    """Download the wheel without dependencies, and keep its Python files."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", *_PLATFORM, "--dest", folder]
        done = subprocess.run(
            [*command, f"{package}=={version}"], capture_output=True, text=True, check=False
        )
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            reason = [line for line in done.stderr.splitlines() if line.strip()][-1:]
            pytest.skip(f"{package} {version} could not be fetched: {' '.join(reason)}")
        part = Path(folder) / "python.zip"
        with zipfile.ZipFile(wheels[0]) as wheel:
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as kept:
                for name in wheel.namelist():
                    if name.endswith(".py"):
                        kept.writestr(name, wheel.read(name))
        part.replace(archive)
