"""What an import format is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalkit.importers.common.predictions import PredictionSet


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """A form of predictions that `evalkit import` reads.

    Attributes:
        read: puts the records of a folder or file into a `PredictionSet`, and notes there what is
            wrong with single ones; raises EvalkitError where nothing of the format is there.
        mapped: whether the user names the fields and the metric.
    """

    read: Callable[[Path, PredictionSet], None]
    mapped: bool = False
