"""Where the numbers of a page come from, as tables; with `public`, nothing that names a machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evalkit.analysis.compare import RunComparison
from evalkit.analysis.grouping import in_force
from evalkit.core.provenance import model_name
from evalkit.report.tables import Grid, short

HASHES = (
    ("weights", "weights_sha256"),
    ("indexers", "indexer_sha256"),
    ("prompts", "prompts_sha256"),
)
SHORT = 16


def grids(run: Mapping[str, Any], comparison: RunComparison) -> list[Grid]:
    """Arms, tasks and settings; safe to publish."""
    return [_arms(comparison), _tasks(run, comparison), _settings(run, comparison)]


def _arms(comparison: RunComparison) -> Grid:
    rows = []
    for arm in comparison.arms:
        hashes = [f"{name} {arm[key][:SHORT]}" for name, key in HASHES if arm.get(key)]
        facts = arm.get("schedule") or {}
        imported = arm.get("imported") or {}
        rows.append(
            (
                arm["name"],
                model_name(arm) or (f"imported ({imported.get('format')})" if imported else "–"),
                " ".join(str(arm[k]) for k in ("model_type", "dtype", "device") if arm.get(k)),
                facts.get("text", "not known"),
                in_force(arm) or "–",
                ", ".join(hashes) or "–",
            )
        )
    head = ("arm", "model", "type", "schedule", "in force", "sha256 (first 16 digits)")
    return Grid("arms", head, tuple(rows))


def _tasks(run: Mapping[str, Any], comparison: RunComparison) -> Grid:
    rows = []
    for task in run["tasks"]:
        departures = task.get("deviations") or {}
        rows.append(
            (
                task["name"],
                str(task["samples"]),
                comparison.metrics.get(task["name"], "–"),
                "; ".join(f"{k} = {short(v)}" for k, v in departures.items()) or "none",
            )
        )
    head = ("task", "samples", "metric", "departures from the official parameters")
    return Grid("tasks", head, tuple(rows), (1,))


def _settings(run: Mapping[str, Any], comparison: RunComparison) -> Grid:
    environment = run.get("environment") or {}
    packages = {**(environment.get("packages") or {}), **(environment.get("guests") or {})}
    versions = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    rows = [
        ("run", str(run.get("identity_sha256") or "–")),
        ("commit", str(environment.get("commit") or "–")),
        ("versions", f"python {environment.get('python', '–')}, {versions}"),
        ("engine", str((run.get("recipe") or {}).get("engine", {}).get("kind", "imported"))),
        ("scoring", json.dumps(run.get("scoring") or {}, sort_keys=True)),
        ("statistics", comparison.result.signature),
    ]
    merged = run.get("merged") or []
    rows += [("merged run", str(digest)) for digest in merged]
    return Grid("settings", ("what", "value"), tuple(rows))
