"""Transformers in this process, or in the processes of `accelerate launch`."""

from evalkit.config.engine import EngineKind
from evalkit.core.model_info import positions
from evalkit.engines.base import Engine
from evalkit.engines.hf.config import HfConfig

__all__ = ["KIND", "HfConfig"]


def _open(config: HfConfig) -> Engine:
    from evalkit.engines.hf.engine import HfEngine

    return HfEngine(config)


KIND = EngineKind(
    config=HfConfig,
    open=_open,
    shares_prefill=True,
    throughput=frozenset({"batch_tokens", "max_batch", "prefill_chunk", "device_map"}),
    selects=True,
    likelihoods=True,
    repeatable=lambda _: True,
    positions=lambda _, model: positions(model),
)
