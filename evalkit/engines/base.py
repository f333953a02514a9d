"""The interface between the runner and whatever answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from evalkit.config.arm import ArmConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.plugins import package_of, running
from evalkit.core.secrets import redact
from evalkit.core.types import Completion, Prompt
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.json_types import JsonValue


@runtime_checkable
class Engine(Protocol):
    """Answers prompts for one checkpoint at a time, under the schedule of an arm."""

    def load(self, model: str) -> dict[str, JsonValue]:
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

    def engagement(self) -> dict[str, JsonValue]:
        """Evidence that the schedule of the last `answer` was really in force.

        Of a server the runner asks by itself (`evalkit.engagement`), before an arm answers.
        """
        ...


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked of one arm.

    Attributes:
        arm: the arm.
        schedule: it runs under.
        done: ids of the prompts that it has answered.
    """

    arm: ArmConfig
    schedule: ReuseSchedule | None
    done: Collection[str]


@runtime_checkable
class SharingEngine(Protocol):
    """An engine that reads a prompt once for arms that differ in decode only."""

    def answer_together(
        self, asks: Sequence[Ask], prompts: Sequence[Prompt]
    ) -> Iterator[tuple[str, list[Completion]]]:
        """As `Engine.answer`, of several arms: (arm, answers), the same as one arm at a time.

        The arms select alike in prefill, and no two of them are the same.
        """
        ...

    def engagement_of(self, arm: str) -> dict[str, JsonValue]:
        """As `Engine.engagement`, of an arm of the last `answer_together`."""
        ...


@runtime_checkable
class MultiProcessEngine(Protocol):
    """An engine that other processes of the same launch help."""

    def help(self) -> None:
        """In another process than the first: follow it until there is no more work."""
        ...

    def close(self) -> None:
        """Let them go: there is no more work."""
        ...


def load(engine: Engine, model: str) -> dict[str, JsonValue]:
    """`Engine.load`, with a check of what it returns.

    Raises:
        EvalkitError: the checkpoint cannot be loaded, or the engine's package has a fault.
    """
    with running(package_of(engine)):
        facts = engine.load(model)
    if not isinstance(facts, dict) or "weights_sha256" not in facts:
        raise EvalkitError(f"{_called(engine)}: load returns no facts with weights_sha256")
    return facts


def answers(
    engine: Engine,
    arm: ArmConfig,
    schedule: ReuseSchedule | None,
    prompts: Sequence[Prompt],
    done: Collection[str],
) -> Iterator[list[Completion]]:
    """`Engine.answer`, with a check that every completion is one of these prompts'.

    Raises:
        EvalkitError: the engine cannot answer, or its package has a fault.
    """
    asked = {prompt.sample.id for prompt in prompts}
    with running(package_of(engine)):
        for batch in engine.answer(arm, schedule, prompts, done):
            yield _checked(engine, asked, batch)


def answers_together(
    engine: SharingEngine, asks: Sequence[Ask], prompts: Sequence[Prompt]
) -> Iterator[tuple[str, list[Completion]]]:
    """`SharingEngine.answer_together`, with the checks of `answers`.

    Raises:
        EvalkitError: the engine cannot answer, or its package has a fault.
    """
    asked = {prompt.sample.id for prompt in prompts}
    with running(package_of(engine)):
        for arm, batch in engine.answer_together(asks, prompts):
            yield arm, _checked(engine, asked, batch)


def _checked(
    engine: object, asked: Collection[str], batch: Sequence[Completion]
) -> list[Completion]:
    for completion in batch:
        if not isinstance(completion, Completion) or completion.sample_id not in asked:
            raise EvalkitError(f"{_called(engine)}: answer yields what nobody asked for")
    return [without_secrets(completion) for completion in batch]


def without_secrets(completion: Completion) -> Completion:
    """An answer, or the reason of a failure, as it may be kept; one that is changed says so."""
    text = redact(completion.text)
    error = None if completion.error is None else redact(completion.error)
    if (text, error) == (completion.text, completion.error):
        return completion
    return replace(completion, text=text, error=error, redacted=text != completion.text)


def evidence(engine: Engine, arm: str | None = None) -> dict[str, JsonValue]:
    """`Engine.engagement`, or `engagement_of` an arm, with a check of what it returns.

    Raises:
        EvalkitError: the engine's package has a fault.
    """
    with running(package_of(engine)):
        if arm is not None and isinstance(engine, SharingEngine):
            proof = engine.engagement_of(arm)
        else:
            proof = engine.engagement()
    if not isinstance(proof, dict) or "verdict" not in proof:
        raise EvalkitError(f"{_called(engine)}: engagement returns no verdict")
    return proof


def _called(engine: object) -> str:
    return f"{package_of(engine)}: {type(engine).__name__}"
