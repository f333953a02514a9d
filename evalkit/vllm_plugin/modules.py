"""Modules of an engine's model by the name of their class: no class of it is imported for this."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any


def named(model: Any, base: str) -> Iterator[Any]:
    """Modules whose class, or one that it derives from, has this name."""
    for module in model.modules():
        if any(kind.__name__ == base for kind in type(module).__mro__):
            yield module


def layer_id(prefix: str) -> int:
    """Absolute layer id of a module's prefix: ``model.layers.4.attn`` is 4."""
    numbers = re.findall(r"(?:^|\.)layers\.(\d+)(?:\.|$)", prefix)
    if len(numbers) != 1:
        raise ValueError(f"{prefix}: no layer id, or several")
    return int(numbers[0])
