"""What is known of a model family with a lightning indexer: one record, data only, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
        parameters: our names of the positional parameters of the indexer's `forward`.
        adapter: which code computes index features (name in `evalkit.dsa.families.sites.ADAPTERS`);
            None where index scores are not offered.
        no_features: why they are not.
        rope: how the indexer rotates pairs of channels; None: it does not.
        rope_slice: which channels of a head are rotated.
        padding: whether rows of one batch may be padded (windows of a compressor forbid it).
        sentinel: whether attention takes -1 for "no key here".
        dialect: how transformers reads reuse settings of this family
            (`evalkit.dsa.engine_config.dialects`).
        refused: why no schedule can act on this family; "" where one can.
    """

    layer_type: str | None = None
    ratio: int = 1
    parameters: tuple[str, ...] = ()
    adapter: str | None = None
    no_features: str = ""
    rope: Rope | None = None
    rope_slice: Literal["first", "last"] = "first"
    padding: bool = True
    sentinel: bool = False
    dialect: str = "transformers-v32"
    refused: str = ""
