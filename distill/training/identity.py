"""What two runs must share so that one goes on from the other's state."""

from __future__ import annotations

from collections.abc import Mapping

from distill.config.losses import loss_packages
from distill.config.train import DistillConfig
from evalkit.config.selection import SELECTIONS

_SECTIONS = {
    "dtype",
    "arm",
    "student",
    "teacher",
    "loss",
    "queries",
    "closed_form",
    "choice",
    "train",
}
# Memory and bookkeeping: they change no number beyond rounding.
_NOT_COUNTED = {
    "queries": {"chunk_elements"},
    "train": {"micro_batch", "save_every", "trackers"},
}


def run_identity(
    config: DistillConfig, base: str, tokens: str, base_config: str | None
) -> dict[str, object]:
    """The identity of a run of `distill train`.

    Versions of packages are part of it where they add a loss or the arm's selection.

    Args:
        config: the recipe.
        base: fingerprint of the model.
        tokens: hash of the text.
        base_config: hash of the model's config.json; None in states of 0.1.
    """
    sections = config.model_dump(mode="json", include=_SECTIONS, exclude=_NOT_COUNTED)
    selection = [] if config.arm.selection is None else [config.arm.selection]
    packages = loss_packages(config.loss) | SELECTIONS.packages(s.name for s in selection)
    return {
        "base": base,
        "tokens": tokens,
        **({} if base_config is None else {"base_config": base_config}),
        **sections,
        **({"packages": packages} if packages else {}),
    }


def upgraded_identity(identity: Mapping[str, object]) -> dict[str, object]:
    """An identity under the field names of today, as a state of an earlier version holds it.

    Raises:
        ValueError: its sections are no recipe.
    """
    config = recipe_of({k: v for k, v in identity.items() if k in _SECTIONS})
    today = run_identity(config, str(identity.get("base")), str(identity.get("tokens")), None)
    return today | {k: v for k, v in identity.items() if k in ("packages", "base_config")}


def recipe_of(sections: Mapping[str, object]) -> DistillConfig:
    """Recorded sections as a recipe, fields of earlier versions included.

    Raises:
        ValueError: they are no recipe.
    """
    choice = sections.get("choice")
    if isinstance(choice, Mapping):  # before `positions` was there, all counted alike
        sections = {**sections, "choice": {"positions": "all", **choice}}
    return DistillConfig.model_validate({"model": "", **sections})
