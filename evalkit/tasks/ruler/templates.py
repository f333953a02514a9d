"""RULER's parameters and wording, parsed as data from the official package."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from evalkit.core.errors import EvalkitError
from evalkit.data.sources import LONG_CONTEXT_EVAL, wheel_member

CONSTANTS = "long_context_eval/data/synthetic/constants.py"
SUITE = "long_context_eval/synthetic.yaml"


@dataclass(frozen=True, slots=True)
class Spec:
    """One official task.

    Attributes:
        name: the task, such as ``niah_single_1``.
        family: the official generator, such as ``niah``.
        args: the generator's parameters.
        template: the user's turn, with ``{context}``.
        answer_prefix: the start of the assistant's turn.
        tokens_to_generate: budget of the answer.
    """

    name: str
    family: str
    args: Mapping[str, Any]
    template: str
    answer_prefix: str
    tokens_to_generate: int


@cache
def specs() -> dict[str, Spec]:
    """All official tasks by name, read from the pinned wheel once per process.

    Raises:
        EvalkitError: the wheel cannot be had (see `evalkit.data.sources.locate`).
    """
    constants = wheel_member(LONG_CONTEXT_EVAL, CONSTANTS).decode("utf-8")
    return parse(constants, wheel_member(LONG_CONTEXT_EVAL, SUITE).decode("utf-8"))


def parse(constants: str, suite: str) -> dict[str, Spec]:
    """Join the generators' wording with the tasks' parameters.

    Args:
        constants: Python source with ``TASKS = {...}``; only that literal is evaluated.
        suite: YAML, task name to ``{task: family, args: {...}}``.

    Raises:
        EvalkitError: either text has another form.
    """
    families = _literal(constants, "TASKS")
    try:
        by_name = {}
        for name, entry in yaml.safe_load(suite).items():
            wording = families[entry["task"]]
            by_name[name] = Spec(
                name=name,
                family=entry["task"],
                args=dict(entry["args"]),
                template=wording["template"],
                answer_prefix=wording["answer_prefix"],
                tokens_to_generate=int(wording["tokens_to_generate"]),
            )
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise EvalkitError(f"RULER's {SUITE} or {CONSTANTS} has an unknown form: {error}") from None
    return by_name


def _literal(source: str, name: str) -> dict[str, Any]:
    """The literal dictionary assigned to `name` at the top of a Python source."""
    try:
        for node in ast.parse(source).body:
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == name for target in node.targets
            ):
                value = ast.literal_eval(node.value)
                if isinstance(value, dict):
                    return value
    except (SyntaxError, ValueError) as error:
        raise EvalkitError(f"{CONSTANTS}: {name} is no literal: {error}") from None
    raise EvalkitError(f"{CONSTANTS}: has no dictionary {name}")
