"""The fields that an engine holds once its configuration class has read a config.json.

SGLang and vLLM let transformers (or a class of their own) read the checkpoint's config.json and put
command-line overrides on the finished object. `GlmMoeDsaConfig` always fills `indexer_types`, from
the pattern, else from frequency and offset of config.json; an override of the pattern comes too
late to change it. transformers itself puts its arguments in before. Standard library only.
"""

from __future__ import annotations

from evalkit.dsa.config_fields import text_config
from evalkit.dsa.engine_config.dialect import Dialect
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.dsa.schedule import ScheduleError

_LETTER = {"F": "full", "S": "shared"}


def in_force(
    engine: str, row: Dialect, config: JsonObject, overrides: JsonObject | None, layers: int
) -> tuple[dict[str, JsonValue], str]:
    """The fields, and the class that filled `indexer_types` ("" where it was given).

    Args:
        engine: for messages.
        row: its rules.
        config: the checkpoint's config.json as written.
        overrides: what the command line adds; None: `config` is the merged whole.
        layers: number of layers.

    Raises:
        ScheduleError: the class, or the engine, fails on these values.
    """
    config = text_config(config)
    overrides = text_config(overrides or {})
    if row.overrides == "before class":
        config, overrides = {**config, **overrides}, {}
    model_type = str(config.get("model_type", ""))
    fields: dict[str, JsonValue] = dict(config)
    filled_by = ""
    if row.overrides != "unknown" and config.get("indexer_types") is None:
        types = _filled(engine, row, model_type, config, layers)
        if types is not None:
            fields["indexer_types"] = types
            filled_by = "GlmMoeDsaConfig" if model_type == "glm_moe_dsa" else "the hy_v4 class"
    fields.update(overrides)
    if "indexer_types" in overrides:
        filled_by = ""
    _refuse_nulls(engine, row, fields)
    return fields, filled_by


def class_types(model_type: str, config: JsonObject, layers: int) -> list[str] | None:
    """`indexer_types` as the configuration class derives them; None: it derives none.

    transformers, models/glm_moe_dsa and models/hy_v4; the classes of vLLM and SGLang for hy_v4
    do the same.

    Raises:
        ScheduleError: the class fails on these values.
    """
    if model_type == "hy_v4":
        return ["full" if i == 0 or (i - 1) % 4 == 0 else "shared" for i in range(layers)]
    if model_type != "glm_moe_dsa":
        return None
    pattern = config.get("index_topk_pattern")
    if isinstance(pattern, str):
        if set(pattern) - set(_LETTER):
            raise ScheduleError(f"GlmMoeDsaConfig takes F and S only, not {pattern!r}")
        return [_LETTER[letter] for letter in pattern]
    for name in ("index_topk_freq", "index_skip_topk_offset"):
        if name in config and config[name] is None:
            raise ScheduleError(
                f"config.json has {name}: null, which GlmMoeDsaConfig cannot compute with:"
                " remove the line"
            )
    freq = max(_integer(config.get("index_topk_freq", 1), "index_topk_freq"), 1)
    offset = _integer(config.get("index_skip_topk_offset", 2), "index_skip_topk_offset")
    return ["full" if max(i - offset + 1, 0) % freq == 0 else "shared" for i in range(layers)]


def _filled(
    engine: str, row: Dialect, model_type: str, config: JsonObject, layers: int
) -> list[str] | None:
    if model_type == "glm_moe_dsa" and row.overrides == "before class":
        return None  # transformers' own rows read pattern and frequency themselves
    try:
        return class_types(model_type, config, layers)
    except ScheduleError as error:
        raise ScheduleError(f"{engine}: {error}") from None


def _refuse_nulls(engine: str, row: Dialect, fields: JsonObject) -> None:
    if row.null_is_unset or "freq" not in row.reads or fields.get("index_topk_pattern") is not None:
        return
    for name in row.names:
        if name in fields and fields[name] is None:
            raise ScheduleError(f"{engine}: {name} is null, and it computes with it: leave it out")


def _integer(value: JsonValue, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScheduleError(f"{name} {value!r} is not a whole number")
    return value
