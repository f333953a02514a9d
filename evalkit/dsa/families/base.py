"""What is known of a model family with a lightning indexer: one record, data only, no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from evalkit.dsa.config_fields import entries
from evalkit.dsa.families.layer_rules import (
    IndexerLayers,
    compression,
    marked_layers,
    positive,
)
from evalkit.dsa.json_types import JsonObject
from evalkit.dsa.schedule import ScheduleError

Rope = Literal["half_split", "interleaved", "interleaved_in_place"]


class UnsupportedModelError(ScheduleError):
    """The model has no indexer that a schedule can act on; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One model family.

    Attributes:
        layer_type: entry of the configuration's `layer_types` that marks layers with an indexer;
            None: all layers have one. `indexer_types` says which of them ship as shared.
        ratio: tokens per index key. Where it is above 1, the configuration may mark the layers by
            this number in `compress_ratios`, or give another number in `compress_rates`.
        layers: a rule of its own for families whose configurations say it in another way.
        config_class: the class that derives `indexer_types` where config.json has none, or "".
        class_types: how it does, from a configuration and the number of layers.
        parameters: our names of the positional parameters of the indexer's `forward`; empty where
            transformers has no such model, and its schedules are for servers only.
        adapter: which code computes index features (name in `evalkit.dsa.families.sites.ADAPTERS`);
            None where index scores are not offered.
        no_features: why they are not.
        rope: how the indexer rotates pairs of channels; None: it does not.
        rope_slice: which channels of a head are rotated.
        padding: whether rows of one batch may be padded (windows of a compressor forbid it).
        sentinel: whether attention takes -1 for "no key here".
        static_cache: whether transformers has one for it.
        sparse: whether its attention hands selected positions on (transformers' `indices`), so that
            `evalkit.dsa.sparse_attention` can take its place.
        dialect: how transformers reads reuse settings of this family
            (`evalkit.dsa.engine_config.dialects`); "" where it has no such model.
        refused: why no schedule can act on this family; "" where one can.
    """

    layer_type: str | None = None
    ratio: int = 1
    layers: Callable[[JsonObject], IndexerLayers] | None = None
    config_class: str = ""
    class_types: Callable[[JsonObject, int], list[str]] | None = None
    parameters: tuple[str, ...] = ()
    adapter: str | None = None
    no_features: str = ""
    rope: Rope | None = None
    rope_slice: Literal["first", "last"] = "first"
    padding: bool = True
    sentinel: bool = False
    static_cache: bool = True
    sparse: bool = False
    dialect: str = ""
    refused: str = ""

    def indexer_layers(self, config: JsonObject) -> IndexerLayers:
        """Layers with an indexer, by the configuration of the language model.

        Raises:
            ScheduleError: the configuration contradicts itself.
        """
        if self.layers is not None:
            return self.layers(config)
        ids = marked_layers(config, self.layer_type, self.ratio)
        count = positive(config, "num_hidden_layers")
        types = entries(config, "indexer_types")
        if not types and self.class_types is not None:
            types = self.class_types(config, count)
        if types and len(types) < count:
            raise ScheduleError(f"indexer_types has {len(types)} entries for {count} layers")
        unknown = next((entry for entry in types if entry not in ("full", "shared")), None)
        if unknown is not None:
            raise ScheduleError(f"indexer_types has {unknown!r}: only full and shared are known")
        letters = "".join("S" if types and types[i] == "shared" else "F" for i in ids)
        return IndexerLayers(count, ids, letters, compression(config, self.layer_type, self.ratio))
