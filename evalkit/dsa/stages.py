"""Schedules over pipeline stages: a selection stays on the rank that computed it."""

from __future__ import annotations

from collections.abc import Collection

from evalkit.dsa.schedule import ReuseSchedule, ScheduleError


def check_cut(schedule: ReuseSchedule, present: Collection[int]) -> None:
    """Raise where a layer of this rank reads one that another pipeline stage has.

    Args:
        schedule: over all layers.
        present: absolute ids of the layers that this rank has.

    Raises:
        ScheduleError: the cut; the message names both layers.
    """
    here = set(present)
    for phase in ("decode", "prefill"):
        for reader, source in enumerate(schedule.sources(phase)):
            ids = schedule.layer_ids[reader], schedule.layer_ids[source]
            if ids[0] in here and ids[1] not in here:
                raise ScheduleError(
                    f"layer {ids[0]} reads the selection of layer {ids[1]} in {phase}, and a"
                    " pipeline stage begins between them: selections do not cross stages"
                )
