"""Recipes: strict TOML, overrides from the command line, one canonical hash.

Shared by `evalkit` and `distill`: a recipe model derives from `Strict`, `load` reads it.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from evalkit.core.console import echo
from evalkit.core.errors import EvalkitError
from evalkit.core.secrets import learn, redact

_notices: ContextVar[list[str] | None] = ContextVar("_notices", default=None)


class Strict(BaseModel):
    """Base of every recipe section: immutable, and an unknown key is an error.

    Attributes:
        renamed: fields that had another name in an earlier version: old name to the one of today,
            each dotted from this section on (``train.clip`` to ``train.max_grad_norm``).
        dropped: fields of an earlier version that nothing reads any more, with the default that
            they had: taken, and announced where they were set to something else.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)
    renamed: ClassVar[Mapping[str, str]] = {}
    dropped: ClassVar[Mapping[str, object]] = {}

    @classmethod
    def upgrade(cls, data: dict[str, Any]) -> list[tuple[str, str]]:
        """Rewrite a section of an earlier version in place; returns (old, new) names that it used.

        Raises:
            ValueError: a field is given under both names.
        """
        return [names for names in cls.renamed.items() if _move(data, *names)]

    @model_validator(mode="before")
    @classmethod
    def _upgraded(cls, data: Any) -> Any:
        if not (cls.renamed or cls.dropped) or not isinstance(data, Mapping):
            return data
        today = copy.deepcopy(dict(data))
        said = [f"{old} is now called {new}" for old, new in cls.upgrade(today)]
        for name, default in cls.dropped.items():
            if today.pop(name, default) != default:
                said.append(f"{name} is no longer there and changes nothing")
        notices = _notices.get()
        if notices is not None:
            notices += said
        return today


def _move(data: dict[str, Any], old: str, new: str) -> bool:
    """Give the value at one dotted path another; False where there is none."""
    *parents, name = old.split(".")
    section: Any = data
    for parent in parents:
        section = section.get(parent) if isinstance(section, dict) else None
    if not isinstance(section, dict) or name not in section:
        return False
    *parents, today = new.split(".")
    target: Any = data
    for parent in parents:
        target = target.setdefault(parent, {}) if isinstance(target, dict) else None
    if not isinstance(target, dict):
        return False
    if today in target:
        raise ValueError(f"{old} is the old name of {new}: give one of them")
    target[today] = section.pop(name)
    return True


R = TypeVar("R", bound=BaseModel)

WORDS = {
    "missing": "missing",
    "union_tag_not_found": "kind is missing",
    "bool_parsing": "neither true nor false",
    "bool_type": "neither true nor false",
    "dict_type": "not a section",
    "float_parsing": "not a number",
    "float_type": "not a number",
    "int_from_float": "not a whole number",
    "int_parsing": "not a whole number",
    "int_type": "not a whole number",
    "list_type": "not a list",
    "model_type": "not a section",
    "string_type": "not text",
    "tuple_type": "not a list",
}
"""What the commonest problems are called here, by the name that pydantic has for them."""


@dataclass(frozen=True)
class ByKind:
    """Annotation of a section whose `kind` says which model it is, found when a recipe is read.

    Other packages may add kinds, so that a union written in code does not hold them all.

    Attributes:
        model: of a kind; raises EvalkitError for an unknown one.
        kinds: all that are known.
    """

    model: Callable[[str], type[Strict]]
    kinds: Iterable[str]

    def validated(self, value: object) -> Strict | None:
        """The section as its model; None, which a field may take or not, is left as it is.

        Raises:
            ValueError: it has no kind, or an unknown one.
            ValidationError: it is not what its model takes.
        """
        if value is None:
            return None
        if not isinstance(value, Mapping | Strict):
            raise ValueError("not a section with a kind")
        kind = (value if isinstance(value, Mapping) else vars(value)).get("kind")
        if not isinstance(kind, str):
            raise ValueError(f"kind is missing; known: {', '.join(self.kinds)}")
        try:
            return self.model(kind).model_validate(value)
        except EvalkitError as error:
            raise ValueError(str(error)) from None

    def models(self, value: object) -> set[type[BaseModel]]:
        """The model of a section as the recipe writes it; none where its kind is unknown."""
        kind = value.get("kind") if isinstance(value, Mapping) else None
        try:
            return {self.model(kind)} if isinstance(kind, str) else set()
        except EvalkitError:
            return set()

    def __get_pydantic_core_schema__(
        self, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.validated, handler(source))


