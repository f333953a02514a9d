"""The losses of a recipe: `[[loss]]` entries with a kind, a weight, and the options of that kind.

Kinds are those of `distill.losses`, and those that installed packages add by entry points of the
group `distill.losses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from distill.errors import DistillError, EvalkitError
from distill.losses import LOSSES
from distill.losses.base import Loss
from evalkit.core.plugins import Registry
from evalkit.core.recipe import Strict, parse

REGISTRY = Registry("loss", type, LOSSES, group="distill.losses")


def loss_model(kind: str) -> type[BaseModel]:
    """The pydantic model of a kind's options, whose instances are losses.

    Raises:
        EvalkitError: the kind is unknown, or the package that adds it has a fault.
    """
    model = REGISTRY[kind]
    if not (issubclass(model, BaseModel) and hasattr(model, "needs") and callable(model)):
        raise DistillError(
            f"{REGISTRY.package(kind)}: the loss {kind} is no pydantic model with needs and"
            " __call__ (see distill.losses.base)"
        )
    return model


class LossConfig(Strict):
    """One loss: what stands beside kind and weight are the options of the kind.

    Attributes:
        kind: which loss.
        weight: of it in the sum; a loss of weight 0 is measured on held-out text by `distill
            train` and trains nothing.
    """

    model_config = ConfigDict(extra="allow")

    kind: str
    weight: float = Field(default=1.0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _options(cls, data: Any) -> Any:
        """Check the options and write their defaults out."""
        if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
            return data
        common = {key: data[key] for key in ("kind", "weight") if key in data}
        given = {key: value for key, value in data.items() if key not in common}
        try:
            options = parse(given, loss_model(common["kind"]), common["kind"])
        except EvalkitError as error:
            raise ValueError(str(error)) from None
        return common | options.model_dump(mode="json")

    @property
    def package(self) -> str:
        """Name and version of the package that the loss comes from."""
        return REGISTRY.package(self.kind)

    @property
    def loss(self) -> Loss:
        """The loss with its options."""
        return cast(Loss, loss_model(self.kind).model_validate(self.model_extra or {}))


def loss_packages(losses: Iterable[LossConfig]) -> dict[str, str]:
    """Versions of the other packages that some losses come from."""
    return REGISTRY.packages(entry.kind for entry in losses)


def default_losses() -> tuple[LossConfig, ...]:
    """KL trains, ListMLE is measured."""
    return LossConfig(kind="kl"), LossConfig(kind="listmle", weight=0.0)


def losses_from_kl_share(section: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries that stand for a `[loss]` section of 0.1: λ·KL + (1−λ)·ListMLE.

    Raises:
        ValueError: λ is not between 0 and 1.
    """
    share = section.get("kl_share", 1.0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ValueError(f"loss.kl_share: it lies between 0 and 1, got {share!r}")
    options = {key: value for key, value in section.items() if key != "kl_share"}
    return [{"kind": "kl", "weight": share}, {"kind": "listmle", "weight": 1 - share, **options}]
