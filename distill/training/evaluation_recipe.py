"""Evaluation recipe of a distilled arm: baseline, undistilled twin, distilled arm.

`evalkit` is run as a command of its own: the two halves meet in files. The twin is always there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from distill.config.train import DistillConfig
from distill.errors import DistillError
from evalkit.config.schedule import ScheduleConfig
from evalkit.core.toml import inline

BASELINE, AGAIN, TWIN, DISTILLED = "baseline", "baseline again (A/A)", "undistilled", "distilled"


def arms(arm: ScheduleConfig, indexer: Path) -> list[dict[str, object]]:
    """The four arms of the comparison."""
    schedule = arm.model_dump(exclude_defaults=True, exclude={"selection"})
    if arm.selection is not None:
        schedule["selection"] = arm.selection.section
    return [
        {"name": BASELINE},
        {"name": AGAIN},
        {"name": TWIN, **schedule},
        {"name": DISTILLED, **schedule, "indexer": str(indexer.resolve())},
    ]


def check(config: DistillConfig, base_dir: Path) -> None:
    """Refuse an evaluation that is not there before hours are spent.

    Raises:
        DistillError: the recipe names one, and it does not exist.
    """
    if config.evaluation is not None and not (base_dir / config.evaluation).is_file():
        raise DistillError(f"evaluation {base_dir / config.evaluation}: no such recipe")


def command(
    config: DistillConfig, model: str, base_dir: Path, indexer: Path, out: Path
) -> list[str]:
    """The `evalkit run` command of a distilled arm.

    Raises:
        DistillError: the recipe names no evaluation, or one that is not there.
    """
    if config.evaluation is None:
        raise DistillError("no evaluation: set evaluation in the recipe to an evalkit recipe")
    check(config, base_dir)
    recipe = base_dir / config.evaluation
    return [
        *(sys.executable, "-m", "evalkit.cli"),
        *("run", str(recipe), "--out", str(out / "evaluation")),
        *("--set", f"model={json.dumps(model)}"),
        *("--set", f"arms={inline(arms(config.arm, indexer))}"),
        *("--set", f"compare.baseline={json.dumps(BASELINE)}"),
        *("--set", f"compare.repeat_of_baseline={json.dumps(AGAIN)}"),
    ]


def run(command: Sequence[str]) -> None:
    """Run it, its output on the terminal.

    Raises:
        DistillError: it failed.
    """
    done = subprocess.run(command, check=False)  # noqa: S603
    if done.returncode:
        raise DistillError(f"the evaluation ended with exit code {done.returncode}")
