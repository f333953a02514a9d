"""ReuseSchedule: which layer runs its lightning indexer, and whose selection each layer reads.

Semantics are those of the Multi-layer Indexer paper (arXiv 2611.03768) and of IndexCache
(arXiv 2603.12201). With F the sorted full layers, p(ℓ) the nearest full layer at or before ℓ and
π(f) the full layer before f, layer ℓ reads the selection of

    σ(ℓ) = πᵏ(p(ℓ)),   and of p(ℓ) where πᵏ does not exist (the first k full layers and their
                       segments stay serial).

k = 0 with every layer full is plain DSA, k = 0 with fewer full layers is IndexCache, k ≥ 1 is MLI.
Reuse acts in prefill and decode; the lag acts in decode only, unless `lag_phase` is ``"all"``.

Layers are numbered by *ordinal* among the layers that bear an indexer. For most models that is the
layer id; for DeepSeek-V4, where only compressed-sparse layers have one, `layer_ids` gives the
absolute ids. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Literal

Phase = Literal["prefill", "decode"]
LagPhase = Literal["decode", "all"]


class ScheduleError(ValueError):
    """A schedule that cannot be; the message names the layer."""


@dataclass(frozen=True, slots=True)
class ReuseSchedule:
    """An immutable schedule over the indexer-bearing layers.

    Two schedules are equal when they make every layer do the same thing; how they were written
    (pattern, retention, explicit sources) does not matter, and equal counts of full layers do not
    make them equal.

    Attributes:
        computes: per ordinal, whether the layer runs its indexer (full, ``F``).
        source: σ per ordinal, while the lag acts.
        lag_phase: ``"decode"`` (prefill follows the same pattern with lag 0) or ``"all"``.
        layer_ids: absolute layer id per ordinal.
    """

    computes: tuple[bool, ...]
    source: tuple[int, ...]
    lag_phase: LagPhase
    layer_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        _check(self)
        if self.lag_phase == "all" and self.source == self.nearest:
            object.__setattr__(self, "lag_phase", "decode")  # nothing lags: one spelling

    # -- construction ---------------------------------------------------------------------------

    @classmethod
    def uniform(
        cls,
        layers: int | Sequence[int],
        retention: str | float | Fraction = 1,
        lag: int | Sequence[int] = 0,
        *,
        lag_phase: LagPhase = "decode",
    ) -> ReuseSchedule:
        """Full layers at ordinals 0, n, 2n … for retention 1/n.

        Args:
            layers: number of indexer-bearing layers, or their absolute ids in order.
            retention: 1/n as ``"1/4"``, ``0.25``, ``Fraction(1, 4)`` or ``1``.
            lag: k for all layers, or one k per layer.
            lag_phase: where the lag acts.

        Raises:
            ScheduleError: the retention is not 1/n, or see `from_pattern`.
        """
        ids = _ids(layers)
        step = _step(retention)
        pattern = "".join("F" if i % step == 0 else "S" for i in range(len(ids)))
        return cls.from_pattern(pattern, lag, layers=ids, lag_phase=lag_phase)

    @classmethod
    def from_pattern(
        cls,
        pattern: str,
        lag: int | Sequence[int] = 0,
        *,
        layers: int | Sequence[int] | None = None,
        lag_phase: LagPhase = "decode",
    ) -> ReuseSchedule:
        """From one letter per indexer-bearing layer, ``F`` (full) or ``S`` (shared).

        Args:
            pattern: the letters, first one ``F``.
            lag: k for all layers, or one k per layer.
            layers: how many indexer-bearing layers the model has, or their absolute ids; checked
                against the pattern. Default: as many as the pattern has letters.
            lag_phase: where the lag acts.

        Raises:
            ScheduleError: wrong length, other letters, first layer shared, or a lag below 0.
        """
        if not pattern:
            raise ScheduleError("empty pattern: it needs one letter per indexer-bearing layer")
        ids = _ids(len(pattern) if layers is None else layers)
        for i, letter in enumerate(pattern):
            if letter not in "FS":
                raise ScheduleError(f"pattern letter {letter!r} at layer {i}: use F or S")
        if len(pattern) != len(ids):
            raise ScheduleError(
                f"pattern has {len(pattern)} letters for {len(ids)} indexer-bearing layers:"
                f" {'too short, nothing for' if len(pattern) < len(ids) else 'too long at'}"
                f" layer {min(len(pattern), len(ids))}"
            )
        computes = tuple(letter == "F" for letter in pattern)
        if not computes[0]:
            raise ScheduleError(f"{_name(ids, 0)} is shared: the first layer must be full")
        return cls(computes, _lagged(computes, _lags(lag, ids), ids), lag_phase, ids)

    @classmethod
    def from_sources(
        cls,
        sources: Sequence[int],
        *,
        computes: Sequence[bool] | None = None,
        layers: int | Sequence[int] | None = None,
        lag_phase: LagPhase = "all",
    ) -> ReuseSchedule:
        """From σ itself: for each layer, the ordinal whose selection it reads.

        Args:
            sources: σ per ordinal.
            computes: which layers run their indexer; default: exactly those that are read.
            layers: number or absolute ids of the indexer-bearing layers.
            lag_phase: an explicit map holds in both phases by default; with ``"decode"`` prefill
                reads the nearest full layer instead.

        Raises:
            ScheduleError: a source after its consumer, or one that does not compute.
        """
        ids = _ids(len(sources) if layers is None else layers)
        wanted = tuple(int(s) for s in sources)
        if len(wanted) != len(ids):
            raise ScheduleError(f"{len(wanted)} sources for {len(ids)} indexer-bearing layers")
        if computes is None:
            full = tuple(i in set(wanted) for i in range(len(ids)))
        else:
            full = tuple(bool(c) for c in computes)
        return cls(full, wanted, lag_phase, ids)

    @classmethod
    def parse(cls, text: str) -> ReuseSchedule:
        """The inverse of ``str``: ``"FSFS lag=1 phase=all layers=2,4,6,8"``.

        In place of a lag σ itself may stand, by ordinal: ``"FSFF sources=0,0,0,2"``.

        Raises:
            ScheduleError: not in this form.
        """
        pattern, _, rest = text.strip().partition(" ")
        options: dict[str, str] = {}
        for word in rest.split():
            key, sep, value = word.partition("=")
            if not sep or key not in ("lag", "sources", "phase", "layers") or key in options:
                raise ScheduleError(f"cannot read {word!r} in schedule {text!r}")
            options[key] = value
        try:
            lags = _integers(options.get("lag", "0"))
            ids = _integers(options["layers"]) if "layers" in options else None
            sources = _integers(options["sources"]) if "sources" in options else None
        except ValueError:
            raise ScheduleError(f"cannot read the numbers in schedule {text!r}") from None
        phase: LagPhase = "all" if options.get("phase") == "all" else "decode"
        if options.get("phase", phase) != phase:
            raise ScheduleError(f"schedule {text!r}: phase {options['phase']!r}: use decode or all")
        lag = lags[0] if len(lags) == 1 else lags
        schedule = cls.from_pattern(pattern, lag, layers=ids, lag_phase=phase)
        if sources is None:
            return schedule
        if "lag" in options:
            raise ScheduleError(f"schedule {text!r}: give a lag or sources, not both")
        full, ids = schedule.computes, list(schedule.layer_ids)
        return cls.from_sources(sources, computes=full, layers=ids, lag_phase=phase)

    # -- reading --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.computes)

    def __str__(self) -> str:
        words = [self.pattern]
        if self.lag != 0:
            lag = self.lag
            words.append("lag=" + (str(lag) if isinstance(lag, int) else ",".join(map(str, lag))))
            if self.lag_phase == "all":
                words.append("phase=all")
        if not self.every_layer:
            words.append("layers=" + ",".join(map(str, self.layer_ids)))
        return " ".join(words)

    @property
    def pattern(self) -> str:
        """One letter per ordinal: ``F`` full, ``S`` shared."""
        return "".join("F" if full else "S" for full in self.computes)

    @property
    def full_layers(self) -> tuple[int, ...]:
        """Ordinals of the full layers."""
        return tuple(i for i, full in enumerate(self.computes) if full)

    @property
    def full_layer_ids(self) -> tuple[int, ...]:
        """Absolute ids of the full layers."""
        return tuple(self.layer_ids[i] for i in self.full_layers)

    @property
    def shared_layer_ids(self) -> tuple[int, ...]:
        """Absolute ids of the shared layers."""
        return tuple(self.layer_ids[i] for i, full in enumerate(self.computes) if not full)

    @property
    def every_layer(self) -> bool:
        """Whether all layers have an indexer: ordinals are layer ids."""
        return self.layer_ids == tuple(range(len(self)))

    @property
    def retention(self) -> Fraction:
        """Full layers ÷ indexer-bearing layers."""
        return Fraction(sum(self.computes), len(self.computes))

    @property
    def nearest(self) -> tuple[int, ...]:
        """p(ℓ) per ordinal: the nearest full layer at or before it."""
        nearest, result = 0, []
        for i, full in enumerate(self.computes):
            nearest = i if full else nearest
            result.append(nearest)
        return tuple(result)

    @property
    def lags(self) -> tuple[int, ...]:
        """Per ordinal, how many full layers before p(ℓ) the source lies (0 where serial)."""
        rank = {f: r for r, f in enumerate(self.full_layers)}
        nearest = self.nearest
        return tuple(rank[nearest[i]] - rank[s] for i, s in enumerate(self.source))

    @property
    def lag(self) -> int | tuple[int, ...]:
        """k where one k describes all layers, else the lag of each layer."""
        lags = self.lags
        k = max(lags)
        if _lagged(self.computes, (k,) * len(self), self.layer_ids) == self.source:
            return k
        return lags

    def sources(self, phase: Phase) -> tuple[int, ...]:
        """σ per ordinal in a phase."""
        if phase == "prefill" and self.lag_phase == "decode":
            return self.nearest
        return self.source

    def consumers(self, full_layer: int, phase: Phase = "decode") -> tuple[int, ...]:
        """Ordinals that read the selection of `full_layer`: {ℓ : σ(ℓ) = f}."""
        if not 0 <= full_layer < len(self) or not self.computes[full_layer]:
            raise ScheduleError(f"layer {full_layer} is not full: it has no consumers")
        return tuple(i for i, s in enumerate(self.sources(phase)) if s == full_layer)

    def require_indexers(self, native: ReuseSchedule) -> None:
        """Check that every full layer has an indexer in a checkpoint whose schedule is `native`.

        Raises:
            ScheduleError: one has none; the message names the layer.
        """
        for i in self.full_layers:
            if not native.computes[i]:
                raise ScheduleError(
                    f"layer {self.layer_ids[i]} has no indexer in this checkpoint (native pattern"
                    f" {native.pattern}): cannot enable an indexer the checkpoint does not ship"
                )


def _integers(text: str) -> list[int]:
    """Numbers between commas; ValueError for what Python's `int` takes besides (1_0, blanks, ¹)."""
    words = text.split(",")
    if not all(re.fullmatch("-?[0-9]+", word) for word in words):
        raise ValueError(text)
    return list(map(int, words))


