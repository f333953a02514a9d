"""What `benchmarks/gpu_check.sh` runs: proofs on the device, step times, scan against attention.

1. Proofs of schedules on the device, small random models: an all-full schedule gives the untouched
   model's bits, chunking changes no selection, a lag is what the source map says, undo is exact.
2. One distillation step of a DeepSeek-V3.2-shaped indexer: time, peak memory, share of the bf16
   matrix rate that is reached (rate measured here; FLOP are those that the step cannot do without).
3. One decode step at rising context: the indexer's scan with its top-k against sparse attention
   over what it selected, the comparison of the first figure of arXiv 2611.03768.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import distill_memory as memory
import torch
from torch import Tensor

from evalkit.dsa import ReuseSchedule, apply_schedule
from evalkit.dsa.families.sites import indexer_sites

HEADS, DIM, LATENT, VALUE, TOPK = 64, 128, 576, 512, 2048  # DeepSeek-V3.2: index and MLA sizes
ATTENTION_HEADS = 128


def seconds(run: Callable[[], Any], device: str, repeats: int) -> float:
    """Mean of some calls after one that does not count."""
    run()
    return memory.timed(run, device, repeats)


# -- proofs ----------------------------------------------------------------------------------------


@torch.no_grad()
def proofs(device: str) -> bool:
    """Print a line per proof; True where all hold."""
    from tests.dsa.tiny import build, output, tokens

    fine = True
    for family in ("deepseek_v32", "glm_moe_dsa", "deepseek_v4"):
        model = build(family).to(device)
        ids = indexer_sites(model).layout.layer_ids
        some = tokens(2, 96).to(device)
        plain = output(model, some, use_cache=False)
        full = ReuseSchedule.uniform(ids, 1)
        with apply_schedule(model, full):
            same = torch.equal(output(model, some, use_cache=False), plain)
        found = {"all full is bit-identical": same}
        lag = ReuseSchedule.uniform(ids, 1, 1, lag_phase="all")
        spelled = ReuseSchedule.from_sources(lag.source, layers=ids, computes=lag.computes)
        logits, chosen = [], []
        for schedule, chunked in ((lag, False), (spelled, False), (lag, True)):
            own: dict[int, Tensor] = {}

            def observe(i: int, _: Any, c: Tensor | None, own: dict[int, Tensor] = own) -> None:
                if c is not None:
                    own[i] = c.sort(-1).values

            with apply_schedule(model, schedule, chunked=chunked, observe=observe):
                logits.append(output(model, some, use_cache=False))
            chosen.append(own)
        found["lag equals its source map"] = torch.equal(logits[0], logits[1])
        late = slice(40, None)  # rows with a choice: before them gaps are spelled differently
        agree = [
            float((chosen[0][i][:, late] == chosen[2][i][:, late]).float().mean())
            for i in chosen[0]
        ]
        found["chunked selects the same (>= 99.9 %)"] = min(agree) >= 0.999
        found["lag changes the output"] = not torch.equal(logits[0], plain)
        found["undone exactly"] = torch.equal(output(model, some, use_cache=False), plain)
        for what, holds in found.items():
            print(f"{'ok  ' if holds else 'FAIL'} {family}: {what}")
        fine = fine and all(found.values())
    return fine


# -- one step --------------------------------------------------------------------------------------


def matrix_rate(device: str, size: int) -> float:
    """bf16 FLOP/s of one large product."""
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    return 2 * size**3 / seconds(lambda: a @ a, device, 5)


def step_flop(model: str, length: int, rows: int, teachers: int) -> float:
    """Products of a step: projections and scores, three passes for the student, one per teacher."""
    shape = memory.SHAPES[model]
    width = shape["index_n_heads"] * shape["index_head_dim"]
    keys = 2.0 * length * shape["hidden_size"] * shape["index_head_dim"]
    queries = 2.0 * rows * shape["q_lora_rank"] * width
    scores = 2.0 * rows * length * width
    student = 2 * keys + 2 * queries + 3 * scores  # inputs are frozen: one backward product each
    return student + teachers * (keys + queries + scores)


def steps(device: str, model: str, lengths: list[int], rate: float) -> None:
    """Print the table of steps."""
    print("\n| keys | rows | step, s | peak beyond inputs, GiB | share of the bf16 rate |")
    print("|---|---|---|---|---|")
    for length in lengths:
        for rows in (64, 512):
            step = memory.Step(model, length, device, teachers=2, rows=rows, dtype=torch.bfloat16)
            used = 0.0
            if device != "cpu":
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            took = seconds(step.chunked, device, 2)
            if device != "cpu":
                used = (torch.cuda.max_memory_allocated() - before) / 2**30
            share = step_flop(model, length, len(step.rows[0]), 2) / took / rate
            print(f"| {length} | {len(step.rows[0])} | {took:.3f} | {used:.2f} | {share:.1%} |")
            del step


# -- scan against attention ------------------------------------------------------------------------


def scan(query: Tensor, key: Tensor, weight: Tensor, topk: int) -> Tensor:
    """The indexer's decode step: scores of one row against all keys, and its top-k."""
    scores = (query @ key.T).relu_().mul_(weight[:, None]).sum(0)
    return scores.topk(min(topk, len(key))).indices


def attend(query: Tensor, cache: Tensor, chosen: Tensor) -> Tensor:
    """Absorbed MLA over the selected latents: heads × 576 against k × 576, values of 512."""
    some = cache[chosen]
    share = (query @ some.T * LATENT**-0.5).softmax(-1)
    return share @ some[:, :VALUE]


@torch.no_grad()
def figure(device: str, contexts: list[int]) -> None:
    """Print the table of one decode step per layer."""
    print("\n| context | scan + top-k, µs | attention, µs | scan / attention |")
    print("|---|---|---|---|")
    kind = {"device": device, "dtype": torch.bfloat16}
    for context in contexts:
        key, cache = torch.randn(context, DIM, **kind), torch.randn(context, LATENT, **kind)
        query, weight = torch.randn(HEADS, DIM, **kind), torch.randn(HEADS, **kind)
        heads = torch.randn(ATTENTION_HEADS, LATENT, **kind)
        chosen = scan(query, key, weight, TOPK)
        repeats = 50 if device != "cpu" else 2
        first = seconds(lambda q=query, k=key, w=weight: scan(q, k, w, TOPK), device, repeats)
        second = seconds(lambda h=heads, c=cache, i=chosen: attend(h, c, i), device, repeats)
        print(f"| {context} | {first * 1e6:.0f} | {second * 1e6:.0f} | {first / second:.2f} |")


def main() -> None:
    """Print everything; exit code 1 where a proof fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU")
    dry = parser.parse_args().dry
    if not dry and not torch.cuda.is_available():
        raise SystemExit("gpu_check: no CUDA device here; --dry runs tiny sizes on the CPU")
    device = "cpu" if dry else "cuda"
    began = time.perf_counter()
    print(torch.cuda.get_device_name() if not dry else "dry run on the CPU: times mean nothing")
    fine = proofs(device)
    rate = matrix_rate(device, 256 if dry else 8192)
    print(f"\nbf16 products: {rate / 1e12:.3g} TFLOP/s")
    if dry:
        steps(device, "dry", [256, 512], rate)
        figure(device, [4096, 8192])
    else:
        steps(device, "v32", [32_768, 131_072], rate)
        figure(device, [8_192, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288])
    print(f"\n{time.perf_counter() - began:.0f} s")
    raise SystemExit(0 if fine else 1)


if __name__ == "__main__":
    main()
