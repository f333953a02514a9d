"""What a search leaves behind: arms that recipes take as they are, and where they came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from distill.search.greedy import SearchStep
from evalkit.config.selection import Selection
from evalkit.core.files import write_atomic
from evalkit.core.toml import inline

PATTERNS_FILE, ARMS_FILE = "search.json", "arms.toml"


def write(
    out: Path,
    steps: Sequence[SearchStep],
    provenance: Mapping[str, object],
    selection: Selection | None = None,
) -> None:
    """search.json (every step, with provenance) and arms.toml (arms for an evaluation recipe)."""
    record = {
        **provenance,
        "steps": [
            {
                "layer": step.layer,
                "pattern": step.schedule.pattern,
                "lag": step.schedule.lag,
                "retention": str(step.schedule.retention),
                "full_layer_ids": list(step.schedule.full_layer_ids),
                "loss": step.loss,
                "held_out": step.held_out,
                "evaluated": step.evaluated,
            }
            for step in steps
        ],
    }
    write_atomic(out / PATTERNS_FILE, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    lines = [
        f"# {key}: {value}" for key, value in provenance.items() if not isinstance(value, dict)
    ]
    for step in worth_keeping(steps):
        lines += ["", *arm(step, selection)]
    write_atomic(out / ARMS_FILE, "\n".join(lines) + "\n")


def arm(step: SearchStep, selection: Selection | None = None) -> Iterator[str]:
    """One arm in TOML for evalkit; in a recipe of `distill` its keys stand under ``[arm]``."""
    schedule, lag = step.schedule, step.schedule.lag
    yield f"# loss {step.loss:.6f}, held-out {step.held_out:.6f}"
    yield "[[arms]]"
    yield f'name = "searched {name_of(step)}"'
    yield f'pattern = "{schedule.pattern}"'
    if lag:
        yield f"lag = {lag if isinstance(lag, int) else list(lag)}"
        yield f'lag_phase = "{schedule.lag_phase}"'
    if selection is not None:
        yield f"selection = {inline(selection.section)}"


def name_of(step: SearchStep) -> str:
    """Retention, and how many layers lag."""
    lagging = sum(k > 0 for k in step.schedule.lags)
    return str(step.schedule.retention) + (f", {lagging} lagging" if lagging else "")


def worth_keeping(steps: Sequence[SearchStep]) -> list[SearchStep]:
    """The steps at or just above 1/2, 1/4, 1/8 …, and the last; of a search over lags, quarters."""
    if not steps:
        return []
    last = steps[-1]
    if last.schedule.source != last.schedule.nearest:
        places = {round((len(steps) - 1) * quarter / 4) for quarter in range(1, 5)}
        return [steps[i] for i in sorted(places)]
    chosen, share = [], Fraction(1, 2)
    while share >= Fraction(1, len(last.schedule)):
        above = [s for s in steps if s.schedule.retention >= share]
        if last.schedule.retention <= share and above and above[-1] not in chosen:
            chosen.append(above[-1])
        share /= 2
    return chosen if last in chosen else [*chosen, last]
