"""Which layers have an indexer, and which of them ship as shared, by a configuration. No torch."""

from __future__ import annotations

from typing import NamedTuple

from evalkit.dsa.config_fields import entries, integer
from evalkit.dsa.json_types import JsonObject, JsonValue, as_object
from evalkit.dsa.schedule import ScheduleError

_TYPES = {"F": "full", "S": "shared"}
MOST_LAYERS = 10_000
"""More are a slip of the pen: no model has them, and every layer is written out."""


class IndexerLayers(NamedTuple):
    """The layers with an indexer.

    Attributes:
        num_layers: backbone decoder layers; MTP layers are not among them.
        ids: absolute ids of the layers with an indexer; empty: there are none.
        letters: F or S per id, as the checkpoint ships.
        ratio: tokens per index key.
    """

    num_layers: int
    ids: tuple[int, ...]
    letters: str
    ratio: int = 1


def marked_layers(config: JsonObject, layer_type: str | None, ratio: int) -> tuple[int, ...]:
    """Ids of all layers, or of those marked in `compress_ratios` or `layer_types`."""
    layers = positive(config, "num_hidden_layers")
    if layer_type is None:
        return tuple(range(layers))
    marks, mark = entries(config, "compress_ratios") if ratio > 1 else (), str(ratio)
    if not marks:
        marks, mark = entries(config, "layer_types"), layer_type
    return tuple(i for i, entry in enumerate(marks[:layers]) if str(entry) == mark)


def compression(config: JsonObject, layer_type: str | None, ratio: int) -> int:
    """Tokens per index key: by `compress_rates`, else the family's own."""
    rates = as_object(config.get("compress_rates"))
    return ratio if layer_type is None else integer(rates, layer_type) or ratio


def deepseek_v41_layers(config: JsonObject) -> IndexerLayers:
    """Compressed layers read the selection of the nearest source at or below them.

    vLLM, models/deepseek_v41/attention.py; SGLang, models/deepseek_v4.py. Later sources choose
    among the candidate blocks of the first one, which no F/S pattern says.
    """
    layers = positive(config, "num_hidden_layers")
    ratios = _whole_numbers(config, "compress_ratios")[:layers]
    sources = _whole_numbers(config, "index_source_layer_ids")
    ids = tuple(i for i, ratio in enumerate(ratios) if ratio > 0)
    letters = "".join("F" if i in sources else "S" for i in ids)
    return IndexerLayers(layers, ids, letters, max(ratios))


def longcat_layers(config: JsonObject) -> IndexerLayers:
    """Two attention modules in every layer, counted one after the other; SGLang, longcat_flash."""
    name = "num_hidden_layers" if config.get("num_hidden_layers") is not None else "num_layers"
    layers, factor = positive(config, name), integer(config, "cli_factor") or 1
    count = 0 if integer(config, "index_topk") is None else 2 * layers
    letters = "".join("F" if i % factor == 0 else "S" for i in range(count))
    return IndexerLayers(layers, tuple(range(count)), letters)


def glm_types(config: JsonObject, layers: int) -> list[str]:
    """`indexer_types` by pattern, else by frequency and offset; transformers, models/glm_moe_dsa.

    Raises:
        ScheduleError: the class fails on these values.
    """
    pattern = config.get("index_topk_pattern")
    if isinstance(pattern, str):
        if set(pattern) - set(_TYPES):
            raise ScheduleError(f"GlmMoeDsaConfig takes F and S only, not {pattern!r}")
        return [_TYPES[letter] for letter in pattern]
    for name in ("index_topk_freq", "index_skip_topk_offset"):
        if name in config and config[name] is None:
            raise ScheduleError(
                f"config.json has {name}: null, which GlmMoeDsaConfig cannot compute with:"
                " remove the line"
            )
    freq = max(_integer(config.get("index_topk_freq", 1), "index_topk_freq"), 1)
    offset = _integer(config.get("index_skip_topk_offset", 2), "index_skip_topk_offset")
    return ["full" if max(i - offset + 1, 0) % freq == 0 else "shared" for i in range(layers)]


def hy_v4_types(_: JsonObject, layers: int) -> list[str]:
    """`indexer_types` of every fourth layer; transformers, models/hy_v4; vLLM and SGLang alike."""
    return ["full" if i == 0 or (i - 1) % 4 == 0 else "shared" for i in range(layers)]


def positive(config: JsonObject, name: str) -> int:
    """A number of layers: a whole number above 0.

    Raises:
        ScheduleError: absent, or something else.
    """
    number = integer(config, name) or 0
    if number <= 0:
        raise ScheduleError(f"the configuration has no {name}")
    if number > MOST_LAYERS:
        raise ScheduleError(f"{name} = {number} in the configuration: at most {MOST_LAYERS}")
    return number


def _whole_numbers(config: JsonObject, name: str) -> list[int]:
    numbers = [n for n in entries(config, name) if isinstance(n, int) and not isinstance(n, bool)]
    if not numbers or len(numbers) != len(entries(config, name)):
        raise ScheduleError(f"{name} in the configuration must be a list of whole numbers")
    return numbers


def _integer(value: JsonValue, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScheduleError(f"{name} {value!r} is not a whole number")
    return value
