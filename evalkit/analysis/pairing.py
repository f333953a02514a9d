"""What an arm can be paired on, and what is not known of its samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evalkit.core.records import ArmEntry, ItemRow
from evalkit.stats import ArmScores


def paired(scored: Mapping[str, ArmScores], baseline: str) -> dict[str, ArmScores]:
    """The baseline, and the arms that share a sample with it."""
    ids = set(scored[baseline].ids)
    return {name: arm for name, arm in scored.items() if not ids.isdisjoint(arm.ids)}


def unpaired_notes(scored: Mapping[str, ArmScores], baseline: str) -> list[str]:
    """A line about the arms that are left out of the comparison; none where there is none."""
    left = [name for name in scored if name not in paired(scored, baseline)]
    text = f"no sample in common with {baseline}, so that there is nothing to compare"
    return [f"{text}: {', '.join(left)}"] if left else []


def unclustered_notes(arms: Iterable[ArmEntry], items: Mapping[str, ItemRow]) -> list[str]:
    """Lines about imported samples of which nothing tells which share a text."""
    lone = {item.task for item in items.values() if item.cluster == item.sample_id}
    cells: dict[str, list[str]] = {}
    for arm in arms:
        alone = lone.intersection(arm.imported.unclustered if arm.imported is not None else ())
        if alone:
            cells.setdefault(", ".join(sorted(alone)), []).append(arm.name)
    text = "each counts by itself, and intervals may be too narrow"
    return [
        f"imported without a word on which samples of {tasks} share a text: {text}:"
        f" {', '.join(names)}"
        for tasks, names in cells.items()
    ]