def load(path: Path, model: type[R], overrides: Sequence[str] = ()) -> R:
    """Read a recipe and apply overrides such as ``engine.batch_tokens=4096``.

    Raises:
        EvalkitError: the file is missing, is not TOML, has an unknown key (the nearest known one
            is suggested) or a value that its field does not take.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EvalkitError(f"{path}: no such recipe") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise EvalkitError(f"{path}: not valid TOML: {error}") from None
    except OSError as error:
        raise EvalkitError(f"{path}: cannot be read: {error.strerror}") from None
    return parse(overridden(data, overrides), model, str(path))


def overridden(data: Mapping[str, object], overrides: Sequence[str]) -> dict[str, Any]:
    """A recipe with overrides such as ``engine.batch_tokens=4096`` applied.

    Raises:
        EvalkitError: an override names no place of the recipe.
    """
    for text in overrides:
        learn(_as_section(text))  # an error may repeat it
    changed = copy.deepcopy(dict(data))
    _apply_all(changed, overrides)
    return changed


def override(data: Mapping[str, object], model: type[R], changes: Sequence[str], where: str) -> R:
    """A section with changes such as ``mode=strict`` applied."""
    changed = dict(data)
    for change in changes:
        _apply(changed, change)
    return parse(changed, model, where)


def parse(data: Mapping[str, object], model: type[R], where: str) -> R:
    """Validate a dictionary as `model`; `where` names the source in errors.

    Fields of an earlier version are taken, with a line on stderr each.
    """
    learn(data)
    notices: list[str] = []
    token = _notices.set(notices)
    try:
        section = model.model_validate(data)
    except ValidationError as error:
        raise EvalkitError(redact(f"{where}: {_explain(error, model, data)}")) from None
    finally:
        _notices.reset(token)
    for notice in dict.fromkeys(notices):
        echo(f"{where}: {notice}", error=True)
    return section


def canonical_hash(section: BaseModel | Mapping[str, object]) -> str:
    """sha256 of the canonical JSON: key order, spacing and defaults written out do not matter."""
    data = section.model_dump(mode="json") if isinstance(section, BaseModel) else section
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _apply_all(data: dict[str, object], overrides: Sequence[str]) -> None:
    """Apply overrides; one that changes a section's `kind` comes first and empties the section."""
    kinds = [text for text in overrides if text.partition("=")[0].strip().endswith(".kind")]
    for override in [*kinds, *(text for text in overrides if text not in kinds)]:
        _apply(data, override)


def _apply(data: dict[str, object], override: str) -> None:
    """Set ``a.b=value`` in place; the value is TOML, or a bare string where it is not."""
    key, sep, raw = override.partition("=")
    if not sep or not key.strip():
        raise EvalkitError(f"--set {override}: write it as a.b=value")
    value = _value(raw)
    *parents, last = [part.strip() for part in key.split(".")]
    node: object = data
    for part in parents:
        node = _child(node, part, override)
    if isinstance(node, list):
        node[_index(node, last, override)] = value
    elif isinstance(node, dict):
        if last == "kind" and node.get("kind") not in (None, value):
            node.clear()  # the other keys belong to the old kind
        node[last] = value
    else:
        raise EvalkitError(f"--set {override}: {'.'.join(parents)} is not a section")


def _value(raw: str) -> Any:
    """A value as TOML, or a bare string where it is not."""
    try:
        parsed = tomllib.loads(f"v = {raw}")
    except tomllib.TOMLDecodeError:
        return raw
    return parsed["v"] if len(parsed) == 1 else raw  # more keys: a line break smuggled them in


def _as_section(override: str) -> Any:
    """``a.b=value`` as the section that it would be alone."""
    key, _, raw = override.partition("=")
    section: Any = _value(raw)
    for part in reversed(key.split(".")):
        section = {part.strip(): section}
    return section


def _child(node: object, part: str, override: str) -> object:
    if isinstance(node, list):
        return node[_index(node, part, override)]
    if isinstance(node, dict):
        return node.setdefault(part, {})
    raise EvalkitError(f"--set {override}: {part} is not in a section")


def _index(node: Sequence[object], part: str, override: str) -> int:
    """Position in a list by number, or by the `name` (or `kind`) of the entry."""
    if part.isdecimal() and int(part) < len(node):
        return int(part)
    for i, entry in enumerate(node):
        if isinstance(entry, dict) and part in (entry.get("name"), entry.get("kind")):
            return i
    raise EvalkitError(f"--set {override}: no entry {part} among {len(node)}")


def _explain(error: ValidationError, model: type[BaseModel], data: object) -> str:
    """The first problem in words, unknown keys before all others, with the nearest known one.

    A key that is misspelt is missing, too: what it is called is worth more than that.
    """
    problems = error.errors(include_url=False)
    first = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    unknown = first["type"] == "extra_forbidden"
    path, sections = _section(first["loc"][:-1] if unknown else first["loc"], model, data)
    path += [str(part) for part in first["loc"][-1:] if unknown]
    location = ".".join(path)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if unknown:
        known = sorted({name for section in sections for name in section.model_fields})
        near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.55)
        hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
        return f"unknown key {location}; {hint}{more}"
    message = WORDS.get(first["type"], first["msg"].removeprefix("Value error, "))
    value = first.get("input")
    shown = f", got {value!r}" if isinstance(value, str | int | float | bool) else ""
    return f"{location}: {message}{shown}{more}" if location else f"{message}{more}"


def _section(
    location: Sequence[str | int], model: type[BaseModel], data: object
) -> tuple[list[str], set[type[BaseModel]]]:
    """The path as the recipe writes it, and the sections it leads to.

    Pydantic puts the `kind` of a section and the types of a union among the keys.
    """
    sections: set[type[BaseModel]] = {model}
    fields: list[FieldInfo] = []
    path: list[str] = []
    for part in location:
        tagged = {m for m in sections if "kind" in m.model_fields and _kind(m) == part}
        named = [m.model_fields[part] for m in sections if part in m.model_fields]
        if isinstance(part, int):
            data = data[part] if isinstance(data, list | tuple) and part < len(data) else None
        elif tagged:
            sections = tagged
            continue
        elif named:
            data = data.get(part) if isinstance(data, Mapping) else None
            fields = named
        else:
            continue
        path.append(str(part))
        sections = {m for f in fields for m in _models(f.annotation, f.metadata, data)}
    return path, sections


def _kind(section: type[BaseModel]) -> object:
    return section.model_fields["kind"].default


def _models(annotation: object, metadata: Iterable[object], value: object) -> set[type[BaseModel]]:
    """Every section type that an annotation names, for what stands in its place."""
    for mark in metadata:
        if isinstance(mark, ByKind):
            return mark.models(value)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {
        model
        for part in getattr(annotation, "__args__", ())
        for model in _models(part, getattr(part, "__metadata__", ()), value)
    }
