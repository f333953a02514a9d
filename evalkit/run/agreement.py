"""What run directories must agree on to be read as one: every fact that moves a score.

Schedule, selection, weights and distilled indexers are what arms are compared for. All else that
changes an answer or its score must be equal, or a difference between arms would not be theirs.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import optional_fields
from evalkit.core.records import RunRecord, SampleRow
from evalkit.dsa.json_types import JsonObject, JsonValue, as_list, as_object
from evalkit.engagement.selection_settings import OVERRIDDEN, selection_settings
from evalkit.run.scoring import scoring_of
from evalkit.run.store import RunStore

SHOWN = 4
SCORING = "scoring."
BUDGETS = ("max_new_tokens", "tokens_to_generate", "max_reasoning_tokens")
"""Fields of task sections that bound an answer; for runs whose rows do not tell their budget."""


class Difference(NamedTuple):
    """A fact that two runs know and do not share.

    Attributes:
        name: as a recipe calls it.
        old: value in the run that was named first.
        new: value in the other.
    """

    name: str
    old: JsonValue
    new: JsonValue


def check_agreement(stores: Sequence[RunStore]) -> None:
    """Refuse to merge runs that were not asked, answered and scored alike.

    Raises:
        EvalkitError: names the facts that differ, their values in both runs, and what mends it.
    """
    facts, prompts, budgets, rules = _Known(), _Known(), _Known(), _Known(_score_again)
    asked: dict[str, tuple[RunStore, SampleRow]] = {}
    for store in stores:
        run = store.read_run()
        facts.check(store, _facts(run))
        shared, told = _check_samples(store, run, asked)
        prompts.check(store, {} if shared else _prompts(run))
        budgets.check(store, _budgets(run), enforced=not told)
        rules.check(store, _scoring(run))


def _answer_again(_: RunStore, __: Sequence[Difference]) -> str:
    return "answer one of them again under the settings of the other"


def _score_again(store: RunStore, changed: Sequence[Difference]) -> str:
    settings = " ".join(f"--set {name.removeprefix(SCORING)}={old}" for name, old, _ in changed)
    return f"score by one rule: evalkit score {shlex.quote(str(store.path))} {settings}"


class _Known:
    """Facts that some runs told, and the run that told each first."""

    def __init__(
        self, remedy: Callable[[RunStore, Sequence[Difference]], str] = _answer_again
    ) -> None:
        self._remedy = remedy
        self._told: dict[str, tuple[RunStore, JsonValue]] = {}

    def check(self, store: RunStore, facts: JsonObject, *, enforced: bool = True) -> None:
        """Take note of the facts of a run; one that contradicts another run is refused."""
        for name, value in facts.items():
            self._told.setdefault(name, (store, value))
        others = {n: self._told[n][0] for n in facts if self._told[n][1] != facts[n]}
        if not others or not enforced:
            return
        other = next(iter(others.values()))
        changed = [
            Difference(name, self._told[name][1], facts[name])
            for name, told_by in others.items()
            if told_by is other
        ]
        refuse(other, store, changed, self._remedy(store, changed))


def refuse(one: RunStore, other: RunStore, changed: Sequence[Difference], remedy: str) -> None:
    """Raise EvalkitError: one line with the facts that differ and what mends it."""
    texts = [_in_words(difference) for difference in changed[:SHOWN]]
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    raise EvalkitError(
        f"{one.path} and {other.path} cannot be merged: {'; '.join(texts)}{more}: {remedy}"
    )


def _check_samples(
    store: RunStore, run: RunRecord, asked: dict[str, tuple[RunStore, SampleRow]]
) -> tuple[bool, bool]:
    """Samples that an earlier run asked too must be the same prompts with the same budget.

    Args:
        store: a run.
        run: its run.json.
        asked: samples with a known prompt, by id, and the run that has them; those of this run
            are added.

    Returns:
        whether there are such samples, and whether all of them tell their budget.
    """
    shared, told = False, True
    for arm in run.arms:
        for sample_id, row in store.read_samples(arm.name).items():
            if row.prompt_sha256 is None or row.failed:
                continue
            other, theirs = asked.setdefault(sample_id, (store, row))
            if theirs.prompt_sha256 != row.prompt_sha256:
                raise EvalkitError(
                    f"{other.path} and {store.path} cannot be merged: they read different prompts"
                    f" for {sample_id} (other tokenizer, chat template or wording)"
                )
            if other is store:
                continue
            shared = True
            old, new = theirs.max_new_tokens, row.max_new_tokens
            if old is None or new is None:
                told = False
            elif old != new:
                changed = [Difference(f"answer budget (tokens) of {sample_id}", old, new)]
                refuse(other, store, changed, _answer_again(store, changed))
    return shared, told


def _facts(run: RunRecord) -> JsonObject:
    """What decides answers beside data, prompts, weights and schedule, as far as a run tells."""
    engine = optional_fields(run.identity, "engine")
    facts: dict[str, JsonValue] = {f"engine.{key}": value for key, value in engine.items()}
    prompts = optional_fields(run.identity, "prompts")
    if "reasoning_tokens" in prompts:
        facts["prompts.reasoning_tokens"] = prompts["reasoning_tokens"]
    facts |= _told_by_arms("dtype", (arm.dtype for arm in run.arms))
    for arm in run.arms:
        for server in arm.check.servers if arm.check is not None else ():
            facts |= _server_facts(server)
    return facts


def _scoring(run: RunRecord) -> JsonObject:
    return {f"{SCORING}{k}": v for k, v in scoring_of(run).model_dump(mode="json").items()}


def _prompts(run: RunRecord) -> JsonObject:
    """Tokenizer and chat template, for runs that have no prompt in common."""
    name = "sha256 of tokenizer and chat template"
    return _told_by_arms(name, (arm.prompts_sha256 for arm in run.arms))


def _told_by_arms(name: str, values: Iterable[str | None]) -> dict[str, JsonValue]:
    """A fact of the arms as one fact of the run; none where no arm knows it."""
    known = sorted({value for value in values if value is not None})
    return {name: ", ".join(known)} if known else {}


def _server_facts(server: JsonObject) -> JsonObject:
    """Settings of a server that change answers without being a schedule."""
    settings, told = as_object(server.get("settings")), server.get("overrides")
    known: dict[str, JsonValue] = {} if told is None else dict.fromkeys(OVERRIDDEN)
    known |= selection_settings(settings, {} if told is None else as_object(told))
    if "kv_cache_dtype" in settings:
        known["kv_cache_dtype"] = settings["kv_cache_dtype"]
    return {f"{server.get('kind')}: {name}": value for name, value in known.items()}


def _budgets(run: RunRecord) -> JsonObject:
    """Answer budgets by task section, where there is one section of its kind and name."""
    budgets: dict[str, JsonValue] = {}
    sections = [as_object(section) for section in as_list(run.recipe.get("tasks"))]
    names = [f"{section.get('kind')} {section.get('name') or ''}".strip() for section in sections]
    for name, section in zip(names, sections, strict=True):
        if names.count(name) == 1:
            budgets |= {f"{name}: {key}": section[key] for key in BUDGETS if key in section}
    return budgets


def _in_words(difference: Difference) -> str:
    """Name and values; of fields sent to a server the name alone, for they may hold a secret."""
    name, old, new = difference
    if isinstance(old, Mapping) or isinstance(new, Mapping):
        return f"{name} differs"
    return f"{name} is {_short(old)} and {_short(new)}"


def _short(value: JsonValue) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
