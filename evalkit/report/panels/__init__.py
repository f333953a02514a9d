"""The sections of a report, one file each, in their order; a new one is one line."""

from __future__ import annotations

from evalkit.core.plugins import Registry
from evalkit.report.panels.base import Panel

PANELS = Registry(
    "panel",
    Panel,
    {
        "stopping": "evalkit.report.panels.stopping:PANEL",
        "retention": "evalkit.report.panels.retention:PANEL",
        "index_cost": "evalkit.report.panels.index_cost:PANEL",
        "tasks": "evalkit.report.panels.tasks:PANEL",
        "ruler": "evalkit.report.panels.ruler:PANEL",
        "benchmarks": "evalkit.report.panels.benchmarks:PANEL",
        "perplexity": "evalkit.report.panels.perplexity:PANEL",
        "needle": "evalkit.report.panels.needle:PANEL",
        "overlap": "evalkit.report.panels.overlap:PANEL",
        "speed": "evalkit.report.panels.speed:PANEL",
        "counts": "evalkit.report.panels.counts:PANEL",
        "schedules": "evalkit.report.panels.schedules:PANEL",
    },
)
