"""The samples of a page, compressed: gzip in base64, which a browser reads without a library.

All answers stand in the page whole if they fit. If they do not, samples on which all arms score
alike are left out, and of the answers that are left the longest are cut, all to one length.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evalkit.dsa.json_types import JsonValue
from evalkit.report.sample_browser import Samples, Texts

ROOM = 5_000_000
"""Bytes of the compressed samples; the page is to stay below 6 MB."""

KEEP_ALL = 1000
"""Characters: before answers are cut shorter than this, samples that tell nothing are left out."""

MOST_PROMPT_TOKENS = 1_500_000
"""Of all prompts together; more of them would not fit, and take minutes to make."""

TOO_LARGE = "together they are too large for one file"

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Payload:
    """The samples that a page holds.

    Attributes:
        index: packed `Samples.index`.
        texts: packed list of `Samples.texts`, in the order of the index.
        kept: samples.
        total: of the run.
        cut: characters kept of an answer; None where all are whole.
        prompts: why prompts are not there; empty where they are.
    """

    index: str
    texts: str
    kept: int
    total: int
    cut: int | None
    prompts: str


def payload(samples: Samples, room: int = ROOM) -> Payload:
    """As much of the samples as fits into `room` bytes."""
    ids, cut = samples.ids, None
    rows = [samples.texts(i) for i in ids]
    prompts, missing = _prompts(samples)
    texts = _texts(replace(row, prompt=text) for row, text in zip(rows, prompts, strict=True))
    if any(prompts) and len(texts) > room:
        missing, texts = TOO_LARGE, _texts(rows)
    if len(texts) > room:
        texts, cut = _cut_to(rows, room, len(texts))
        if cut < KEEP_ALL and (telling := [k for k, i in enumerate(ids) if samples.tells(i)]):
            ids, rows = [ids[k] for k in telling], [rows[k] for k in telling]
            texts, cut = _texts(rows), None
            if len(texts) > room:
                texts, cut = _cut_to(rows, room, len(texts))
    return Payload(packed(samples.index(ids)), texts, len(ids), len(samples.ids), cut, missing)


def _prompts(samples: Samples) -> tuple[list[str | None], str]:
    """The prompts of all samples, and why some are missing."""
    ids = samples.ids
    if sum(samples.tokens(i) or 0 for i in ids) > MOST_PROMPT_TOKENS:
        return [None] * len(ids), TOO_LARGE
    texts: list[str | None] = []
    gone: set[str] = set()  # tasks of which one was missed: the others will be, too
    for sample_id in ids:
        task = samples.items[sample_id].task
        texts.append(None if task in gone else samples.prompt(sample_id))
        if texts[-1] is None:
            gone.add(task)
    return texts, samples.prompts.missing


def _texts(rows: Iterable[Texts], most: int | None = None) -> str:
    return packed([row.json(most) for row in rows])


def _cut_to(rows: Sequence[Texts], room: int, size: int) -> tuple[str, int]:
    """Texts cut to the longest length that fits, and that length.

    Args:
        rows: whole texts.
        room: bytes.
        size: bytes of the whole texts.
    """
    lengths = np.array([len(text) for row in rows for text in row.parts])
    target = float(lengths.sum())
    while True:
        target *= 0.97 * room / size
        cut = _longest(lengths, target)
        texts = _texts(rows, cut)
        size = len(texts)
        if size <= room or cut == 0:
            return texts, cut


def _longest(lengths: NDArray[np.int64], target: float) -> int:
    """The largest length to which texts may be cut so that they have `target` characters."""
    low, high = 0, int(lengths.max(initial=0))
    while low < high:
        middle = (low + high + 1) // 2
        fits = float(np.minimum(lengths, middle).sum()) <= target
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def packed(data: JsonValue) -> str:
    """JSON, gzip, base64; equal data give equal texts."""
    return base64.b64encode(gzip.compress(json_bytes(data), 9, mtime=0)).decode("ascii")


def json_bytes(data: JsonValue) -> bytes:
    """JSON in UTF-8; a lone surrogate, which has no UTF-8, stays escaped."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode("utf-8")
