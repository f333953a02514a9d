"""Prompt templates: text with ``{field}`` places. Nothing in them is evaluated."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from evalkit.core.json_fields import BadField, kind, present
from evalkit.data.records import text
from evalkit.dsa.json_types import JsonObject, JsonValue

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True, slots=True)
class Template:
    """A text with places for fields.

    Attributes:
        texts: between the places, one more than there are places.
        fields: names in the order of the places.
    """

    texts: tuple[str, ...]
    fields: tuple[str, ...]

    @classmethod
    def parse(cls, source: str) -> Template:
        """Read a template; ``{{`` and ``}}`` are braces.

        Raises:
            ValueError: it has no place, or a brace that is part of none.
        """
        texts, fields, end = [""], [], 0
        for match in _PIECE.finditer(source):
            texts[-1] += source[end : match.start()]
            end = match.end()
            if match[1] is not None and match[1].strip():
                fields.append(match[1].strip())
                texts.append("")
            elif match[0] in ("{{", "}}"):
                texts[-1] += match[0][0]
            else:
                raise ValueError(
                    f"{match[0]} at character {match.start()} belongs to no {{field}}; write a"
                    " brace that is meant twice"
                )
        texts[-1] += source[end:]
        if not fields:
            raise ValueError("it has no {field}, so that every prompt would be the same")
        return cls(tuple(texts), tuple(fields))

    def fill(self, row: JsonObject) -> str:
        """The prompt of a row; what its fields hold is text, whatever stands in it.

        Raises:
            BadField: a field is missing, or is neither text nor a number.
        """
        parts = [self.texts[0]]
        for name, behind in zip(self.fields, self.texts[1:], strict=True):
            parts += (as_text(row, name), behind)
        return "".join(parts)


def as_text(row: JsonObject, name: str) -> str:
    """A field as text; raises BadField where it is neither text nor a number."""
    value = lookup(row, name)
    if isinstance(value, float) and math.isnan(value):
        value = None  # how tables write that nothing is there
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return text({name: value}, name)


def as_texts(row: JsonObject, name: str) -> tuple[str, ...]:
    """A field that holds a text, a number or a list of them, none of them empty; or BadField."""
    value = lookup(row, name)
    values = value if isinstance(value, list | tuple) else [value]
    paths = [name] if values == [value] else [f"{name}[{i}]" for i in range(len(values))]
    texts = tuple(as_text({path: v}, path) for path, v in zip(paths, values, strict=True))
    if not texts or not all(one.strip() for one in texts):
        raise BadField(name, "empty")
    return texts


def lookup(row: JsonObject, name: str) -> JsonValue:
    """A field, or one inside an object (``answers.text``); raises BadField where it is not."""
    outer, _, inner = name.partition(".")
    if name in row or not inner:
        return present(row, name)
    value = present(row, outer)
    if not isinstance(value, dict):
        raise BadField(outer, f"{kind(value)}, not an object with {inner}")
    try:
        return lookup(value, inner)
    except BadField as error:
        raise BadField(f"{outer}.{error.field}", error.message) from None
