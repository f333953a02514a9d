"""How an arm's full layers select: sections by `kind`, each of them a selection policy itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import SerializeAsAny

from evalkit.core.kinds import C, Kind, Kinds
from evalkit.core.recipe import Strict
from evalkit.dsa.selection import REFERENCE_BITS, Ranking, Reuse

if TYPE_CHECKING:
    from torch import Tensor

    from evalkit.dsa.features import IndexFeatures


class Selection(Strict):
    """A section that is an `evalkit.dsa.selection.SelectionPolicy`; its definition stands there."""

    def scores(self, features: IndexFeatures, rows: Tensor) -> Tensor:
        """Scores of some rows against every key, -inf where a key cannot be selected."""
        raise NotImplementedError

    def products(self, keys: int, heads: int) -> int:
        """Products of an index query and a key that one row takes."""
        raise NotImplementedError

    def rankings(self, features: IndexFeatures) -> tuple[Ranking, ...]:
        """What all rows rank by, one after the other, keys last: what its students learn.

        Nothing (the default) says that `scores` are all there is. A row that has no choice in a
        ranking ranks nothing in it; rounding lets gradients through.
        """
        del features
        return ()

    @property
    def reuse(self) -> Reuse | None:
        """What a step may remember of earlier ones."""
        return None

    @property
    def key_bits(self) -> int:
        """Bits of a channel of the keys that are scored."""
        return REFERENCE_BITS

    def problem(self, topk: int) -> str:
        """Why it cannot select so many keys, with what to do; "" where it can."""
        del topk
        return ""

    @property
    def name(self) -> str:
        """The kind."""
        return str(vars(self)["kind"])

    @property
    def section(self) -> dict[str, object]:
        """The section of a recipe: kind, and settings that are not the default."""
        return {"kind": self.name, **self.model_dump(mode="json", exclude_defaults=True)}

    @property
    def text(self) -> str:
        """The same in a few words."""
        settings = self.model_dump(mode="json", exclude_defaults=True).items()
        return " ".join([self.name, *(f"{key}={value}" for key, value in settings)])


@dataclass(frozen=True, kw_only=True)
class SelectionKind(Kind[C]):
    """A way to select that a recipe can name; `config` is a `Selection`."""

    def __post_init__(self) -> None:
        """Raises TypeError where the section is no policy."""
        super().__post_init__()
        if not issubclass(self.config, Selection):
            raise TypeError("config must be a subclass of evalkit.config.selection.Selection")


# Named, not imported: they need torch, which a recipe without them does not.
SELECTIONS: Kinds[SelectionKind[Selection]] = Kinds(
    "kind of selection",
    SelectionKind,
    {
        "full": "evalkit.selections.full:KIND",
        "hisa": "evalkit.selections.hisa:KIND",
        "misa": "evalkit.selections.misa:KIND",
        "precision": "evalkit.selections.precision:KIND",
        "temporal": "evalkit.selections.temporal:KIND",
    },
    "evalkit.selections",
)

SelectionConfig = Annotated[SerializeAsAny[Selection] | None, SELECTIONS.section()]
"""An arm's selection section; None: as the checkpoint was trained."""
