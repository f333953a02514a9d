"""The `[engine]` section of a recipe: what answers the prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import SerializeAsAny

from evalkit.config.arm import ArmConfig
from evalkit.core.kinds import C, Kind, Kinds
from evalkit.core.recipe import Strict


@dataclass(frozen=True, kw_only=True)
class EngineKind(Kind[C]):
    """An engine that a recipe can name, and all that a run asks about it.

    Attributes:
        open: makes an `evalkit.engines.base.Engine` of a section.
        throughput: fields that change how fast it works and not what it answers; they leave the
            identity of a run.
        servers: its servers are asked whether they run an arm's schedule before the arm answers;
            for engines derived from `evalkit.engines.openai.engine.OpenAIServerEngine`.
        shares_prefill: it is an `evalkit.engines.base.SharingEngine`.
        turn_samples: how many samples one arm answers before the next has its turn; None: a block.
        prefix_in_user_turn: whether an answer prefix ends the user's turn, instead of beginning the
            assistant's.
        selects: whether it runs the selection policy of an arm.
        likelihoods: whether it gives the log-probabilities of a text (`Sample.scored_from`).
        repeatable: whether the same checkpoint gives a prompt the same answer under the same
            settings, but for rounding: such answers may be kept (`evalkit run --cache`).
        positions: of a checkpoint: tokens of a prompt and its answer that it answers at most, where
            that is known before it is loaded; a longer one is an error of its answer.
        check_arms: raises ValueError for arms that do not go with the section.
    """

    open: Callable[[C], object]
    throughput: frozenset[str] = frozenset()
    servers: bool = False
    shares_prefill: bool = False
    turn_samples: Callable[[C], int] | None = None
    prefix_in_user_turn: Callable[[C], bool] = lambda _: False
    selects: bool = False
    likelihoods: bool = False
    repeatable: Callable[[C], bool] = lambda _: False
    positions: Callable[[C, str], int | None] = lambda *_: None
    check_arms: Callable[[C, Sequence[ArmConfig]], None] = lambda *_: None


# Named, not imported: engines are built on recipes.
ENGINES: Kinds[EngineKind[Any]] = Kinds(
    "kind of engine",
    EngineKind,
    {
        "hf": "evalkit.engines.hf:KIND",
        "oracle": "evalkit.engines.oracle:KIND",
        "openai_server": "evalkit.engines.openai:KIND",
    },
    "evalkit.engines",
)

EngineConfig = Annotated[SerializeAsAny[Strict], ENGINES.section()]
"""A recipe's engine section; its ``kind`` says which."""


def default_engine() -> Strict:
    """The section of a recipe that has none: transformers in this process."""
    section: Strict = ENGINES["hf"].config()
    return section
