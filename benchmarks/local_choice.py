"""Which criterion that needs no final logits agrees with the choice by final logits?

    python benchmarks/local_choice.py [--arms 1/8:0 1/4:1 1/4:0] [--seeds 11] [--length 256]

Per trained layer of each arm: every candidate of the closed form, its logit KL, and what local
criteria say of it; the layer then goes on with the choice of the logits. The table says how often a
criterion chooses the same, and how much of the gain (own indexer to best candidate) it keeps.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from distill.config.train import DistillConfig
from distill.init.candidates import candidates
from distill.models.forward import final_hidden_states
from distill.setup import TrainingSetup, load_training_setup
from distill.validation.logit_kl import reference
from distill.validation.metrics import evaluate

MODEL = Path(__file__).parent.parent / "recipes" / "tiny" / "model"
SMALLER_IS_BETTER = {"logit": True, "error": True, "recall": False, "mass": False, "kl": True}


def hidden_after(
    setup: TrainingSetup, batches: list[Any], layer: int, schedule: Any, acting: Any
) -> Tensor:
    """Hidden states after a decoder layer [positions, hidden]."""
    root: Any = setup.sites.root
    kept: list[Tensor] = []
    handle = root.layers[layer].register_forward_hook(
        lambda _, __, out: kept.append(out[0] if isinstance(out, tuple) else out)
    )
    with acting:
        for batch in batches:
            final_hidden_states(setup.model, schedule, batch)
    handle.remove()
    return torch.cat([h[b.valid] for h, b in zip(kept, batches, strict=True)])


def choices(arm: str, seed: int, length: int) -> list[list[dict[str, Any]]]:
    """Per trained layer, the candidates with all criteria; the own indexer first."""
    retention, lag = arm.split(":")
    config = DistillConfig.model_validate(
        {
            "model": str(MODEL),
            "dtype": "float32",
            "arm": {"retention": retention, "lag": int(lag)},
            "data": {
                "source": {"kind": "tiny", "seed": seed},
                "length": length,
                "train": 1,
                "held_out": 1,
                "calibration": 4,
            },
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        setup = load_training_setup(config, Path(), Path(folder))
    model, students, plan, native = setup.model, setup.students, setup.plan, setup.native
    batches = setup.data.splits["calibration"].batches(4)
    original, cells = reference(model, native, batches), []
    for layer in students.layers:
        phases = ("prefill", "decode")
        last = max(max(setup.schedule.consumers(layer, p), default=layer) for p in phases)
        before = hidden_after(setup, batches, last, native, nullcontext())
        states = {"own": students.state_of(layer)} | candidates(
            model, students, plan, batches, layer, config.closed_form.ridge
        )
        rows: list[dict[str, Any]] = []
        for name, state in states.items():
            students.load_of(layer, state)
            metrics = evaluate(model, students, plan, original)
            after = hidden_after(setup, batches, last, setup.schedule, students.acting(model))
            error = (after - before).norm(dim=-1) / before.norm(dim=-1)
            rows.append(
                {
                    "name": name,
                    "logit": float(torch.cat(metrics.divergence).mean()),
                    "recall": metrics.mean("recall", layer),
                    "mass": metrics.mean("mass_recall", layer),
                    "kl": metrics.losses[layer].of("kl").mean,
                    "error": float(error.mean()),
                }
            )
        best = min(rows, key=lambda row: row["logit"])
        students.load_of(layer, states[best["name"]])
        print(arm, seed, "layer", layer, {k: pick(rows, k)["name"] for k in SMALLER_IS_BETTER})
        cells.append(rows)
    return cells


def pick(rows: list[dict[str, Any]], criterion: str) -> dict[str, Any]:
    """The candidate that a criterion chooses."""
    best = min if SMALLER_IS_BETTER[criterion] else max
    return best(rows, key=lambda row: row[criterion])


def main() -> None:
    """Print every choice and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", nargs="+", default=["1/8:0", "1/4:1", "1/4:0"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[11])
    parser.add_argument("--length", type=int, default=256)
    given = parser.parse_args()
    cells = [
        rows
        for arm in given.arms
        for seed in given.seeds
        for rows in choices(arm, seed, given.length)
    ]
    own = sum(rows[0]["logit"] for rows in cells)
    best = sum(pick(rows, "logit")["logit"] for rows in cells)
    print("| criterion | same choice | kept | worse than the own indexer |\n|---|---|---|---|")
    for criterion in SMALLER_IS_BETTER:
        chosen = [pick(rows, criterion) for rows in cells]
        same = sum(c is pick(r, "logit") for c, r in zip(chosen, cells, strict=True))
        kept = (own - sum(c["logit"] for c in chosen)) / (own - best)
        worse = sum(c["logit"] > r[0]["logit"] for c, r in zip(chosen, cells, strict=True))
        print(f"| {criterion} | {same} of {len(cells)} | {kept:.0%} | {worse} |")


if __name__ == "__main__":
    main()
