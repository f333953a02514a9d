"""Losses on index scores; each returns (sum, count), divided once by the global count.

They import nothing of the project: tensors in, two scalars out.
"""

from __future__ import annotations

from distill.losses.kl import kl, self_information
from distill.losses.listmle import list_order, listmle, position_weights

__all__ = ["kl", "list_order", "listmle", "position_weights", "self_information"]
