"""What answers prompts: transformers in this process, a server, or the gold."""

from __future__ import annotations

from evalkit.config.engine import EngineConfig, HfConfig
from evalkit.config.server import OpenAIServerConfig
from evalkit.engines.base import Engine


def help_first_process(config: EngineConfig) -> None:
    """What the further processes of `accelerate launch` do: follow the first until it is done."""
    if isinstance(config, HfConfig):
        from evalkit.engines.hf.engine import HfEngine

        HfEngine(config).help()


def open_engine(config: EngineConfig) -> Engine:
    """The engine that a recipe names."""
    if isinstance(config, HfConfig):
        from evalkit.engines.hf.engine import HfEngine

        return HfEngine(config)
    if isinstance(config, OpenAIServerConfig):
        from evalkit.engines.openai.engine import OpenAIServerEngine

        return OpenAIServerEngine(config)
    from evalkit.engines.oracle import OracleEngine

    return OracleEngine(config)
