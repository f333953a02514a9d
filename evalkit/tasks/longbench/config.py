"""The recipe section of LongBench."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from evalkit.core.recipe import Strict
from evalkit.tasks.longbench.facts import in_e, tasks
from evalkit.tasks.longbench.suites import suites


class LongBenchConfig(Strict):
    """LongBench or LongBench-E.

    Give `suite` or `tasks`.

    Attributes:
        suite: a named list of tasks, such as ``longbench-en``.
        tasks: official names.
        e: LongBench-E: every task in three length bins.
        max_length: tokens of the filled prompt that are kept, special tokens included; longer
            prompts lose their middle before any chat template. The official runs took the
            model's window minus 500.
        data: ``data.zip``, or a folder of ``<task>.jsonl``, beside the recipe; default: the
            pinned archive.
        prompts: folder of ``dataset2prompt.json`` and ``dataset2maxlen.json``, beside the recipe;
            default: the pinned official ones.
        max_new_tokens: budget of the answer, instead of the official one of each task.
        malformed: ``refuse`` data with a malformed record, or ``skip`` the record and say so.
    """

    kind: Literal["longbench"] = "longbench"
    suite: str | None = None
    tasks: tuple[str, ...] | None = None
    e: bool = False
    max_length: Annotated[int, Field(ge=2)] | None = None
    data: str | None = None
    prompts: str | None = None
    max_new_tokens: Annotated[int, Field(gt=0)] | None = None
    malformed: Literal["refuse", "skip"] = "refuse"

    @field_validator("suite")
    @classmethod
    def _known_suite(cls, name: str | None) -> str | None:
        if name is not None:
            _known("suite", name, suites())
        return name

    @field_validator("tasks")
    @classmethod
    def _known_tasks(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            _known("LongBench task", name, tasks())
        if names is not None and (len(set(names)) < len(names) or not names):
            raise ValueError("an entry occurs twice" if names else "no task")
        return names

    @model_validator(mode="after")
    def _complete(self) -> LongBenchConfig:
        if (self.suite is None) == (self.tasks is None):
            raise ValueError("give suite or tasks, one of them")
        if self.max_length is None:
            raise ValueError(
                "max_length is missing: tokens of a prompt that are kept, the model's window less"
                " room for the chat template and the answer (officially window - 500, such as"
                " 31500 of 32k)"
            )
        if self.is_e:
            outside = [name for name in self.names if not in_e(name)]
            if outside:
                raise ValueError(f"LongBench-E has no {', '.join(outside)}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The tasks."""
        return suites()[self.suite].tasks if self.suite is not None else self.tasks or ()

    @property
    def is_e(self) -> bool:
        """Whether the cells are those of LongBench-E."""
        return self.e or (self.suite is not None and suites()[self.suite].e)

    @property
    def limit(self) -> int:
        """`max_length`, which is always given."""
        return self.max_length or 0


def _known(what: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
        raise ValueError(f"unknown {what} {name}; {hint}")
