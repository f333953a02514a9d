"""The shipped small model under vLLM: started, asked and watched in a process of its own.

    python -m tests.vllm_engine.small_model PLAN OUT

V3.2's retention is decided when the model is built, so that every schedule needs an engine. PLAN is
JSON: `prompts` (token ids), `chunk` (the most tokens of a forward) and `arms`, each with `model` (a
directory), `schedule` (null: vLLM without the plugin, before all others) and perhaps `options` of
the engine, which is then asked everything twice. OUT becomes a torch file with one entry per arm:
greedy answers, and per forward what every layer selected and read; with options instead of these
how many tokens were `cached`.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from tests.paths import ROOT, TINY_MODEL
from tests.vllm_engine import start

TOKENS = 8
WORDS = ("layer_types", "mlp_layer_types")  # of transformers; vLLM's configuration refuses them
GLM = {
    "architectures": ["GlmMoeDsaForCausalLM"],
    "model_type": "glm_moe_dsa",
    "indexer_rope_interleave": True,
}


def save(directory: Path) -> Path:
    """A copy whose configuration vLLM reads."""
    shutil.copytree(TINY_MODEL, directory)
    change(directory)
    return directory


def save_as_glm(directory: Path) -> Path:
    """The same function as a GLM-5, which rotates neighbouring channels of its index keys.

    DeepSeek-V3.2 rotates channel i with channel i + d/2. So rows of the indexer's projections
    change places; nothing else of the two differs here.
    """
    from safetensors.torch import load_file, save_file

    save(directory)
    fields = json.loads((directory / "config.json").read_text())
    rotated, width = fields["qk_rope_head_dim"], fields["index_head_dim"]
    halves = torch.arange(rotated).view(2, -1).t().flatten()  # 0, d/2, 1, d/2 + 1, …
    order = torch.cat([halves, torch.arange(rotated, width)])
    weights = load_file(directory / "model.safetensors")
    for name, tensor in weights.items():
        if ".indexer.wq_b." in name or ".indexer.wk." in name or ".indexer.k_norm." in name:
            heads = tensor.unflatten(0, (-1, width))
            weights[name] = heads[:, order].flatten(0, 1).contiguous()
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    change(directory, **GLM)
    return directory


def change(directory: Path, **fields: Any) -> None:
    """Other fields in the configuration, and none of the words that vLLM refuses."""
    file = directory / "config.json"
    config = json.loads(file.read_text()) | fields
    file.write_text(json.dumps({k: v for k, v in config.items() if k not in WORDS}))


def ask(
    folder: Path, prompts: list[list[int]], chunk: int, arms: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What vLLM answered, selected and read under each arm, from one process."""
    plan = {"prompts": prompts, "chunk": chunk, "arms": arms}
    (folder / "plan.json").write_text(json.dumps(plan))
    environment = os.environ | start.ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
    environment.pop("EVALKIT_SCHEDULE", None)
    command = [sys.executable, "-m", "tests.vllm_engine.small_model"]
    command += [str(folder / "plan.json"), str(folder / "seen.pt")]
    done = subprocess.run(
        command, check=False, env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(folder / "seen.pt", weights_only=True)


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


def engine_of(arm: dict[str, Any], chunk: int, **options: Any) -> Any:
    """An engine under an arm's schedule; the plugin is told of every one after the first."""
    if arm["schedule"] is not None:
        os.environ["EVALKIT_SCHEDULE"] = arm["schedule"]
        from evalkit.vllm_plugin.plugin import register

        register()
    return start.engine(
        arm["model"], dtype="float32", max_model_len=1024, max_num_batched_tokens=chunk, **options
    )


def cached(llm: Any) -> float:
    """Tokens of prompts that came out of the prefix cache, by the engine's counter."""
    counted = {metric.name: metric for metric in llm.get_metrics()}
    return float(counted["vllm:prefix_cache_hits"].value)


def main(plan: str, out: str) -> None:
    """Start, ask, write."""
    start.prepare()
    told = json.loads(Path(plan).read_text())
    seen: list[dict[str, Any]] = []
    watch(seen)
    results = []
    for arm in told["arms"]:
        seen.clear()
        options = arm.get("options", {})
        llm = engine_of(arm, told["chunk"], disable_log_stats=not options, **options)
        answers = start.answer(llm, told["prompts"], TOKENS)
        if options:
            answers += start.answer(llm, told["prompts"], TOKENS)
            results.append({"answers": answers, "cached": cached(llm)})
        else:
            results.append({"answers": answers, "forwards": list(seen)})
        del llm
        gc.collect()
    torch.save(results, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
