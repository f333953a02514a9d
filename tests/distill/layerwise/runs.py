"""Recipes of a random model, and their runs, that the tests of this room share."""

from __future__ import annotations

from distill.config.train import DistillConfig
from distill.layerwise.pipeline import LayerwiseRun
from distill.layerwise.setup import load_layerwise_setup


def recipe(model, **sections):
    base = {
        "model": str(model),
        "dtype": "float32",
        "arm": {"retention": "1/4"},
        "data": {"length": 48, "train": 5, "held_out": 2, "calibration": 2, "shortest": 16},
        "queries": {"per_sequence": 8},
        "student": {"start": "own"},
        "train": {"steps": 3, "batch": 3, "micro_batch": 2, "evaluate_every": 2},
    }
    for name, values in sections.items():
        base[name] = values if isinstance(values, list) else base.get(name, {}) | values
    return DistillConfig.model_validate(base)


def layerwise(config, out, on_event=lambda _: None, dump=None):
    out.mkdir(exist_ok=True)
    run = LayerwiseRun(load_layerwise_setup(config, out, out, dump=dump), out, on_event)
    run.run(save_anyway=True)
    return run
