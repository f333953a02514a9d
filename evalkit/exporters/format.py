"""What an export format is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalkit.exporters.results import ScoredArm


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A form of results that `evalkit export` writes.

    Attributes:
        write: the files of one arm, below a folder; returns their paths.
    """

    write: Callable[[ScoredArm, Path], list[Path]]
