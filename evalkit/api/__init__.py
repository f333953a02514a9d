"""Evaluation from Python: what the commands do, as functions."""

from evalkit.api.evaluate import carry_out, evaluate
from evalkit.api.result import Comparison

__all__ = ["Comparison", "carry_out", "evaluate"]
