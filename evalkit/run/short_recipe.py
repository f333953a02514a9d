"""The recipe that a model, some tasks and some arms stand for, on one line each.

Tasks: ``KIND:NAME@LENGTH``, such as ``ruler:vt@8192``, ``longbench:qasper`` or ``needle@16k``.
Arms: ``1/4``, ``k1``, ``1/4+k1``, a pattern of F and S, or a directory of distilled indexers.
What these words cannot say is a section, as a recipe has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic.fields import FieldInfo

from evalkit.core.errors import EvalkitError
from evalkit.core.model_info import full_config
from evalkit.core.plugins import near
from evalkit.dsa.config_fields import text_config
from evalkit.dsa.indexer_metadata import INDEXER_FILE
from evalkit.tasks.registry import TASKS

Section = Mapping[str, object]

BASELINE, AGAIN = "baseline", "baseline again (A/A)"
SAMPLES = 100
LEFT_FREE = 500
"""Tokens of the model's window that LongBench's official runs left free."""

_TASK = re.compile(r"(?P<kind>[A-Za-z0-9_]+)(?::(?P<name>[^@]+))?(?:@(?P<length>.+))?")
_LENGTH = re.compile(r"(\d+)([kKmM]?)")
_UNIT = {"": 1, "k": 1024, "m": 1024**2}
_RETENTION = re.compile(r"1/\d+|1")
_LAG = re.compile(r"k(\d+)")
_PATTERN = re.compile(r"[FS]{2,}")
_CHOICES = ("tasks", "modes", "operations")
"""Fields by which the section of a kind chooses among its tasks."""
_FILES = ("path", "data", "prompts", "key_adjectives", "key_nouns", "nodes", "indexer", "model")
"""Fields of tasks and arms that may name a file."""


def short_recipe(
    model: str,
    tasks: Sequence[str | Section],
    arms: Sequence[str | Section],
    *,
    samples: int = SAMPLES,
    urls: Sequence[str] = (),
    engine: Section | None = None,
) -> dict[str, object]:
    """The recipe, with a baseline that is answered twice (A/A) in front of the arms.

    Args:
        model: directory, .gguf file or hub id; as all paths, relative to where one stands.
        tasks: on a line each, or as sections.
        arms: likewise.
        samples: of every cell, the first so many where it has more.
        urls: a server for all arms, or ``ARM=URL``.
        engine: the section; default: transformers in this process, or `urls`.

    Raises:
        EvalkitError: a line cannot be read; says how one is written.
    """
    if samples < 1:
        raise EvalkitError(f"samples {samples}: it must be 1 or more")
    if not tasks:
        raise EvalkitError("no task: write one, such as ruler:vt@8192")
    located = _located({"model": model})["model"]
    under_test: list[dict[str, object]] = [{"name": BASELINE}, {"name": AGAIN}, *map(_arm, arms)]
    places = _places(urls, [str(arm.get("name")) for arm in under_test])
    for name, addresses in places.items():
        for arm in under_test:
            if arm.get("name") == name:
                arm["server"] = {"urls": addresses}
    common = [url for url in urls if _arm_of(url) is None]
    servers: Section = {"kind": "openai_server", "urls": common}
    transformers: Section = {"kind": "hf", "indexer": "chunked"}
    return {
        "model": located,
        "limit": samples,
        "engine": _given(engine) if engine else servers if urls else transformers,
        "tasks": [_task(task, samples, str(located)) for task in tasks],
        "arms": under_test,
        "compare": {"baseline": BASELINE, "repeat_of_baseline": AGAIN},
    }


def _task(task: str | Section, samples: int, model: str) -> dict[str, object]:
    """The section of one task."""
    if not isinstance(task, str):
        return _located(task)
    match = _TASK.fullmatch(task.strip())
    if match is None:
        raise EvalkitError(f"task {task!r}: write KIND:NAME@LENGTH, such as ruler:vt@8192")
    kind, name, length = match["kind"], match["name"], match["length"]
    if kind not in TASKS:
        hint = _kind_hint(kind)
        raise EvalkitError(f"task {task}: unknown kind {kind}; {hint}")
    fields = TASKS[kind].config.model_fields
    section: dict[str, object] = {"kind": kind}
    section |= _chosen(task, kind, name, fields)
    section |= _length(task, kind, length, fields, model)
    if "samples" in fields:
        section["samples"] = samples
    elif "repeats" in fields:
        depths = fields["depths"].default
        section["repeats"] = -(-samples // len(depths))
    return section


def _kind_hint(kind: str) -> str:
    """The kind that has a task of that name, else the near one."""
    for name in TASKS.builtin:
        if kind in TASKS[name].descriptions():
            return f"did you mean {name}:{kind}?"
    return near(kind, TASKS)


def _chosen(
    task: str, kind: str, name: str | None, fields: Mapping[str, FieldInfo]
) -> dict[str, object]:
    choice = next((field for field in _CHOICES if field in fields), None)
    if name is not None and choice is None:
        raise EvalkitError(f"task {task}: {kind} has no tasks to choose from: leave :{name} out")
    if name is None:
        if choice == "tasks":
            raise EvalkitError(f"task {task}: write {kind}:NAME; evalkit tasks lists the names")
        return {}
    return {str(choice): [name.strip()]}


def _length(
    task: str, kind: str, length: str | None, fields: Mapping[str, FieldInfo], model: str
) -> dict[str, object]:
    field = next((field for field in ("lengths", "max_length") if field in fields), None)
    if length is None:
        if field == "max_length":
            return {field: _window(task, model) - LEFT_FREE}
        if field == "lengths" and fields[field].is_required():
            raise EvalkitError(f"task {task}: which length? write {task}@8192, or @8k")
        return {}
    if field is None:
        raise EvalkitError(f"task {task}: {kind} has no lengths: leave @{length} out")
    match = _LENGTH.fullmatch(length.strip())
    if match is None:
        raise EvalkitError(f"task {task}: {length} is no length: write 8192, or 8k")
    tokens = int(match[1]) * _UNIT[match[2].lower()]
    return {field: tokens if field == "max_length" else [tokens]}


def _window(task: str, model: str) -> int:
    """Tokens that a model reads at most, by its configuration."""
    window = text_config(full_config(model)).get("max_position_embeddings")
    if not isinstance(window, int) or window <= 2 * LEFT_FREE:
        raise EvalkitError(
            f"task {task}: the configuration of {model} tells no window that leaves room: write"
            f" {task}@LENGTH, the tokens of a prompt that are kept"
        )
    return window


def _arm(arm: str | Section) -> dict[str, object]:
    """The section of one arm."""
    if not isinstance(arm, str):
        return _located(arm)
    text = arm.strip()
    if (Path(text).expanduser() / INDEXER_FILE).is_file():
        return _located({"name": Path(text).name, "indexer": text})
    section: dict[str, object] = {"name": text}
    for part in text.split("+"):
        if _RETENTION.fullmatch(part):
            section["retention"] = part
        elif lag := _LAG.fullmatch(part):
            section["lag"] = int(lag[1])
        elif _PATTERN.fullmatch(part):
            section["pattern"] = part
        else:
            raise EvalkitError(
                f"arm {text!r}: write a retention (1/4), a lag (k1), both (1/4+k1), a pattern of F"
                " and S, or a directory of distilled indexers"
            )
    return section


def _given(section: Section) -> dict[str, object]:
    """A section without None, which no recipe can hold: as if it were not given."""
    inner = {key: _given(v) if isinstance(v, Mapping) else v for key, v in section.items()}
    return {key: value for key, value in inner.items() if value is not None}


def _located(section: Section) -> dict[str, object]:
    """A section whose files are named from the root, so that it can be read from anywhere."""
    located = _given(section)
    for field in _FILES:
        value = located.get(field)
        if isinstance(value, str) and Path(value).expanduser().exists():
            located[field] = str(Path(value).expanduser().resolve())
    return located


def _places(urls: Iterable[str], arms: Sequence[str]) -> dict[str, list[str]]:
    """Servers of single arms."""
    places: dict[str, list[str]] = {}
    for url in urls:
        arm = _arm_of(url)
        if arm is None:
            continue
        if arm not in arms:
            raise EvalkitError(f"url {url}: there is no arm {arm}; {near(arm, arms)}")
        places.setdefault(arm, []).append(url[len(arm) + 1 :])
    return places


def _arm_of(url: str) -> str | None:
    """The arm of ``ARM=URL``; None for an address."""
    arm, equals, address = url.partition("=")
    return arm if equals and address.startswith(("http://", "https://")) else None
