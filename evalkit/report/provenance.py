"""Where the numbers of a page come from, as tables; with `public`, nothing that names a machine."""

from __future__ import annotations

import json

from evalkit.analysis.compare import RunComparison
from evalkit.analysis.grouping import in_force
from evalkit.core.grid import Grid
from evalkit.core.provenance import model_name
from evalkit.core.records import ArmEntry, RunRecord
from evalkit.report.tables import short

SHORT = 16


def grids(run: RunRecord, comparison: RunComparison) -> list[Grid]:
    """Arms, tasks and settings; safe to publish."""
    return [_arms(comparison), _tasks(run, comparison), _settings(run, comparison)]


def _arms(comparison: RunComparison) -> Grid:
    rows = []
    for arm in comparison.arms:
        origin = "–" if arm.imported is None else f"imported ({arm.imported.format})"
        rows.append(
            (
                arm.name,
                model_name(arm.model) or origin,
                " ".join(filter(None, (arm.model_type, arm.dtype, arm.device))),
                arm.acts_text or "not known",
                in_force(arm) or "–",
                _hashes(arm) or "–",
            )
        )
    head = ("arm", "model", "type", "schedule", "in force", "sha256 (first 16 digits)")
    return Grid("arms", head, tuple(rows))


def _hashes(arm: ArmEntry) -> str:
    hashes = {
        "weights": arm.weights_sha256,
        "indexers": arm.indexer_sha256,
        "prompts": arm.prompts_sha256,
    }
    return ", ".join(f"{name} {value[:SHORT]}" for name, value in hashes.items() if value)


def _tasks(run: RunRecord, comparison: RunComparison) -> Grid:
    rows = []
    for task in run.tasks:
        rows.append(
            (
                task.name,
                str(task.samples),
                comparison.metrics.get(task.name, "–"),
                "; ".join(f"{k} = {short(v)}" for k, v in task.deviations.items()) or "none",
            )
        )
    head = ("task", "samples", "metric", "departures from the official parameters")
    return Grid("tasks", head, tuple(rows), (1,))


def _settings(run: RunRecord, comparison: RunComparison) -> Grid:
    environment = run.environment
    packages = {**environment.packages, **environment.guests}
    versions = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    rows = [
        ("run", run.identity_sha256 or "–"),
        ("commit", environment.commit or "–"),
        ("versions", f"python {environment.python or '–'}, {versions}"),
        ("engine", str(run.section("engine").get("kind", "imported"))),
        ("scoring", json.dumps(run.scoring, sort_keys=True)),
        ("statistics", comparison.result.signature),
    ]
    rows += [("merged run", str(digest)) for digest in run.merged]
    return Grid("settings", ("what", "value"), tuple(rows))