def _ids(layers: int | Sequence[int]) -> tuple[int, ...]:
    ids = tuple(range(layers)) if isinstance(layers, int) else tuple(int(i) for i in layers)
    if not ids:
        raise ScheduleError("no indexer-bearing layers")
    if ids[0] < 0 or any(b <= a for a, b in pairwise(ids)):
        raise ScheduleError(f"layer ids must rise from 0 or above, got {list(ids)}")
    return ids


def _name(ids: tuple[int, ...], ordinal: int) -> str:
    """ "layer 4 (ordinal 1)", or plain "layer 4" where both numbers are the same."""
    same = ids[ordinal] == ordinal
    return f"layer {ids[ordinal]}" + ("" if same else f" (ordinal {ordinal})")


def parse_retention(retention: str | float | Fraction) -> Fraction:
    """A retention, full layers ÷ indexer-bearing layers, as an exact fraction.

    Args:
        retention: ``"1/4"``, ``0.25``, ``Fraction(1, 4)`` or ``1``.

    Raises:
        ScheduleError: not a number, or not in (0, 1].
    """
    try:
        share = Fraction(str(retention).replace(" ", "")).limit_denominator(10_000)
    except (ValueError, ZeroDivisionError):
        raise ScheduleError(f"retention {retention!r}: write it as 1/n, for example 1/4") from None
    if not 0 < share <= 1:
        raise ScheduleError(f"retention {retention}: it must be above 0 and at most 1")
    return share


