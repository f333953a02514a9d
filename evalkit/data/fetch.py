"""Downloads: the hub, raw files of a repository, wheels. One file each, into a given folder."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

from evalkit.core.errors import EvalkitError

RAW = "https://raw.githubusercontent.com"
RAW_SECONDS = 60
RAW_BYTES = 2**24


def hub_file(repo: str, file: str, revision: str, folder: Path) -> Path:
    """One file of a data set on the Hugging Face hub, at a revision; no script is run.

    Raises:
        EvalkitError: it could not be had.
    """
    what = f"{repo} {file} at {revision[:12]}"
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise EvalkitError(f"{what}: could not be fetched ({_first_line(error)})") from None
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)  # its retries are no news, their end is told below
    try:
        fetched = hf_hub_download(
            repo_id=repo,
            filename=file,
            repo_type="dataset",
            revision=revision,
            local_dir=folder,
        )
    except Exception as error:  # every layer below has errors of its own
        raise EvalkitError(f"{what}: could not be fetched ({_first_line(error)})") from None
    finally:
        hub.setLevel(level)
    path = Path(fetched)
    if not path.is_file():
        raise EvalkitError(f"{what}: could not be fetched (the hub gave no file)")
    return path


def raw_file(repo: str, file: str, revision: str, folder: Path) -> Path:
    """One small file of a GitHub repository at a commit.

    Raises:
        EvalkitError: it could not be had, came incomplete, or is not small.
    """
    import urllib.request
    from http.client import HTTPException

    url = f"{RAW}/{repo}/{revision}/{file}"
    try:
        with urllib.request.urlopen(url, timeout=RAW_SECONDS) as answer:  # noqa: S310 - RAW is https
            data = answer.read(RAW_BYTES + 1)
            promised = answer.headers.get("Content-Length")
    except (HTTPException, OSError, ValueError) as error:
        raise EvalkitError(f"{url}: could not be fetched ({_first_line(error)})") from None
    if len(data) > RAW_BYTES:
        raise EvalkitError(f"{url}: refused: more than {RAW_BYTES} bytes")
    if promised is not None and promised.isdecimal() and int(promised) != len(data):
        raise EvalkitError(f"{url}: incomplete: {len(data)} of {promised} bytes")
    path = folder / file.rpartition("/")[2]
    path.write_bytes(data)
    return path


def wheel(name: str, version: str, file: str, folder: Path, seconds: float) -> Path:
    """One wheel by pip without its dependencies; wheels run no code when fetched.

    Raises:
        EvalkitError: it could not be had within `seconds`, or there is none of that name.
    """
    what = f"{name}=={version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), what]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command, no shell
            command, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise EvalkitError(f"{what}: not fetched within {seconds} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["pip gave no reason"]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        reason = errors[-1].removeprefix("ERROR: ")
        raise EvalkitError(f"{what}: could not be fetched ({reason})")
    if not (folder / file).is_file():
        raise EvalkitError(f"{what}: no {file} at the index")
    return folder / file


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
