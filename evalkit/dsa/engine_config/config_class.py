"""The fields that an engine holds once its configuration class has read a config.json.

SGLang and vLLM let transformers (or a class of their own) read the checkpoint's config.json and put
command-line overrides on the finished object. `GlmMoeDsaConfig` always fills `indexer_types`, from
the pattern, else from frequency and offset of config.json; an override of the pattern comes too
late to change it. transformers itself puts its arguments in before. Standard library only.
"""

from __future__ import annotations

from evalkit.dsa.config_fields import override_fields, text_config
from evalkit.dsa.engine_config.dialect import Dialect
from evalkit.dsa.families.registry import FAMILIES
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.dsa.schedule import ScheduleError


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
    overrides = override_fields(overrides or {})
    if row.overrides == "before class":
        config, overrides = {**config, **overrides}, {}
    model_type = str(config.get("model_type", ""))
    fields: dict[str, JsonValue] = dict(config)
    filled_by = ""
    if row.overrides != "unknown" and config.get("indexer_types") is None:
        types = _filled(engine, row, model_type, config, layers)
        if types is not None:
            fields["indexer_types"] = types
            filled_by = FAMILIES[model_type].config_class
    fields.update(overrides)
    if "indexer_types" in overrides:
        filled_by = ""
    _refuse_nulls(engine, row, fields)
    return fields, filled_by


def class_types(model_type: str, config: JsonObject, layers: int) -> list[str] | None:
    """`indexer_types` as the configuration class derives them; None: it derives none.

    Raises:
        ScheduleError: the class fails on these values.
    """
    family = FAMILIES.get(model_type)
    if family is None or family.class_types is None:
        return None
    return family.class_types(config, layers)


def _filled(
    engine: str, row: Dialect, model_type: str, config: JsonObject, layers: int
) -> list[str] | None:
    if row.overrides == "before class" and "pattern" in row.reads:
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
