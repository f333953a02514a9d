"""The search recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from distill.config.train import DataConfig
from evalkit.config.schedule import ScheduleConfig
from evalkit.core.recipe import Strict


class SearchConfig(Strict):
    """A search for the layers that keep their indexer, or for a lag per layer.

    Attributes:
        model: checkpoint (directory relative to the recipe, or hub id).
        dtype: weights and activations.
        kind: ``pattern`` makes full layers shared one by one, ``lag`` raises the lag of one layer
            after another.
        begin: where it begins, and how full layers select; default: the checkpoint's own schedule.
        retention: the search ends at this share of full layers (``pattern``).
        max_lag: largest k of a layer (``lag``).
        lag_phase: where lags act; decode rows are those behind the middle of a sequence.
        criterion: ``lm_loss`` (IndexCache) or ``logit_kl``, the KL to the original's predictions.
        proposal: which candidates a step evaluates. ``all`` of them (IndexCache); ``recall``: the
            `top` ones by the recall that their readers would lose, from one forward of the
            original; ``lazy``: in the order of the last measured increase, until the best one
            measured beats every other one's last increase.
        top: see ``recall``.
        stages: absolute id of the first layer of every pipeline stage; those stay full.
        blockwise: commit the best flip of every stage in each round instead of one in all.
        data: `calibration` sequences decide, `held_out` ones are reported.
        batch: sequences per forward.
    """

    model: str
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    kind: Literal["pattern", "lag"] = "pattern"
    begin: ScheduleConfig = ScheduleConfig()
    retention: str | float = "1/8"
    max_lag: int = Field(default=1, ge=1)
    lag_phase: Literal["decode", "all"] = "decode"
    criterion: Literal["lm_loss", "logit_kl"] = "lm_loss"
    proposal: Literal["all", "recall", "lazy"] = "all"
    top: int = Field(default=3, ge=1)
    stages: tuple[int, ...] = ()
    blockwise: bool = False
    data: DataConfig = DataConfig(train=1)
    batch: int = Field(default=4, ge=1)
