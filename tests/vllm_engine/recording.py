"""What the layers of a running vLLM write and read, forward by forward."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from evalkit.dsa import ReuseSchedule
from evalkit.vllm_plugin import deepseek_v4, engine
from tests.vllm_engine.model import C4


@dataclass
class Forward:
    """One forward: selections [tokens, top-k] by layer id, and the tokens that decode."""

    decode_tokens: int = 0
    own: dict[int, Tensor] = field(default_factory=dict)
    read: dict[int, Tensor] = field(default_factory=dict)


class Recorder:
    """Looks at every attention layer with an indexer, below whatever the plugin has put there.

    Attributes:
        forwards: since `clear`.
        scored: how often each layer's scores were formed.
        projected: how often each layer's index query or weights were.
        compressed: how often each layer's index keys were.
    """

    def __init__(self, model: Any) -> None:
        self.layers = deepseek_v4.layers(model)
        self.own = next(iter(self.layers.values())).topk_indices_buffer
        self.clear()
        for layer, attention in self.layers.items():
            self._watch(layer, attention)

    def clear(self) -> None:
        self.forwards: list[Forward] = []
        self.scored: Counter[int] = Counter()
        self.projected: Counter[int] = Counter()
        self.compressed: Counter[int] = Counter()

    def put(self, config: Any, schedule: ReuseSchedule | None) -> None:
        """Another schedule on the loaded model, by the plugin's own hand; None: vLLM as it is."""
        import vllm

        for attention in self.layers.values():
            indexer = attention.indexer
            for module, name in ((attention, "forward_mqa"), (indexer, "forward")):
                module.__dict__.pop(name, None)
            indexer.weights_proj.__dict__.pop("forward", None)
            attention.topk_indices_buffer = self.own
            indexer.topk_indices_buffer = indexer.indexer_op.topk_indices_buffer = self.own
        if schedule is not None:
            config.additional_config = {engine.NOTE: str(schedule)}
            engine.attach(self.model_of(), config, vllm.__version__)
        self.clear()

    def model_of(self) -> Any:
        """A stand-in for the model: its modules are the layers."""
        layers = list(self.layers.values())
        return type("Model", (), {"modules": lambda _: iter(layers)})()

    def _watch(self, layer: int, attention: Any) -> None:
        indexer = attention.indexer
        for linear in (indexer.wq_b, indexer.weights_proj):
            self._count(linear.quant_method, "apply", "projected", layer)
        self._count(indexer.compressor, "forward", "compressed", layer)
        self._count(indexer.indexer_op, "forward", "scored", layer)
        kind = type(attention)
        attend = getattr(kind, "_unwatched", kind.forward_mqa)

        def watched(module: Any, q: Any, kv: Any, positions: Any, output: Any) -> None:
            if module.indexer is not None:
                self.see(module, positions.shape[0])
            attend(module, q, kv, positions, output)

        kind._unwatched, kind.forward_mqa = attend, watched

    def _count(self, module: Any, method: str, counter: str, layer: int) -> None:
        run = getattr(module, method)

        def counted(*args: Any, **kwargs: Any) -> Any:
            getattr(self, counter)[layer] += 1
            return run(*args, **kwargs)

        setattr(module, method, counted)

    def see(self, attention: Any, rows: int) -> None:
        """Called before a layer's attention."""
        from vllm.forward_context import get_forward_context

        metadata = get_forward_context().attn_metadata
        if not isinstance(metadata, dict):
            return  # a profiling run
        layer = next(k for k, v in self.layers.items() if v is attention)
        if layer == C4[0]:
            split = metadata[attention.indexer.k_cache.prefix].num_decode_tokens
            self.forwards.append(Forward(split))
        seen = self.forwards[-1]
        seen.read[layer] = attention.topk_indices_buffer[:rows].clone()
        seen.own[layer] = attention.indexer.topk_indices_buffer[:rows].clone()
