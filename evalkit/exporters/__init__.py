"""Results of a run in the forms of others. One file per format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.core.errors import EvalkitError
from evalkit.core.plugins import Registry
from evalkit.exporters.format import ExportFormat

if TYPE_CHECKING:
    from pathlib import Path

    from evalkit.run.store import RunStore

__all__ = ["FORMATS", "ExportFormat", "export"]

FORMATS = Registry(
    "format",
    ExportFormat,
    {
        "lm_eval": "evalkit.exporters.lm_eval:FORMAT",
        "model_card": "evalkit.exporters.model_card:FORMAT",
    },
)


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
    from evalkit.exporters.results import results

    write = FORMATS[format_].write
    try:
        return [path for scores in results(store, arm) for path in write(scores, out)]
    except OSError as error:
        raise EvalkitError(f"{out}: cannot be written: {error.strerror or error}") from None
