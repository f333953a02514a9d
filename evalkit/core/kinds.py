"""Recipe sections by `kind`: each kind is a record that names the model of its section."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from evalkit.core.errors import EvalkitError
from evalkit.core.plugins import Registry
from evalkit.core.recipe import ByKind, Strict

C = TypeVar("C", bound=Strict)


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[C]):
    """What a recipe can name by `kind`.

    Attributes:
        config: model of the section, a `Strict`; the default of its field `kind` is the name.

    Raises:
        TypeError: `config` is no such model.
    """

    config: type[C]

    def __post_init__(self) -> None:
        """Check what the section of every recipe rests on."""
        if not (isinstance(self.config, type) and issubclass(self.config, Strict)):
            raise TypeError("config must be a subclass of evalkit.core.recipe.Strict")
        field = self.config.model_fields.get("kind")
        if field is None or not isinstance(field.default, str):
            raise TypeError(f'{self.config.__name__} needs a field like kind: Literal["x"] = "x"')

    @property
    def name(self) -> str:
        """The kind."""
        return str(self.config.model_fields["kind"].default)


K = TypeVar("K", bound=Kind[Any])


class Kinds(Registry[K]):
    """A registry of kinds."""

    def _checked(self, name: str, value: object, package: str) -> K:
        kind = super()._checked(name, value, package)
        if kind.name != name:
            raise EvalkitError(
                f"{package}: the {self.what} {name} has a section of kind {kind.name}: the entry"
                " point and the default of `kind` must be the same"
            )
        return kind

    def of(self, section: Strict) -> K:
        """The kind of a section."""
        return self[vars(section)["kind"]]

    def section(self) -> ByKind:
        """Annotation of a recipe field that holds a section of any of these kinds."""
        return ByKind(lambda kind: self[kind].config, self)
