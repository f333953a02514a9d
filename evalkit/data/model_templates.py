"""RULER's hand-written model templates, parsed as data from the official package.

They put the user's turn into the format of a model family, as ``[INST] ... [/INST]``. Published
RULER numbers were made with them, not with the chat template of the tokenizer.
"""

from __future__ import annotations

import ast
import difflib
from functools import cache

from evalkit.core.errors import EvalkitError
from evalkit.data.sources import LONG_CONTEXT_EVAL, wheel_member

MEMBER = "long_context_eval/data/template.py"
PLACE = "{task_template}"


@cache
def model_templates() -> dict[str, str]:
    """All templates by name, each with `PLACE` once, read from the pinned wheel.

    Raises:
        EvalkitError: the wheel cannot be had (see `evalkit.data.sources.locate`).
    """
    return parse(wheel_member(LONG_CONTEXT_EVAL, MEMBER).decode("utf-8"))


def model_template(name: str) -> str:
    """One template.

    Raises:
        EvalkitError: there is none of that name (the nearest known one is suggested), or as
            `model_templates`.
    """
    known = model_templates()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise EvalkitError(f"prompts.template: unknown model template {name}; {hint}")
    return known[name]


def parse(source: str) -> dict[str, str]:
    """The literal dictionary ``Templates`` of a Python source, which is never executed.

    Raises:
        EvalkitError: the source has another form.
    """
    try:
        for node in ast.parse(source).body:
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == "Templates" for target in node.targets
            ):
                return _checked(ast.literal_eval(node.value))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise EvalkitError(f"{MEMBER}: Templates is no literal: {error}") from None
    raise EvalkitError(f"{MEMBER}: has no dictionary Templates")


def _checked(templates: object) -> dict[str, str]:
    if not isinstance(templates, dict) or not all(
        isinstance(name, str) and isinstance(text, str) and text.count(PLACE) == 1
        for name, text in templates.items()
    ):
        raise EvalkitError(f"{MEMBER}: a template without {PLACE}, or of another form")
    return templates
