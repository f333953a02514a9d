"""Peak memory of a whole distillation step beside what `distill plan` says beforehand.

    python benchmarks/plan_memory.py                                   # all of the table
    python benchmarks/plan_memory.py --families v32 --lengths 32768

Random models of four layers, fp32, arm 1/2, a micro-batch of one sequence: the original's forward
with its teachers, the arm's with the student in it, losses, backward, AdamW, and the copy of the
best indexer so far. Every cell is a process of its own; "measured" is its peak resident memory over
what Python and its libraries took before the model was made, "planned" the sum of
`distill.cost.whole_model` for the same recipe. DeepSeek-V4's masked attention grows with the square
of the length, in the plan as in the measurement, so that its longest cells do not fit everywhere.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LENGTHS = {"v32": (2048, 8192, 32768), "v4": (2048, 4096, 8192)}
SHAPE: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 512,
    "moe_intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "q_lora_rank": 128,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "index_n_heads": 8,
    "index_head_dim": 64,
    "index_topk": 256,
}
OF_FAMILY: dict[str, dict[str, Any]] = {
    "v32": {
        "intermediate_size": 1024,
        "num_key_value_heads": 4,
        "kv_lora_rank": 128,
        "qk_rope_head_dim": 32,
        "qk_nope_head_dim": 64,
        "v_head_dim": 64,
        "n_group": 1,
        "topk_group": 1,
        "n_shared_experts": 1,
        "mlp_layer_types": ["dense"] * 4,
    },
    "v4": {
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "o_groups": 2,
        "o_lora_rank": 64,
        "sliding_window": 64,
        "layer_types": ["compressed_sparse_attention"] * 4,
        "mlp_layer_types": ["moe"] * 4,
    },
}


def peak() -> int:
    """Largest resident memory of this program so far, in bytes (Linux).

    `ru_maxrss` would not do: it begins with what the process was that started this one.
    """
    status = Path("/proc/self/status").read_text()
    (kilobytes,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.M)
    return int(kilobytes) * 1024


def measure(family: str, length: int) -> dict[str, Any]:
    """One step in this process, which must be fresh.

    Returns:
        planned bytes by part, measured bytes, CPU seconds.
    """
    import torch
    from transformers import (
        DeepseekV4Config,
        DeepseekV4ForCausalLM,
        DeepseekV32Config,
        DeepseekV32ForCausalLM,
    )

    from distill.config.train import DistillConfig
    from distill.cost.whole_model import estimate
    from distill.data.batch import Batch
    from distill.models.sizes import sizes_of
    from distill.models.student import Students
    from distill.objective.plan import make_plan
    from distill.objective.teacher_assignment import trained_layers
    from distill.training.optimizer import adamw
    from distill.training.step import distil_batch
    from evalkit.dsa.families.sites import indexer_sites

    def step(length: int, **smaller: Any) -> dict[str, int]:
        """One step of a model that is made here; the plan of it."""
        settings = SHAPE | OF_FAMILY[family] | {"max_position_embeddings": length} | smaller
        if family == "v32":
            model: Any = DeepseekV32ForCausalLM(DeepseekV32Config(**settings))
        else:
            model = DeepseekV4ForCausalLM(DeepseekV4Config(**settings))
        model = model.eval().requires_grad_(False)
        recipe = DistillConfig.model_validate(
            {
                "model": "random",
                "arm": {"retention": "1/2"},
                "student": {"start": "own"},
                "data": {"length": length},
                "train": {"batch": 1, "micro_batch": 1},
            }
        )
        sites = indexer_sites(model)
        sizes, native = sizes_of(model)
        schedule = recipe.arm.schedule(native)
        students = Students.of_model(sites, trained_layers(schedule, "keep"))
        plan = make_plan(model, schedule, students.layers, recipe)
        optimizer = adamw(students.named().values(), recipe.train)
        ids = torch.randint(3, settings["vocab_size"], (1, length))
        batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool))
        losses = distil_batch(model, students, batch, [0], plan)
        optimizer.step()
        best = students.state()
        assert losses and best
        return estimate(sizes, native, recipe, itemsize=4).in_memory

    torch.set_num_threads(1)
    torch.manual_seed(0)
    step(64, index_topk=16, hidden_size=64)  # what libraries take when they are first used
    before, began = peak(), time.process_time()
    planned = step(length)
    return {
        "planned": planned,
        "measured": peak() - before,
        "seconds": time.process_time() - began,
    }


def in_a_process(family: str, length: int) -> dict[str, Any] | None:
    """`measure` in a fresh process; None where it does not fit."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--cell", family, str(length)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode < 0 or "memory" in done.stderr.lower():
        return None
    if done.returncode:
        raise SystemExit(done.stderr)
    cell: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return cell


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", choices=list(LENGTHS), default=list(LENGTHS))
    parser.add_argument("--lengths", nargs="+", type=int, help="default: those of the docs")
    parser.add_argument("--cell", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cell:
        sys.path.insert(0, str(ROOT))
        print(json.dumps(measure(args.cell[0], int(args.cell[1]))))
        return
    print("| model | tokens | planned, MiB | measured, MiB | planned / measured | CPU s |")
    print("|---|---|---|---|---|---|")
    for family in args.families:
        for length in args.lengths or LENGTHS[family]:
            cell = in_a_process(family, length)
            if cell is None:
                print(f"| {family} | {length} | does not fit | | | |", flush=True)
                continue
            planned, measured = sum(cell["planned"].values()), cell["measured"]
            print(
                f"| {family} | {length} | {planned / 2**20:.0f} | {measured / 2**20:.0f} |"
                f" {planned / measured:.2f} | {cell['seconds']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
