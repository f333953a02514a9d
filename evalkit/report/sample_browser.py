"""What the sample browser of the page shows: samples with the answers of every arm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalkit.analysis.compare import RunComparison
from evalkit.core.records import ItemRow, ScoreRow
from evalkit.dsa.json_types import JsonValue
from evalkit.run.current_scores import current_scores
from evalkit.run.store import RunStore

CUTS = (1200, 500, 200, 80)
"""Characters kept of an answer, tried in turn until the page stays below `MOST_CHARACTERS`."""

MOST_CHARACTERS = 24_000_000
KEEP_ALL = 2000
"""Up to so many samples all are shown; of more, those on which arms differ or that are flagged."""


@dataclass(frozen=True, slots=True)
class BrowserData:
    """The browser's data, small: equal answers are kept once.

    Attributes:
        arms: names, the baseline first.
        tasks: of the samples shown.
        total: samples of the run.
        cut: characters kept of an answer.
        rows: [id, task, question, gold, answers, which answer per arm (-1: none), score per arm,
            flags per arm].
    """

    arms: list[str]
    tasks: list[str]
    total: int
    cut: int
    rows: list[list[JsonValue]]

    def script(self) -> str:
        """JSON for a <script> element: nothing in it can end the element or begin markup."""
        return script_json(
            {
                "arms": self.arms,
                "tasks": self.tasks,
                "total": self.total,
                "cut": self.cut,
                "rows": self.rows,
            }
        )


def samples(store: RunStore, comparison: RunComparison) -> BrowserData:
    """The data of a run."""
    base = comparison.result.baseline
    names = [base, *(arm.name for arm in comparison.arms if arm.name != base)]
    names = [name for name in names if name in comparison.scored]
    items = {i: item for i, item in store.read_items().items() if not item.is_read}
    current = current_scores(store, names, comparison.settings.exclude)
    scores = [current[name].scores for name in names]
    chosen = _chosen(items, scores)
    tasks = list(dict.fromkeys(items[i].task for i in chosen))
    places = {task: k for k, task in enumerate(tasks)}
    rows: list[list[JsonValue]] = []
    cut = CUTS[-1]
    for cut in CUTS:
        rows = [_row(i, items[i], places, scores, cut) for i in chosen]
        if sum(len(json.dumps(row, ensure_ascii=False)) for row in rows) <= MOST_CHARACTERS:
            break
    return BrowserData(names, tasks, len(items), cut, rows)


def _chosen(items: Mapping[str, ItemRow], scores: Sequence[Mapping[str, ScoreRow]]) -> list[str]:
    answered = [i for i in items if any(i in rows for rows in scores)]
    if len(answered) <= KEEP_ALL:
        return answered
    return [i for i in answered if _telling([rows[i] for rows in scores if i in rows])]


def _telling(rows: Sequence[ScoreRow]) -> bool:
    """Whether arms differ on a sample, or one failed to answer."""
    flags = {flag for row in rows for flag in row.flags} & {"error", "unclosed", "empty"}
    return len({row.score for row in rows}) > 1 or bool(flags)


def _row(
    sample_id: str,
    item: ItemRow,
    places: Mapping[str, int],
    scores: Sequence[Mapping[str, ScoreRow]],
    cut: int,
) -> list[JsonValue]:
    answers: dict[str, int] = {}
    which: list[int] = []
    values: list[float | None] = []
    flags: list[str] = []
    for rows in scores:
        row = rows.get(sample_id)
        if row is None:
            which.append(-1)
            values.append(None)
            flags.append("")
            continue
        which.append(answers.setdefault(_cut(row.answer, cut), len(answers)))
        values.append(round(float(row.score), 4))
        flags.append(" ".join(row.flags))
    question = str(item.meta.get("question") or item.meta.get("input") or "")
    gold = " | ".join(item.references)
    return [
        sample_id,
        places[item.task],
        _cut(question, cut),
        _cut(gold, cut),
        list(answers),
        which,
        values,
        flags if any(flags) else [],
    ]


def _cut(text: str, most: int) -> str:
    text = text.strip()
    return text if len(text) <= most else f"{text[:most]} … ({len(text):,} characters)"


def script_json(data: JsonValue) -> str:
    """JSON for a <script> element: nothing in it can end the element or begin markup."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # A lone surrogate cannot be written as UTF-8.
    return "".join(f"\\u{ord(c):04x}" if 0xD800 <= ord(c) <= 0xDFFF else c for c in text)
