"""The interface between the runner and whatever answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from evalkit.config.arm import ArmConfig
from evalkit.core.types import Completion, Prompt
from evalkit.dsa import ReuseSchedule


class Engine(Protocol):
    """Answers prompts for one checkpoint at a time, under the schedule of an arm."""

    def load(self, model: str) -> dict[str, Any]:
        """Make a checkpoint ready.

        Returns:
            facts for run.json, among them ``weights_sha256``.

        Raises:
            EvalkitError: it cannot be loaded.
        """
        ...

    def native(self) -> ReuseSchedule | None:
        """Schedule that the loaded checkpoint ships with; None where it has no indexers."""
        ...

    def answer(
        self,
        arm: ArmConfig,
        schedule: ReuseSchedule | None,
        prompts: Sequence[Prompt],
        done: Collection[str],
    ) -> Iterator[list[Completion]]:
        """Answers of the prompts whose id is not in `done`, in batches as they come.

        What a batch holds depends on `prompts` alone, never on `done`: an interrupted run gives
        the same answers when it is taken up again.
        """
        ...

    def engagement(self) -> dict[str, Any]:
        """Evidence that the schedule of the last `answer` was really in force.

        Of a server the runner asks by itself (`evalkit.engagement`), before an arm answers.
        """
        ...


@runtime_checkable
class MultiProcessEngine(Protocol):
    """An engine that other processes of the same launch help."""

    def close(self) -> None:
        """Let them go: there is no more work."""
        ...