def _step(retention: str | float | Fraction) -> int:
    share = parse_retention(retention)
    if share.numerator != 1:
        raise ScheduleError(f"retention {retention} is not 1/n: use a pattern for other schedules")
    return share.denominator


def _lags(lag: int | Sequence[int], ids: tuple[int, ...]) -> tuple[int, ...]:
    given = (lag,) * len(ids) if isinstance(lag, int | float) else tuple(lag)
    if any(isinstance(k, bool) or k != int(k) for k in given):
        raise ScheduleError(f"lag {lag}: it must be a whole number")
    lags = tuple(int(k) for k in given)
    if len(lags) != len(ids):
        raise ScheduleError(f"{len(lags)} lags for {len(ids)} indexer-bearing layers")
    for i, k in enumerate(lags):
        if k < 0:
            raise ScheduleError(f"lag {k} at {_name(ids, i)}: it must be 0 or more")
    return lags


def _lagged(
    computes: tuple[bool, ...], lags: tuple[int, ...], ids: tuple[int, ...]
) -> tuple[int, ...]:
    """σ(ℓ) = π^k(p(ℓ)), or p(ℓ) where there are not k full layers before it."""
    full: list[int] = []
    source = []
    for i, is_full in enumerate(computes):
        if is_full:
            full.append(i)
        if not full:
            raise ScheduleError(f"{_name(ids, i)} is shared: the first layer must be full")
        back = len(full) - 1 - lags[i]
        source.append(full[back] if back >= 0 else full[-1])
    return tuple(source)


def _check(schedule: ReuseSchedule) -> None:
    ids, computes, source = schedule.layer_ids, schedule.computes, schedule.source
    if not len(ids) == len(computes) == len(source):
        raise ScheduleError("computes, source and layer_ids differ in length")
    if schedule.lag_phase not in ("decode", "all"):
        raise ScheduleError(f"lag_phase {schedule.lag_phase!r}: use decode or all")
    if not computes[0]:
        raise ScheduleError(f"{_name(ids, 0)} is shared: the first layer must be full")
    for i, s in enumerate(source):
        if not 0 <= s < len(ids):
            raise ScheduleError(f"{_name(ids, i)} reads ordinal {s}: there is no such layer")
        if s > i:
            raise ScheduleError(f"{_name(ids, i)} reads {_name(ids, s)}, which comes after it")
        if not computes[s]:
            raise ScheduleError(
                f"{_name(ids, i)} reads {_name(ids, s)}, which does not run its indexer"
            )
