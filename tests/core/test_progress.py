"""Progress where there is no terminal."""

import io
import threading

import pytest
from rich.console import Console

from evalkit.core.progress import ProgressLines, duration, open_counter


def test_a_line_says_what_is_left_at_the_speed_of_the_last_lines():
    lines = ProgressLines(1000, 0.0)
    assert lines.line(30.0) == "0 of 1,000 answers after 30 s, no answer yet"
    lines.advance("1/4", 100)
    # 100 answers in 60 s: 900 more take 540 s.
    assert lines.line(60.0) == "100 of 1,000 answers (1/4) after 60 s, about 9 min left"
    for step in range(3, 13):
        lines.advance("1/4", 50)
        line = lines.line(30.0 * step)
    # 600 done; the ten lines before saw 50 in every 30 s: 400 more take 240 s.
    assert line == "600 of 1,000 answers (1/4) after 6 min, about 4 min left"


def test_a_run_that_stands_still_says_so():
    lines = ProgressLines(10, 0.0)
    lines.advance("a", 5)
    for step in range(1, 12):
        line = lines.line(30.0 * step)
    assert line == "5 of 10 answers (a) after 6 min, none in the last 5 min"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (12_000, "3 h 20 min"), (200_000, "2 d 7 h")],
)
def test_durations(seconds, said):
    assert duration(seconds) == said


def test_lines_are_said_in_a_pipe_until_the_end():
    heard, spoken = [], threading.Event()

    def say(line):
        heard.append(line)
        spoken.set()

    with open_counter(Console(file=io.StringIO()), 2, interval=0.001, say=say) as advance:
        advance("a", 1)
        spoken.clear()
        assert spoken.wait(20)
    count = len(heard)
    assert heard[-1].startswith("1 of 2 answers (a) after 0 s, ")
    assert len(heard) == count
    assert threading.active_count() >= 1


def test_a_terminal_has_a_bar_and_no_lines():
    out, heard = io.StringIO(), []
    console = Console(file=out, force_terminal=True)
    with open_counter(console, 2, interval=0.001, say=heard.append) as advance:
        advance("IndexCache", 2)
    assert "IndexCache" in out.getvalue()
    assert not heard
