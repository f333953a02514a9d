"""Selections that SGLang returns (``--enable-return-indexer-topk``): does reuse show in them?

A server started so answers its native ``/generate`` with ``meta_info["indexer_topk"]``, base64 of
int32 [tokens − 1, indexer-bearing layers, top-k], −1 where fewer positions exist. A shared layer's
slot must hold its source's selection, and a full layer's must not be the one before it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalkit.dsa import ReuseSchedule
from evalkit.dsa.json_types import JsonObject

Selections = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TopkProof:
    """What the selections show.

    Attributes:
        rows: tokens whose selection leaves something out; only those can show anything.
        differing: shared layers (ids) whose selection is not their source's.
        copied: full layers (ids) whose selection is the one before in every row.
        order: whether equal selections were found in another order.
    """

    rows: int
    differing: tuple[int, ...]
    copied: tuple[int, ...]
    order: bool

    @property
    def holds(self) -> bool | None:
        """True: the schedule is in force; False: it is not; None: too few tokens to tell."""
        if self.rows == 0:
            return None
        return not self.differing and not self.copied

    @property
    def text(self) -> str:
        """One line."""
        if self.rows == 0:
            return "the returned selections leave nothing out: the prompt is too short"
        if self.differing:
            return f"shared layers {_join(self.differing)} do not read their source's selection"
        if self.copied:
            return f"full layers {_join(self.copied)} copy the selection before them"
        more = ", in another order" if self.order else ""
        return f"every shared layer reads its source's selection in {self.rows} tokens{more}"


def decode(meta_info: JsonObject, layers: int) -> Selections | None:
    """Selections [tokens, layers, top-k] of a reply; None where it has none or they do not fit."""
    raw = meta_info.get("indexer_topk")
    if not isinstance(raw, str):
        return None
    try:
        flat = np.frombuffer(base64.b64decode(raw, validate=True), dtype="<i4")
    except (binascii.Error, ValueError):
        return None
    counts = [meta_info.get(name) for name in ("prompt_tokens", "completion_tokens")]
    tokens = sum(count for count in counts if isinstance(count, int)) - 1
    if tokens < 1 or flat.size == 0 or flat.size % (tokens * layers):
        return None
    return flat.reshape(tokens, layers, -1).astype(np.int32)


def prove(selections: Selections, schedule: ReuseSchedule, *, ratio: int = 1) -> TopkProof:
    """Compare every layer's selections with what the schedule says.

    Args:
        selections: [tokens, layers, top-k].
        schedule: without lag; its ordinals count the layers of `selections`.
        ratio: tokens per selectable position.
    """
    positions = (np.arange(selections.shape[0]) + 1) // ratio
    rows = selections[positions > selections.shape[2]]
    if rows.shape[0] == 0:
        return TopkProof(0, (), (), False)
    ordered = np.sort(rows, axis=2)
    differing, copied, order = [], [], False
    for ordinal, source in enumerate(schedule.source):
        layer = schedule.layer_ids[ordinal]
        if not schedule.computes[ordinal]:
            if not np.array_equal(ordered[:, ordinal], ordered[:, source]):
                differing.append(layer)
            order |= not np.array_equal(rows[:, ordinal], rows[:, source])
        elif ordinal and np.array_equal(ordered[:, ordinal], ordered[:, ordinal - 1]):
            copied.append(layer)
    return TopkProof(rows.shape[0], tuple(differing), tuple(copied), order and not differing)


def request_body(token_ids: Sequence[int], new_tokens: int) -> JsonObject:
    """Body of the native ``/generate`` call."""
    return {
        "input_ids": list(token_ids),
        "sampling_params": {"temperature": 0, "max_new_tokens": new_tokens},
        "return_indexer_topk": True,
    }


def _join(layers: Sequence[int]) -> str:
    more = " …" if len(layers) > 8 else ""
    return ", ".join(map(str, layers[:8])) + more
