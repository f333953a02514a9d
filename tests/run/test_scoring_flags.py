"""What happened to an answer is counted beside its score."""

import pytest

from evalkit.config.run import ScoringConfig
from evalkit.core.records import ItemRow, SampleRow
from evalkit.run.scoring import score_row

ITEM = ItemRow("tide/0", "tide", "ruler_all", ("12",), "tide/0", {"truncated": True})
ANSWER = {"sample_id": "tide/0", "task": "tide", "prompt_sha256": None, "finish_reason": "stop"}


@pytest.mark.parametrize(
    ("row", "score", "flags"),
    [
        ({"completion": "It is 12"}, 1, ()),
        ({"completion": " "}, 0, ("empty",)),
        ({"completion": "12 and", "finish_reason": "length"}, 1, ("length",)),
        ({"completion": "<think>12"}, 0, ("unclosed",)),
        ({"completion": "", "finish_reason": "error", "error": "out of memory"}, 0, ("error",)),
        (
            {
                "completion": "",
                "finish_reason": "error",
                "error": "over-length: 9 tokens, the model has 8 positions",
            },
            0,
            ("error", "over_length"),
        ),
    ],
)
def test_flags(row, score, flags):
    found = score_row(ITEM, SampleRow.parse(ANSWER | row), ScoringConfig())
    assert found.score == score
    assert set(found.flags) == {"truncated", *flags}
