"""Which buffer every layer writes and reads under a schedule. Pure: no torch, no engine.

The engine has one buffer [tokens, top-k] for all layers of a rank: every full layer overwrites it.
Under a schedule a selection has to live until its last reader, so selections get slots, reused as
registers are: slot 0 is the engine's own buffer, k = 1 needs one more. Where decode and prefill
read different sources, one further slot holds the merge of both, made by one copy of fixed shape;
layers that read the same pair read that merge.

Within one layer the order is: write its own selection, merge, read. Nothing lives longer than one
forward of the model, so preemption, resumption and prefix caching have nothing to keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from evalkit.dsa.schedule import ReuseSchedule


@dataclass(frozen=True, slots=True)
class Route:
    """Slots of one layer.

    Attributes:
        write: slot of its own selection; None: a shared layer, which selects nothing.
        merge: slots (decode, prefill) that it merges into `read` before it reads; None: no copy.
        read: slot that its attention reads.
    """

    write: int | None
    merge: tuple[int, int] | None
    read: int


@dataclass(frozen=True, slots=True)
class Routes:
    """Slots of all layers.

    Attributes:
        layers: one route per ordinal.
        slots: how many buffers there are.
    """

    layers: tuple[Route, ...]
    slots: int


def routes(schedule: ReuseSchedule) -> Routes:
    """Slots for a schedule: few, and none overwritten while a later layer reads it."""
    decode, prefill = schedule.sources("decode"), schedule.sources("prefill")
    last = {full: full for full in schedule.full_layers}
    for reader, pair in enumerate(zip(decode, prefill, strict=True)):
        for source in pair:
            last[source] = max(last[source], reader)
    slot_of: dict[int, int] = {}
    for full in schedule.full_layers:
        taken = {slot_of[f] for f in slot_of if last[f] >= full}
        slot_of[full] = next(slot for slot in range(len(taken) + 1) if slot not in taken)
    slots = max(slot_of.values()) + 1
    merged: tuple[int, int] | None = None
    layers = []
    for ordinal, pair in enumerate(zip(decode, prefill, strict=True)):
        write = slot_of[ordinal] if schedule.computes[ordinal] else None
        if pair[0] == pair[1]:
            layers.append(Route(write, None, slot_of[pair[0]]))
            continue
        copy = None if pair == merged else (slot_of[pair[0]], slot_of[pair[1]])
        layers.append(Route(write, copy, slots))
        merged = pair
    return Routes(tuple(layers), slots + (merged is not None))
