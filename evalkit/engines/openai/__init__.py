"""Servers with an OpenAI-compatible API."""

from collections.abc import Sequence

from evalkit.config.arm import ArmConfig
from evalkit.config.engine import EngineKind
from evalkit.config.server import CLIENT_FIELDS, OpenAIServerConfig
from evalkit.engines.base import Engine

__all__ = ["KIND"]


def _open(config: OpenAIServerConfig) -> Engine:
    from evalkit.engines.openai.engine import OpenAIServerEngine

    return OpenAIServerEngine(config)


def _check_arms(_: OpenAIServerConfig, arms: Sequence[ArmConfig]) -> None:
    for arm in arms:
        if arm.indexer is not None:
            raise ValueError(
                f"arm {arm.name}: a running server takes no indexer files; serve a checkpoint"
                " written by `distill export`"
            )


KIND = EngineKind(
    config=OpenAIServerConfig,
    open=_open,
    throughput=CLIENT_FIELDS,
    servers=True,
    turn_samples=lambda config: config.turn_samples,
    prefix_in_user_turn=lambda config: config.api == "chat" and config.chat_prefix == "user",
    repeatable=lambda config: config.temperature == 0,
    check_arms=_check_arms,
)
