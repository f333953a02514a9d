"""Start lines that an engine refuses, or crashes on, known before it is started."""

from __future__ import annotations

from collections.abc import Sequence

from evalkit.dsa.engine_config.dialect import Launch
from evalkit.dsa.schedule import ReuseSchedule, ScheduleError

CAPTURE = "--enable-return-indexer-topk"
_TP = ("--tp", "--tp-size", "--tensor-parallel-size")
_DP = ("--dp", "--dp-size", "--data-parallel-size")


def refuse_flags(launch: Launch | None, flags: Sequence[str], schedule: ReuseSchedule) -> None:
    """Raise for flags that do not go together on an engine.

    SGLang, state_capturer/indexer_topk.py (0.5.16 to 0.5.23): the capturer of selections asserts
    attention tensor parallelism 1, that is as many attention replicas as ranks.
    SGLang, arg_groups/model_hook.py (0.5.19 to 0.5.23): two-batch overlap hands no selection on.

    Raises:
        ScheduleError: what, why, and what to write instead.
    """
    if launch != "sglang":
        return
    ranks, replicas = _number(flags, _TP), _number(flags, _DP)
    attention = ranks // replicas if "--enable-dp-attention" in flags else ranks
    if CAPTURE in flags and attention > 1:
        raise ScheduleError(
            f"{CAPTURE} needs attention tensor parallelism 1, this start has {attention}: leave it"
            f" out (the probe looks instead), or add --dp {ranks} --enable-dp-attention, which"
            " changes speed and memory of every arm"
        )
    if "--enable-two-batch-overlap" in flags and not all(schedule.computes):
        raise ScheduleError(
            "--enable-two-batch-overlap does not go with shared layers: it hands no selection on"
        )


def _number(flags: Sequence[str], names: Sequence[str]) -> int:
    """The value of an option, written with a space or an equals sign; 1 without it."""
    for i, flag in enumerate(flags):
        name, _, value = flag.partition("=")
        if name in names:
            text = value or (flags[i + 1] if i + 1 < len(flags) else "")
            return max(int(text), 1) if text.isdecimal() else 1
    return 1
