"""Which arms can be paired with the baseline at all."""

from __future__ import annotations

from collections.abc import Mapping

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
