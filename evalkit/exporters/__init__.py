"""Results of a run in the forms of others. One file per format."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.exporters import lm_eval, model_card
from evalkit.exporters.results import ArmResults, results
from evalkit.run.store import RunStore

__all__ = ["FORMATS", "export"]

FORMATS: dict[str, Callable[[ArmResults, Path], list[Path]]] = {
    "lm_eval": lm_eval.write,
    "model_card": model_card.write,
}


def export(format_: str, store: RunStore, out: Path, arm: str | None = None) -> list[Path]:
    """Write a scored run, one folder for every arm.

    Args:
        format_: one of `FORMATS`.
        store: the run.
        out: folder of the results, made if absent.
        arm: only this one; default: all arms with scores.

    Returns:
        the files.

    Raises:
        EvalkitError: unknown format or arm, no run or no scores here, or `out` cannot be written.
    """
    if format_ not in FORMATS:
        near = difflib.get_close_matches(format_, FORMATS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(FORMATS)}"
        raise EvalkitError(f"unknown format {format_}; {hint}")
    try:
        return [path for found in results(store, arm) for path in FORMATS[format_](found, out)]
    except OSError as error:
        raise EvalkitError(f"{out}: cannot be written: {error.strerror or error}") from None
