"""Export for publication: numbers, schedules and hashes; no request text, no answer, no host name.

report.html      the page without samples
results.csv      every arm and task: counts, scores, differences, intervals, verdicts
evidence.json    arms with schedules and hashes, tasks with their parameters, statistics
retention.csv    the layout of the MLI paper's Table 2, also as .md and .tex
plots/           PNG and SVG
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from evalkit.analysis.compare import RunComparison, comparison_rows, methods
from evalkit.analysis.grouping import in_force
from evalkit.core.files import write_atomic
from evalkit.core.provenance import model_name
from evalkit.core.records import ArmEntry, ComparisonRow
from evalkit.dsa.json_types import JsonObject
from evalkit.report import html
from evalkit.report.plots.write import write as write_plots
from evalkit.report.retention_table import csv_text, latex, markdown, retention_table
from evalkit.run.store import RunStore

FORMAT = 1
ARM_KEYS = (
    *("weights_sha256", "revision", "model_type", "dtype", "device", "attention", "prompts_sha256"),
    *("indexer_sha256", "schedule"),
)
ENGINE_KEYS = (
    *("kind", "dtype", "indexer", "attention", "api", "temperature", "corrupt"),
    *("batch_tokens", "max_batch", "prefill_chunk"),
)


def write(store: RunStore, comparison: RunComparison, folder: Path) -> list[Path]:
    """Write the export.

    Returns:
        the files.
    """
    table = retention_table(comparison)
    texts = {
        "report.html": html.page(store, comparison, public=True),
        "results.csv": results_csv(comparison),
        "evidence.json": json.dumps(
            evidence(store, comparison), indent=1, ensure_ascii=False, allow_nan=False
        )
        + "\n",
        "retention.md": markdown(table),
        "retention.tex": latex(table),
        "retention.csv": csv_text(table),
    }
    for name, text in texts.items():
        write_atomic(folder / name, text)
    return [folder / name for name in texts] + write_plots(store, comparison, folder / "plots")


def results_csv(comparison: RunComparison) -> str:
    """Every row of compare.json."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, ComparisonRow.keys(), lineterminator="\n")
    writer.writeheader()
    for row in comparison_rows(comparison):
        kinds = "; ".join(str(reason["kind"]) for reason in row.reasons)
        writer.writerow({**row.json(), "reasons": kinds, "notes": "; ".join(row.notes)})
    return buffer.getvalue()


def evidence(store: RunStore, comparison: RunComparison) -> JsonObject:
    """What the numbers rest on, chosen key by key: nothing else of run.json is taken."""
    run = store.read_run()
    engine = run.section("engine")
    return {
        "format": FORMAT,
        "identity_sha256": run.identity_sha256,
        "environment": run.stored.get("environment"),
        "engine": {key: engine[key] for key in ENGINE_KEYS if key in engine},
        "scoring": run.stored.get("scoring"),
        "arms": [_arm(arm, comparison) for arm in comparison.arms],
        "tasks": [
            {
                "name": task.name,
                "samples": task.samples,
                "metric": comparison.metrics.get(task.name),
                "deviations": task.deviations,
            }
            for task in run.tasks
        ],
        "baseline": comparison.result.baseline,
        "settings": comparison.settings.model_dump(mode="json"),
        "methods": list(methods(comparison)),
        "signature": comparison.result.signature,
        "rows": [row.json() for row in comparison_rows(comparison)],
        "perplexity": [row.json() for row in comparison.perplexity],
        "taken_out": {task: list(counts) for task, counts in comparison.taken.items()},
    }


def _arm(arm: ArmEntry, comparison: RunComparison) -> JsonObject:
    return {
        "name": arm.name,
        "model": model_name(arm.model),
        **{key: arm.stored[key] for key in ARM_KEYS if key in arm.stored},
        "in_force": in_force(arm) or None,
        "counts": dict(comparison.flags.get(arm.name, {})),
        "unfinished": comparison.unfinished.get(arm.name),
    }
