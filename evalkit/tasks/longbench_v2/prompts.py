"""The official prompt files, filled in one pass."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Followup
from evalkit.data.sources import locate, of_card
from evalkit.tasks.longbench_v2.items import CARD

_PLACE = re.compile(r"\$(DOC|Q|C_[A-D])\$")
NEEDED = ("$Q$", "$C_A$", "$C_B$", "$C_C$", "$C_D$")
ANSWER = "0shot_cot_ans"
"""The second call of ``0shot_cot``."""


@dataclass(frozen=True, slots=True)
class Template:
    """One prompt file.

    Attributes:
        text: with ``$DOC$``, ``$Q$``, ``$C_A$`` ... where values go.
        sha256: of the file.
        official: whether it is the pinned one.
    """

    text: str
    sha256: str
    official: bool

    def fill(self, values: Mapping[str, str]) -> str:
        """The prompt; values are stripped, and what looks like a place in them is left alone."""
        return _PLACE.sub(lambda match: values[match[1]].strip(), self.text)


@cache
def load(folder: Path | None, mode: str) -> Template:
    """A prompt file from a folder, or the pinned one.

    Raises:
        EvalkitError: it cannot be had, or lacks a place for question, choices or text.
    """
    path = _path(folder, mode)
    try:
        data = path.read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        raise EvalkitError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise EvalkitError(f"{path}: not UTF-8 (byte {error.start})") from None
    wanted = [*NEEDED, *_more(mode)]
    missing = [place for place in wanted if place not in text]
    if missing:
        raise EvalkitError(f"{path}: a prompt of {mode} without {' and '.join(missing)}")
    digest = hashlib.sha256(data).hexdigest()
    return Template(text, digest, digest == of_card(CARD, f"prompt_{mode}").sha256)


def _more(mode: str) -> list[str]:
    if mode == ANSWER:
        return [Followup.PLACE]
    return [] if mode == "0shot_no_context" else ["$DOC$"]


def _path(folder: Path | None, mode: str) -> Path:
    if folder is None:
        return locate(of_card(CARD, f"prompt_{mode}"))
    names = (f"{mode}.txt", f"prompts/{mode}.txt", f"longbench_v2_{mode}.txt")
    for path in (folder / name for name in names):
        if path.is_file():
            return path
    raise EvalkitError(f"{folder}: has no {mode}.txt")
