"""The shipped small model under vLLM: started, asked and watched in a process of its own.

    EVALKIT_SCHEDULE='FSSS… lag=1' python -m tests.vllm_engine.small_model MODEL PROMPTS OUT CHUNK

V3.2's retention is decided when the model is built, so that every schedule needs a start. PROMPTS
is a JSON list of token ids, CHUNK the most tokens of a forward; OUT becomes a torch file: greedy
answers, and per forward what every layer selected and read.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from tests.paths import ROOT
from tests.vllm_engine import start

TOKENS = 8
WORDS = ("layer_types", "mlp_layer_types")  # of transformers; vLLM's configuration refuses them


def save(directory: Path) -> Path:
    """A copy whose configuration vLLM reads."""
    shutil.copytree(ROOT / "recipes" / "tiny" / "model", directory)
    file = directory / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({k: v for k, v in config.items() if k not in WORDS}))
    return directory


def watch(seen: list[dict[str, Any]]) -> None:
    """Record every forward below what the plugin puts there."""
    from vllm.forward_context import get_forward_context

    from tests.vllm_engine import plain_mla

    select, attend = plain_mla.select, plain_mla.PlainImpl.forward_mqa

    def selected(op: Any, hidden: Any, *rest: Any) -> Any:
        result = select(op, hidden, *rest)
        metadata = get_forward_context().attn_metadata
        if isinstance(metadata, dict):
            layer = layer_of(op.k_cache.prefix)
            if layer == 0:
                decode = metadata[op.k_cache.prefix].num_decode_tokens
                seen.append({"decode": decode, "selected": {}, "read": {}})
            seen[-1]["selected"][layer] = op.topk_indices_buffer[: len(hidden)].clone()
        return result

    def attended(impl: Any, q: Any, cache: Any, metadata: Any, layer: Any) -> Any:
        rows = metadata.num_actual_tokens
        seen[-1]["read"][layer_of(layer.layer_name)] = impl.topk_indices_buffer[:rows].clone()
        return attend(impl, q, cache, metadata, layer)

    plain_mla.select, plain_mla.PlainImpl.forward_mqa = selected, attended


def layer_of(prefix: str) -> int:
    """Absolute layer id."""
    return int(prefix.partition("layers.")[2].partition(".")[0])


def main(model: str, prompts: str, out: str, chunk: str) -> None:
    """Start, ask, write."""
    start.prepare()
    seen: list[dict[str, Any]] = []
    watch(seen)
    llm = start.engine(
        model, dtype="float32", max_model_len=1024, max_num_batched_tokens=int(chunk)
    )
    answers = start.answer(llm, json.loads(Path(prompts).read_text()), TOKENS)
    torch.save({"answers": answers, "forwards": seen}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
