"""How one engine reads its index-reuse settings, as a type. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["types", "cli", "pattern", "freq"]
Status = Literal["released", "main", "unreleased"]
Override = Literal["before class", "after class", "unknown"]
Gate = Literal["none", "documented", "required"]
OffsetRule = Literal["unread", "shift", "one_based"]
Short = Literal["error", "full", "exact"]
Stages = Literal[
    "carried", "first full", "forced full", "forced by frequency", "unknown", "one process"
]
Launch = Literal["sglang", "vllm", "transformers", "megatron", "prime-rl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one engine reads its settings.

    Attributes:
        title: the engine in words, with what was read.
        space: ``layers`` counts all backbone layers, ``c4`` the compressed-sparse ones.
        family: the engine as `--engine` names it; "" where the row is known by its own name only.
        since: first version that reads so; "" from the first.
        until: last one; "" where no later row is known.
        run_against: releases whose own code this row was compared with.
        status: ``released``, on the ``main`` branch only, or ``unreleased`` (pull request, fork).
        models: model types the row is for; empty: all that no other row of the family names.
        overrides: whether command-line overrides meet the configuration class: it fills
            `indexer_types` from config.json, so settings that come ``after class`` do not reach it.
        null_is_unset: whether an explicit null of frequency or offset counts as not given;
            elsewhere the engine computes with it and fails.
        reads: what decides, first found first; empty: the engine has no reuse for these models.
        plugin: whether our plugin hands the whole schedule over, lags included.
        gate: whether ``use_index_cache`` must be true (``documented``: by its documentation only).
        offset_rule: how the offset moves the frequency rule: ``shift`` = offset − 1,
            ``one_based`` = max(offset, 1) − 1, ``unread``: the offset is not read.
        offset: used where none is given (for ``unread``: what the built-in shift amounts to).
        least_offset: smaller ones are refused by the engine; None: not checked.
        fixed_freq: the only frequency, where it is built in.
        freq_known: False where the rule could not be read.
        short: layers beyond the end of a pattern: ``full``, an ``error``, or the length must be
            ``exact`` (then too long is an error as well; elsewhere letters too many are ignored).
        types_exact: `indexer_types` of another length is refused.
        checks_first: refuses a pattern whose first layer is shared; others run into it.
        stages: pipeline stages: selections are ``carried`` on, a stage must begin on a ``first
            full`` layer, its first layer is ``forced full`` (``by frequency``: a pattern is
            refused instead), or nothing is known.
        mtp: what multi-token-prediction layers do.
        shared_indexer: what becomes of the indexer of a shared layer.
        launch: how settings are handed over; None: not written here.
        names: spelling of frequency and offset.
    """

    title: str
    space: Literal["layers", "c4"] = "layers"
    family: str = ""
    since: str = ""
    until: str = ""
    run_against: tuple[str, ...] = ()
    status: Status = "released"
    models: tuple[str, ...] = ()
    overrides: Override = "unknown"
    null_is_unset: bool = True
    reads: tuple[Source, ...] = ("pattern", "freq")
    plugin: bool = False
    gate: Gate = "none"
    offset_rule: OffsetRule = "shift"
    offset: int = 2
    least_offset: int | None = None
    fixed_freq: int | None = None
    freq_known: bool = True
    short: Short = "full"
    types_exact: bool = False
    checks_first: bool = False
    stages: Stages = "unknown"
    mtp: str = "not documented"
    shared_indexer: str = "not documented"
    launch: Launch | None = None
    names: tuple[str, str] = ("index_topk_freq", "index_skip_topk_offset")

    def shift(self, offset: int | None) -> int:
        """The shift of the frequency rule for an offset (None: not given)."""
        used = self.offset if offset is None or self.offset_rule == "unread" else offset
        return max(used, 1) - 1 if self.offset_rule == "one_based" else used - 1
