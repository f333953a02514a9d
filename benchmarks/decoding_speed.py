"""Tokens per second of one arm beside transformers' `generate`, on the same batches.

    python benchmarks/decoding_speed.py [--prompts 15] [--rounds 3]

The small model under the demo's settings, one thread, in turns, processor time. `demo` are the
demo's needle questions with its answers; `long` the same prompts with answers of 8 to 128 tokens
that end at no token but at those lengths, evenly spread over the batch: `generate` stops a row
there, too, and pads it until the last one ends. The ratio is that of the medians; "decode" is that
of the steps alone, the time of one token's answers taken off on both sides.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from evalkit.config.run import RunConfig
from evalkit.core.recipe import load
from evalkit.core.types import Prompt
from evalkit.data.shipped import recipes_dir
from evalkit.dsa import apply_schedule
from evalkit.engines.hf.config import HfConfig
from evalkit.engines.hf.engine import HfEngine
from evalkit.run.plan import plan
from evalkit.run.prompt_texts import renderer_of
from evalkit.run.runner import blocks


def batch_of(count: int) -> tuple[HfEngine, list[Prompt]]:
    """The demo's engine with its model, and questions of its first task."""
    recipe = recipes_dir() / "eval" / "demo.toml"
    todo = plan(load(recipe, RunConfig), recipe.parent, count)
    model = todo.models["baseline"]
    engine: Any = todo.config.engine
    assert isinstance(engine, HfConfig)
    ours = HfEngine(engine)
    ours.load(model)
    return ours, next(blocks(todo, renderer_of(todo.config, model)))


def until(prompt: Prompt, tokens: int) -> Prompt:
    """The same question with another budget."""
    return replace(prompt, sample=replace(prompt.sample, max_new_tokens=tokens))


def answered(engine: HfEngine, batch: Sequence[Prompt]) -> int:
    """Tokens of our answers."""
    schedule = engine.native()
    assert schedule is not None
    with apply_schedule(engine.model, schedule, chunked=True, sparse=True) as applied:
        answers = engine.decoder.answer(engine.decoder.prefill(batch, applied), applied)
    return sum(answer.tokens for answer in answers)


def generated(engine: HfEngine, batch: Sequence[Prompt], ends: bool) -> int:
    """Tokens of the library's answers; with `ends` at end-of-text, too."""
    ids, mask = engine.decoder._padded(batch)
    budgets = torch.tensor([prompt.max_new_tokens for prompt in batch])
    width = ids.shape[1]

    def spent(so_far: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        return budgets <= so_far.shape[1] - width

    model: Any = engine.model
    out = model.generate(
        ids,
        attention_mask=mask,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=2 if ends else None,
        max_new_tokens=int(budgets.max()),
        stopping_criteria=[spent],
    )
    new = out[:, width:]
    return int(((new != 0) & (new != 2)).sum()) if ends else int(budgets.sum())


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--longest", type=int, default=128)
    args = parser.parse_args()
    torch.set_num_threads(1)
    engine, prompts = batch_of(args.prompts)
    stop = engine.decoder.stop_ids
    spread = (args.longest - 8) / max(len(prompts) - 1, 1)
    long = [until(p, round(8 + i * spread)) for i, p in enumerate(prompts)]
    ratios = {}
    for name, batch in (("demo", prompts), ("long", long)):
        engine.decoder.stop_ids = stop if name == "demo" else frozenset()
        ways: dict[str, Callable[[Sequence[Prompt]], int]] = {
            "evalkit": lambda b: answered(engine, b),
            "generate": lambda b, ends=name == "demo": generated(engine, b, ends),
        }
        whole: dict[str, list[float]] = {way: [] for way in ways}
        steps: dict[str, list[float]] = {way: [] for way in ways}
        tokens = {}
        for _ in range(args.rounds):
            for way, run in ways.items():
                start = time.process_time()
                run([until(p, 1) for p in batch])
                first = time.process_time()
                tokens[way] = run(batch)
                whole[way].append(time.process_time() - first)
                steps[way].append(whole[way][-1] - (first - start))
        rate = {way: tokens[way] / statistics.median(times) for way, times in whole.items()}
        ratios[name] = rate["evalkit"] / rate["generate"]
        decode = statistics.median(steps["generate"]) / statistics.median(steps["evalkit"])
        print(f"{name}: tokens {tokens}, per CPU s", {k: round(v, 2) for k, v in rate.items()})
        print(f"  {ratios[name]:.1f} x generate; decode alone {decode:.1f} x", flush=True)
        ratios[f"{name}, decode"] = decode
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()
