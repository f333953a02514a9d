"""Which layers of a model have an indexer, from its configuration alone (no weights, no torch)."""

from __future__ import annotations

from dataclasses import dataclass

from evalkit.dsa.config_fields import entries, integer, text_config
from evalkit.dsa.engine_config.config_class import class_types
from evalkit.dsa.families.base import Family, UnsupportedModelError
from evalkit.dsa.families.registry import family_of
from evalkit.dsa.json_types import JsonObject, as_object
from evalkit.dsa.schedule import ReuseSchedule, ScheduleError

# Models that serving engines run and transformers does not: read here, not run by the hf engine.
_V41 = ("deepseek_v41", "deepseek_v41_text")
_LONGCAT = "longcat_flash"


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
    """

    model_type: str
    num_layers: int
    layer_ids: tuple[int, ...]
    native: ReuseSchedule
    topk: int | None = None
    ratio: int = 1

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
    if model_type in _V41:
        return _deepseek_v41(model_type, text)
    if model_type == _LONGCAT:
        return _longcat(text)
    family = family_of(model_type)
    layers = integer(text, "num_hidden_layers") or 0
    if layers <= 0:
        raise ScheduleError(f"{model_type}: the configuration has no num_hidden_layers")
    ids = _layer_ids(family, text, layers)
    if not ids:
        raise UnsupportedModelError(f"{model_type}: no layer of this configuration has an indexer")
    letters = _native_letters(model_type, text, layers)
    return Layout(
        model_type,
        layers,
        ids,
        ReuseSchedule.from_pattern("".join(letters[i] for i in ids), layers=ids),
        integer(text, "index_topk"),
        _ratio(family, text),
    )


def _layer_ids(family: Family, config: JsonObject, layers: int) -> tuple[int, ...]:
    if family.layer_type is None:
        return tuple(range(layers))
    mark: int | str = family.ratio
    marks = entries(config, "compress_ratios") if family.ratio > 1 else ()
    if not marks:
        mark, marks = family.layer_type, entries(config, "layer_types")
    return tuple(i for i, entry in enumerate(marks[:layers]) if entry == mark)  # MTP layers follow


def _ratio(family: Family, config: JsonObject) -> int:
    if family.layer_type is None:
        return family.ratio
    rates = as_object(config.get("compress_rates"))
    return integer(rates, family.layer_type) or family.ratio


def _native_letters(model_type: str, config: JsonObject, layers: int) -> str:
    """F/S over absolute layers, as transformers reads it; all F where the model has no sharing."""
    types = entries(config, "indexer_types") or class_types(model_type, config, layers)
    if not types:
        return "F" * layers
    if len(types) < layers:
        raise ScheduleError(f"indexer_types has {len(types)} entries for {layers} layers")
    unknown = next((entry for entry in types if entry not in ("full", "shared")), None)
    if unknown is not None:
        raise ScheduleError(f"indexer_types has {unknown!r}: only full and shared are known")
    return "".join("S" if entry == "shared" else "F" for entry in types[:layers])


def _deepseek_v41(model_type: str, config: JsonObject) -> Layout:
    """Compressed layers read the selection of the nearest source at or below them.

    vLLM, models/deepseek_v41/attention.py; SGLang, models/deepseek_v4.py. Later sources choose
    among the candidate blocks of the first one, which no F/S pattern says.
    """
    layers = _positive(model_type, config, "num_hidden_layers")
    ratios = _whole_numbers(config, "compress_ratios")[:layers]
    sources = _whole_numbers(config, "index_source_layer_ids")
    ids = tuple(i for i, ratio in enumerate(ratios) if ratio > 0)
    if not ids:
        raise UnsupportedModelError(f"{model_type}: no layer of this configuration has an indexer")
    letters = "".join("F" if i in sources else "S" for i in ids)
    native = ReuseSchedule.from_pattern(letters, layers=ids)
    topk = integer(config, "index_topk")
    return Layout(model_type, layers, ids, native, topk, max(ratios))


def _longcat(config: JsonObject) -> Layout:
    """Two attention modules in every layer, counted one after the other; SGLang, longcat_flash."""
    name = "num_hidden_layers" if config.get("num_hidden_layers") is not None else "num_layers"
    layers = _positive(_LONGCAT, config, name)
    topk, factor = integer(config, "index_topk"), integer(config, "cli_factor") or 1
    if topk is None:
        raise UnsupportedModelError(f"{_LONGCAT}: no layer of this configuration has an indexer")
    letters = "".join("F" if i % factor == 0 else "S" for i in range(2 * layers))
    return Layout(
        _LONGCAT, layers, tuple(range(2 * layers)), ReuseSchedule.from_pattern(letters), topk
    )


def _positive(model_type: str, config: JsonObject, name: str) -> int:
    number = integer(config, name) or 0
    if number <= 0:
        raise ScheduleError(f"{model_type}: the configuration has no {name}")
    return number


def _whole_numbers(config: JsonObject, name: str) -> list[int]:
    numbers = [n for n in entries(config, name) if isinstance(n, int) and not isinstance(n, bool)]
    if not numbers or len(numbers) != len(entries(config, name)):
        raise ScheduleError(f"{name} in the configuration must be a list of whole numbers")
    return numbers
