"""Which layers of a model have an indexer, from its configuration alone (no weights, no torch)."""

from __future__ import annotations

from dataclasses import dataclass

from evalkit.dsa.config_fields import integer, text_config
from evalkit.dsa.families.base import UnsupportedModelError
from evalkit.dsa.families.registry import family_of
from evalkit.dsa.json_types import JsonObject
from evalkit.dsa.schedule import ReuseSchedule, ScheduleError


@dataclass(frozen=True, slots=True)
class Layout:
    """The indexer-bearing layers of a model.

    Attributes:
        model_type: `model_type` of the (text) configuration.
        num_layers: backbone decoder layers; MTP layers are not among them.
        layer_ids: absolute ids of the layers that the schedule's ordinals count.
        native: the schedule the checkpoint was made with (all full, unless it says otherwise).
        topk: keys that an indexer selects; None where the configuration does not say.
        ratio: tokens per index key.
        heads: of an indexer; None where the configuration does not say.
    """

    model_type: str
    num_layers: int
    layer_ids: tuple[int, ...]
    native: ReuseSchedule
    topk: int | None = None
    ratio: int = 1
    heads: int | None = None

    @property
    def dense_tokens(self) -> int | None:
        """Longest sequence that every indexer selects whole: no schedule can change its result."""
        return None if self.topk is None else self.topk * self.ratio


def layout(config: JsonObject) -> Layout:
    """Layout of a model from its `config.json`.

    Raises:
        UnsupportedModelError: the model type has no lightning indexer that is known here, or no
            layer of this configuration has one.
        ScheduleError: the configuration contradicts itself.
    """
    text = text_config(config)
    model_type = str(text.get("model_type", config.get("model_type", "?")))
    family = family_of(model_type)
    try:
        layers = family.indexer_layers(text)
        topk, heads = integer(text, "index_topk"), integer(text, "index_n_heads")
    except ScheduleError as error:
        raise ScheduleError(f"{model_type}: {error}") from None
    if not layers.ids:
        raise UnsupportedModelError(f"{model_type}: no layer of this configuration has an indexer")
    native = ReuseSchedule.from_pattern(layers.letters, layers=layers.ids)
    return Layout(model_type, layers.num_layers, layers.ids, native, topk, layers.ratio, heads)
