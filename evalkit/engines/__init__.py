"""Engines that answer prompts: transformers in this process, servers, the oracle."""

from __future__ import annotations

from evalkit.config.engine import ENGINES
from evalkit.core.errors import EvalkitError
from evalkit.core.plugins import running
from evalkit.core.recipe import Strict
from evalkit.engines.base import Engine, MultiProcessEngine


def help_first_process(config: Strict) -> None:
    """What the further processes of `accelerate launch` do: follow the first until it is done."""
    engine = open_engine(config)
    if isinstance(engine, MultiProcessEngine):
        engine.help()


def open_engine(config: Strict) -> Engine:
    """The engine that a recipe names.

    Raises:
        EvalkitError: it cannot be opened, or the kind's package has a fault.
    """
    kind = ENGINES.of(config)
    package = ENGINES.package(kind.name)
    with running(package):
        engine = kind.open(config)
    if not isinstance(engine, Engine):
        raise EvalkitError(
            f"{package}: the engine {kind.name} is a {type(engine).__name__}, which lacks some of"
            " load, native, answer and engagement"
        )
    return engine
