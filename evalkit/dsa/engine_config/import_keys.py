"""Keys of settings that are read in: what an engine does not read is an error, not silence."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from evalkit.dsa.config_fields import override_fields
from evalkit.dsa.engine_config.dialect import Dialect
from evalkit.dsa.engine_config.dialects import DIALECTS
from evalkit.dsa.engine_config.parse import PLUGIN_FIELD, field_name
from evalkit.dsa.json_types import JsonObject
from evalkit.dsa.schedule import ScheduleError

_GATE = "use_index_cache"
# Fields of other kinds that start lines often carry beside those of reuse.
_OTHER = frozenset(
    {"architectures", "dtype", "index_topk", "max_position_embeddings", "model_type"}
    | {"num_hidden_layers", "num_nextn_predict_layers", "quantization_config", "rope_parameters"}
    | {"rope_scaling", "text_config", "torch_dtype"}
)


def refuse_foreign_keys(
    engine: str, row: Dialect, overrides: JsonObject, known: Collection[str] = ()
) -> None:
    """Raise for a key that the engine does not read.

    Args:
        engine: for messages.
        row: its rules.
        overrides: settings as the user wrote them.
        known: further keys that mean something, those of the checkpoint's config.json.

    Raises:
        ScheduleError: the key belongs to another engine, or to none; the near one is named.
    """
    read = fields_of(row)
    for key in override_fields(overrides):
        if key in read or key == _GATE:
            continue
        if key in _every_field():
            near = _nearest(key, read)
            raise ScheduleError(f"{engine} does not read {key}{near or f': {row.title}'}")
        if key not in known and key not in _OTHER:
            raise ScheduleError(f"{key}: no setting of index reuse{_nearest(key, read)}")


def fields_of(row: Dialect) -> tuple[str, ...]:
    """The reuse fields that an engine reads."""
    fields = [field_name(row, source) for source in row.reads] + [PLUGIN_FIELD] * row.plugin
    return (*fields, row.names[1]) if "freq" in row.reads else tuple(fields)


def _every_field() -> frozenset[str]:
    return frozenset(
        name for row in DIALECTS.values() for name in (*fields_of(row), *row.names)
    ) | {"indexer_types", "index_topk_pattern", "cli_factor"}


def _nearest(key: str, read: Collection[str]) -> str:
    near = get_close_matches(key, read, n=1, cutoff=0.6)
    if near:
        return f": did you mean {near[0]}?"
    return f" (it reads {', '.join(read)})" if read else ""
