"""An arm of a recipe: checkpoint, schedule, distilled indexer, server."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from evalkit.config.schedule import ScheduleConfig
from evalkit.config.server import CUSTOM, ServerConfig
from evalkit.core.printable import name_problem
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.indexer_metadata import read_schedule


class ArmConfig(ScheduleConfig):
    """One configuration under test: checkpoint and schedule.

    Attributes:
        name: shown in every table.
        model: checkpoint (directory or hub id) when it is not the recipe's.
        indexer: directory of distilled indexers, relative to the recipe; with no schedule named,
            the arm takes the one that they were trained for.
        server: where the arm's server runs, for the engine ``openai_server``.
    """

    name: str = Field(pattern=r"\S")
    model: str | None = None
    indexer: str | None = None
    server: ServerConfig | None = None

    @field_validator("name")
    @classmethod
    def _printable(cls, name: str) -> str:
        if problem := name_problem(name):
            raise ValueError(problem)
        return name

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"arm {self.name}"

    def schedule(self, native: ReuseSchedule) -> ReuseSchedule:
        """As named, or the one that the arm's indexers were trained for.

        Raises:
            EvalkitError: it cannot be built for this model; the message names arm and layer.
        """
        if self.indexer is not None and not self.names_schedule:
            return read_schedule(Path(self.indexer))
        return super().schedule(native)

    @property
    def names_schedule(self) -> bool:
        """True when the arm names a schedule of its own."""
        chosen = (self.retention, self.pattern, self.sources, self.freq)
        return any(way is not None for way in chosen) or self.lag != 0

    @property
    def frequency_engine(self) -> str | None:
        """The engine of the arm's server, where it names one."""
        engine = self.server.engine if self.server is not None else None
        return None if engine == CUSTOM else engine

    @property
    def is_native(self) -> bool:
        """True when the arm asks for nothing but the checkpoint as it is."""
        return not self.names_schedule and self.indexer is None
