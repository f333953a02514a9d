"""The sections of a report, one file each, in their order; a new one is one line."""

from __future__ import annotations

from evalkit.core.plugins import Registry
from evalkit.report.panels.base import Panel

PANELS = Registry(
    "panel",
    Panel,
    {
        "retention": "evalkit.report.panels.retention:PANEL",
        "index_cost": "evalkit.report.panels.index_cost:PANEL",
        "tasks": "evalkit.report.panels.tasks:PANEL",
        "stopping": "evalkit.report.panels.stopping:PANEL",
        "ruler": "evalkit.report.panels.ruler:PANEL",
        "benchmarks": "evalkit.report.panels.benchmarks:PANEL",
        "needle": "evalkit.report.panels.needle:PANEL",
        "speed": "evalkit.report.panels.speed:PANEL",
        "perplexity": "evalkit.report.panels.perplexity:PANEL",
        "overlap": "evalkit.report.panels.overlap:PANEL",
        "counts": "evalkit.report.panels.counts:PANEL",
        "schedules": "evalkit.report.panels.schedules:PANEL",
    },
)
