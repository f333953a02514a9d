"""Layers of released models by hub id, as data: a schedule can be planned without a download."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from evalkit.dsa.engine_config.published_patterns import published_pattern
from evalkit.dsa.json_types import JsonObject, JsonValue


@cache
def known_models() -> Mapping[str, JsonObject]:
    """The fields of each model's config.json that decide its layers, by hub id."""
    text = files(__package__).joinpath("released_models.toml").read_text(encoding="utf-8")
    models: dict[str, dict[str, JsonValue]] = tomllib.loads(text)
    for config in models.values():
        native = config.pop("native", None)
        if native is not None:
            letters = published_pattern(str(native)).pattern
            config["indexer_types"] = ["full" if c == "F" else "shared" for c in letters]
    return models


def known_config(model: str) -> dict[str, JsonValue] | None:
    """Those fields, or None for a model that is not known."""
    config = known_models().get(model)
    return None if config is None else dict(config)
