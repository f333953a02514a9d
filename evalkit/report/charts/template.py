"""Templates of the page; what is put into them is escaped."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from jinja2 import Environment


def source(name: str) -> str:
    """A file of the page as text."""
    return (resources.files("evalkit.report") / "page" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    from evalkit.core.grid import in_points

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(source),
    )
    environment.filters["points"] = in_points
    return environment


def render(name: str, **values: object) -> Markup:
    """A template filled in."""
    return Markup(_environment().get_template(name).render(**values))  # noqa: S704
