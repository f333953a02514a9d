"""The interface between the runner and whatever answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from evalkit.config.run import ArmConfig
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
        """Evidence that the schedule of the last `answer` was really in force."""
        ...


@runtime_checkable
class Helped(Protocol):
    """An engine that other processes of the same launch help."""

    def close(self) -> None:
        """Let them go: there is no more work."""
        ...


@runtime_checkable
class Checking(Protocol):
    """An engine that others started: it can only ask whether a schedule is in force."""

    def check(
        self, arm: ArmConfig, schedule: ReuseSchedule | None, entries: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Verdict, reason and evidence for run.json.

        Args:
            arm: about to answer.
            schedule: of the arm.
            entries: arms of run.json, checked ones with their evidence.

        Raises:
            EvalkitError: the server cannot be asked.
        """
        ...
