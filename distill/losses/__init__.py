"""Losses on index scores: one file each, one line each in `LOSSES`.

They import nothing of the project outside of this package: tensors in, two scalars out
(`distill.losses.base`). Another package adds one by an entry point of the group `distill.losses`.
"""

from __future__ import annotations

LOSSES = {
    "kl": "distill.losses.kl:KL",
    "listmle": "distill.losses.listmle:ListMLE",
}
"""Where the pydantic model of each loss is, by the `kind` that recipes give."""
