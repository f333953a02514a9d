"""What answers prompts: transformers in this process, or the gold itself. One file per engine."""

from __future__ import annotations

from evalkit.config import EngineConfig, HfConfig
from evalkit.engines.base import Engine


def open_engine(config: EngineConfig) -> Engine:
    """The engine that a recipe names."""
    if isinstance(config, HfConfig):
        from evalkit.engines.hf import HfEngine

        return HfEngine(config)
    from evalkit.engines.oracle import OracleEngine

    return OracleEngine(config)
