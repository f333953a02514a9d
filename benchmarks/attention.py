"""Peak memory and time of a prompt's forward: sparse attention beside eager and sdpa.

    python benchmarks/attention.py [--lengths 8192 32768] [--shapes small v32] [--layers 4]
    python benchmarks/attention.py --piece 32768    # in one piece, as `distill` runs its text

Random DeepSeek-V3.2 layers in fp32, the prompt fed in pieces with a cache as `evalkit run` does,
always under chunked selection (`engine.indexer = "chunked"`), so that attention is what differs.
Each cell runs in a process of its own. "MiB" is peak resident memory above the loaded
model, "cache" what keys and index keys of the whole prompt take of it, "CPU s" the time on one
thread, "ms" that of every token decoded after it. Without --methods, the small shape is measured
under sparse attention and sdpa, and v32 under sparse attention alone: sdpa takes 46 minutes of it
at 32k. Cells whose attention would take more than --limit billion products are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from typing import Any

SHAPES: dict[str, dict[str, int]] = {
    "small": {
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "q_lora_rank": 96,
        "kv_lora_rank": 64,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
        "index_n_heads": 4,
        "index_head_dim": 32,
        "index_topk": 128,
    },
    # V3.2's heads, an eighth of them, on an eighth of its hidden size
    "v32": {
        "hidden_size": 896,
        "intermediate_size": 2304,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "index_n_heads": 8,
        "index_head_dim": 128,
        "index_topk": 2048,
    },
}
ANSWER = 8
METHODS = ("sparse", "sdpa", "eager")
DEFAULT = {"small": ("sparse", "sdpa"), "v32": ("sparse",)}


def measure(method: str, shape: str, length: int, layers: int, piece: int) -> dict[str, float]:
    """One prompt in this process."""
    import torch
    from transformers import DeepseekV32Config, DeepseekV32Model

    from evalkit.dsa import ReuseSchedule, apply_schedule
    from evalkit.dsa.transformers_model import new_cache

    torch.manual_seed(0)
    config = DeepseekV32Config(
        vocab_size=1024, num_hidden_layers=layers, mlp_layer_types=["dense"] * layers,
        max_position_embeddings=length, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        attn_implementation="sdpa" if method == "sparse" else method, **SHAPES[shape],
    )  # fmt: skip
    model = DeepseekV32Model(config).eval()
    ids = torch.randint(3, 1024, (1, length))
    cache: Any = new_cache(model)
    under = apply_schedule(
        model, ReuseSchedule.uniform(layers), chunked=True, sparse=method == "sparse"
    )
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    with torch.no_grad(), under:
        for at in range(0, length, piece):
            model(ids[:, at : at + piece], cache=cache, use_cache=True)
        seconds, start = time.process_time() - start, time.process_time()
        for at in range(ANSWER):
            model(ids[:, at : at + 1], cache=cache, use_cache=True)
    after = time.process_time() - start
    kept = config.kv_lora_rank + config.qk_rope_head_dim + config.index_head_dim
    return {
        "mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024,
        "cache": layers * length * kept * 4 / 2**20,
        "seconds": seconds,
        "ms": 1000 * after / ANSWER,
    }


def products(shape: str, length: int, layers: int) -> float:
    """Billions, of attention under a mask."""
    of = SHAPES[shape]
    width = of["qk_rope_head_dim"] + of["qk_nope_head_dim"] + of["v_head_dim"]
    return layers * of["num_attention_heads"] * length * length / 2 * width / 1e9


def cell(method: str, shape: str, length: int, layers: int, piece: int) -> dict[str, float]:
    """One prompt in a process of its own."""
    one = [sys.executable, __file__, "--layers", str(layers), "--piece", str(piece)]
    one += ["--one", method, shape, str(length)]
    done = subprocess.run(one, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[8192, 32768])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--methods", nargs="+", choices=METHODS)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--piece", type=int, default=2048, help="prompt tokens per forward")
    parser.add_argument("--limit", type=float, default=3000.0)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        method, shape, length = args.one
        print(json.dumps(measure(method, shape, int(length), args.layers, args.piece)))
        return
    print("| shape | layers | tokens | attention | MiB | of it cache | CPU s | of sdpa's | ms |")
    print("|---|---:|---:|---|---:|---:|---:|---:|---:|")
    cells: dict[tuple[str, int], dict[str, dict[str, float]]] = {}
    for shape in args.shapes:
        for length in args.lengths:
            masked = products(shape, length, args.layers) <= args.limit
            asked = args.methods or DEFAULT[shape]
            methods = [m for m in asked if m == "sparse" or masked]
            found = {m: cell(m, shape, length, args.layers, args.piece) for m in methods}
            cells[shape, length] = found
            for method, one in found.items():
                whole = found.get("sdpa", {}).get("seconds")
                ratio = "–" if whole is None else f"{one['seconds'] / whole:.2f}"
                print(
                    f"| {shape} | {args.layers} | {length} | {method} | {one['mib']:.0f}"
                    f" | {one['cache']:.0f} | {one['seconds']:.1f} | {ratio} | {one['ms']:.0f} |",
                    flush=True,
                )
    print(json.dumps(ratios(cells)))


def ratios(cells: dict[tuple[str, int], dict[str, dict[str, float]]]) -> dict[str, float]:
    """By shape, at its greatest length: times faster than sdpa, memory, its growth per doubling."""
    found = {}
    for shape in {shape for shape, _ in cells}:
        lengths = sorted(length for name, length in cells if name == shape)
        last = cells[shape, lengths[-1]]
        if "sparse" not in last:
            continue
        found[f"{shape}, MiB"] = last["sparse"]["mib"]
        if "sdpa" in last:
            found[f"{shape}, sdpa"] = last["sdpa"]["seconds"] / last["sparse"]["seconds"]
        if len(lengths) > 1:
            one, two = (cells[shape, length]["sparse"] for length in lengths[-2:])
            times = (two["mib"] - two["cache"]) / (one["mib"] - one["cache"])
            found[f"{shape}, doubling"] = times ** (1 / math.log2(lengths[-1] / lengths[-2]))
    return found


if __name__ == "__main__":
    main()
