"""How far a run is: a bar on a terminal, elsewhere a line every half minute."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evalkit.core.console import echo, open_progress

if TYPE_CHECKING:
    from rich.console import Console

INTERVAL = 30.0
"""Seconds between two lines."""

WINDOW = 10
"""Lines over which the speed is taken: what was answered before this start counts for no more."""

Advance = Callable[[str, int], None]
"""Called with what is at work, and how many answers came."""


class ProgressLines:
    """Counts answers, and says how many are left and how long they will take.

    Args:
        total: answers of the whole run.
        now: seconds, at the start.
    """

    def __init__(self, total: int, now: float) -> None:
        self.total, self.done, self.label = total, 0, ""
        self._start = now
        self._seen: deque[tuple[float, int]] = deque([(now, 0)], maxlen=WINDOW)

    def advance(self, label: str, count: int) -> None:
        """Take note of answers."""
        self.label, self.done = label, self.done + count

    def line(self, now: float) -> str:
        """The line of this moment; the speed is that of the last few lines."""
        since, before = self._seen[0]
        self._seen.append((now, self.done))
        rate = (self.done - before) / (now - since) if now > since else 0.0
        left = (
            f"about {duration((self.total - self.done) / rate)} left" if rate else "no answer yet"
        )
        if not rate and self.done:
            left = f"none in the last {duration(now - since)}"
        what = f" ({self.label})" if self.label else ""
        spent = duration(now - self._start)
        return f"{self.done:,} of {self.total:,} answers{what} after {spent}, {left}"


@contextmanager
def open_counter(
    console: Console,
    total: int,
    *,
    interval: float = INTERVAL,
    say: Callable[[str], None] = lambda line: echo(line, error=True),
) -> Iterator[Advance]:
    """While answers come: a bar where the console is a terminal, else lines on stderr.

    Args:
        console: where a bar is shown.
        total: answers of the whole run.
        interval: seconds between two lines.
        say: prints a line.
    """
    if console.is_terminal:
        with open_progress(console) as progress:
            bar = progress.add_task("generate", total=total)
            yield lambda label, count: progress.update(bar, advance=count, description=label)
        return
    lines, over = ProgressLines(total, time.monotonic()), threading.Event()

    def talk() -> None:
        while not over.wait(interval):
            say(lines.line(time.monotonic()))

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    try:
        yield lines.advance
    finally:
        over.set()
        thread.join()


def duration(seconds: float) -> str:
    """40 s, 12 min, 3 h 20 min, 2 d 5 h."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"
