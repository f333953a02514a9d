"""Fields of a model's config.json, checked as they are read. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping

from evalkit.dsa.schedule import ScheduleError

Config = Mapping[str, object]


def text_config(config: Config) -> Config:
    """The configuration of the language model; of a multimodal model its `text_config`."""
    text = config.get("text_config")
    return text if isinstance(text, Mapping) and text else config


def integer(config: Config, name: str) -> int | None:
    """A whole number; None where the field is absent or null.

    Raises:
        ScheduleError: it is something else.
    """
    value = config.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ScheduleError(f"{name} = {value!r} in the configuration: it must be a whole number")
    return value


def entries(config: Config, name: str) -> tuple[object, ...]:
    """A list; empty where the field is absent or null.

    Raises:
        ScheduleError: it is something else.
    """
    value = config.get(name)
    if value is not None and not isinstance(value, list | tuple):
        raise ScheduleError(f"{name} = {value!r} in the configuration: it must be a list")
    return tuple(value or ())
