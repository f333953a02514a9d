"""What a run directory holds, as classes: run.json, items, completions, scores, compare.json.

Frozen dataclasses with slots, not pydantic models: a run has tens of thousands of rows, which a
dataclass makes as fast as a dictionary is checked; a completion may hold lone surrogates, which
pydantic refuses; and a file that is read, changed and written again must keep its keys, their
order, and those of other versions. A class that is written again therefore keeps the JSON object
it was read from (`stored`) and changes only what it is told to.

The names of keys on disk stand in this package only. Nothing here reads or writes files.
"""

from evalkit.core.records.arms import ArmEntry, ImportFacts, ScheduleFacts, ServerCheck
from evalkit.core.records.comparison import ComparisonRecord, ComparisonRow
from evalkit.core.records.rows import ItemRow, SampleRow, ScoreRow, digest
from evalkit.core.records.run import (
    FORMAT,
    Environment,
    Invocation,
    RunRecord,
    StoppingRecord,
    TaskEntry,
)

__all__ = [
    "FORMAT",
    "ArmEntry",
    "ComparisonRecord",
    "ComparisonRow",
    "Environment",
    "ImportFacts",
    "Invocation",
    "ItemRow",
    "RunRecord",
    "SampleRow",
    "ScheduleFacts",
    "ScoreRow",
    "ServerCheck",
    "StoppingRecord",
    "TaskEntry",
    "digest",
]
