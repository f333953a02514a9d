"""Layers of released models by hub id, as data: a schedule can be planned without a download."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from evalkit.dsa.engine_config.published_patterns import published_pattern


@cache
def known_models() -> Mapping[str, Mapping[str, Any]]:
    """The fields of each model's config.json that decide its layers, by hub id."""
    text = files(__package__).joinpath("released_models.toml").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = tomllib.loads(text)
    for config in found.values():
        native = config.pop("native", None)
        if native is not None:
            letters = published_pattern(native).pattern
            config["indexer_types"] = ["full" if c == "F" else "shared" for c in letters]
    return found


def known_config(model: str) -> dict[str, Any] | None:
    """Those fields, or None for a model that is not known."""
    config = known_models().get(model)
    return None if config is None else dict(config)
