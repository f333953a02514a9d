"""Time of a sweep whose arms read the prompt once, in times of one arm.

    python benchmarks/shared_prefill.py [--length 8192] [--answer 32] [--layers 8]

A random model of DeepSeek-V3.2 layers (`small` of benchmarks/attention.py), one prompt, one
thread: the baseline alone, then baseline and lags of 1, 2 and 3 from one prefill, and one by one.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch
from attention import SHAPES
from transformers import DeepseekV32Config, DeepseekV32ForCausalLM

from evalkit.core.types import Prompt, Sample
from evalkit.dsa import ReuseSchedule, apply_schedule
from evalkit.engines.hf.greedy_decoder import GreedyDecoder, Prefill


class Numbers:
    """A tokenizer whose text is the ids, and that ends no answer."""

    pad_token_id, eos_token_id = 0, None

    def decode(self, ids: list[int], **_: object) -> str:
        """Ids in words."""
        return " ".join(map(str, ids))


def decoder_of(length: int, layers: int) -> GreedyDecoder:
    """A random model that decodes."""
    torch.manual_seed(0)
    config = DeepseekV32Config(
        vocab_size=1024, num_hidden_layers=layers, mlp_layer_types=["dense"] * layers,
        max_position_embeddings=2 * length, pad_token_id=0, bos_token_id=1, eos_token_id=None,
        **SHAPES["small"],
    )  # fmt: skip
    model: Any = DeepseekV32ForCausalLM(config).eval()
    tokenizer: Any = Numbers()
    return GreedyDecoder(model, tokenizer, prefill_chunk=2048)


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--answer", type=int, default=32)
    parser.add_argument("--layers", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    decoder = decoder_of(args.length, args.layers)
    ids = tuple(torch.randint(3, 1024, (args.length,)).tolist())
    sample = Sample("s/0", "s", "q", ("x",), "none", args.answer)
    prompts = [Prompt(sample, ids, "q", "h", args.answer)]
    arms = [ReuseSchedule.uniform(args.layers, 1, lag) for lag in range(4)]

    def answer(arm: ReuseSchedule, read: Prefill | None = None) -> Prefill:
        with apply_schedule(decoder.model, arm, chunked=True, sparse=True) as applied:
            prefill = decoder.prefill(prompts, applied) if read is None else read
            kept = prefill.copy()
            decoder.answer(prefill, applied)
        return kept

    def one_by_one() -> None:
        for arm in arms:
            answer(arm)

    def together() -> None:
        kept = answer(arms[0])
        for arm in arms[1:]:
            answer(arm, kept.copy())

    answer(arms[0])
    taken = []
    for run in (lambda: answer(arms[0]), together, one_by_one):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    one, shared, alone = taken
    print(f"{args.length} prompt tokens, {args.answer} answer tokens, {args.layers} layers, CPU s")
    print(f"one arm {one:.1f}; baseline and k = 1, 2, 3 from one prefill {shared:.1f}")
    print(f"({shared / one:.2f} x); one by one {alone:.1f} ({alone / one:.2f} x)")
    print(json.dumps({"arms": shared / one}))


if __name__ == "__main__":
    main()
