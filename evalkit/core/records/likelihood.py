"""What an arm says of a text that it reads: a log-probability for each token, and the likeliest.

A line of samples.jsonl holds it where another line holds an answer, as JSON, so that it is resumed,
merged and checked as answers are.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalkit.core.errors import EvalkitError


@dataclass(frozen=True, slots=True, eq=False)
class Likelihood:
    """Natural logarithms of probabilities, teacher-forced.

    Attributes:
        logprobs: [scored] log p of each scored token, given all before it.
        positions: [P] growing; the scored tokens whose whole distribution is kept in part.
        top_ids: [P, K] the K likeliest tokens there, likeliest first.
        top_logprobs: [P, K] their log-probabilities.
    """

    logprobs: NDArray[np.float64]
    positions: NDArray[np.int64]
    top_ids: NDArray[np.int32]
    top_logprobs: NDArray[np.float32]

    def text(self) -> str:
        """As the records keep it; log-probabilities of tokens with six decimals."""
        return json.dumps(
            {
                "logprobs": [round(float(value), 6) for value in self.logprobs],
                "positions": self.positions.tolist(),
                "top_ids": _packed(self.top_ids.astype("<i4")),
                "top_logprobs": _packed(self.top_logprobs.astype("<f4")),
            }
        )

    @classmethod
    def parse(cls, text: str) -> Likelihood:
        """Raises EvalkitError where this is no such text."""
        try:
            data = json.loads(text)
            positions = np.array(data["positions"], dtype=np.int64)
            rows = (len(positions), -1) if len(positions) else (0, 0)
            read = cls(
                np.array(data["logprobs"], dtype=np.float64),
                positions,
                np.frombuffer(base64.b64decode(data["top_ids"]), "<i4").reshape(rows),
                np.frombuffer(base64.b64decode(data["top_logprobs"]), "<f4").reshape(rows),
            )
        except (ValueError, KeyError, TypeError):
            raise EvalkitError("these are no log-probabilities") from None
        if read.logprobs.ndim != 1 or read.top_ids.shape != read.top_logprobs.shape:
            raise EvalkitError("these are no log-probabilities")
        return read


def _packed(values: NDArray[np.generic]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")
