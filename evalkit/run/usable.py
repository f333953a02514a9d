"""Which answers say something about quality, and which only that something went wrong."""

from __future__ import annotations

from collections.abc import Collection

NEVER_CAME = ("error", "unclosed", "over_length")
"""Flags of an answer that is not there: a failure, reasoning without an end, no room for it."""

CUT = ("length", "cut_early")
"""Flags of an answer that did not end by itself: at its token budget, or before it."""

SAID_NOTHING = ("empty", "no_letter")
"""Flags of an answer in which there was nothing to score."""


def is_usable(flags: Collection[str]) -> bool:
    """Whether an answer is evidence; verdicts count one that is not at its worst and at its best.

    An answer cut before it said anything is none. One that was cut later is
    scored by what it says, as by the benchmark's own script: the budget is part of the benchmark,
    and running on until the end is how an arm that lost its thread answers.

    Args:
        flags: of a line of scores.jsonl.
    """
    if any(flag in flags for flag in NEVER_CAME):
        return False
    cut = any(flag in flags for flag in CUT)
    return not cut or not any(flag in flags for flag in SAID_NOTHING)
