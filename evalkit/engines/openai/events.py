"""Server-sent events, read as the standard says (WHATWG HTML, section 9.2.6), and two faults more.

Lines end in LF, CR LF or CR; an event ends at an empty line, and its lines of data are one text.
Servers that leave out the empty line, the end of the last line, or the word ``data`` before a whole
object are understood, too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        data: its lines of data, joined by LF.
        name: the event's type, ``message`` where it has none.
    """

    data: bytes
    name: str = "message"


class EventReader:
    """Events out of the pieces of a stream."""

    def __init__(self) -> None:
        self._left = b""
        self._after_cr = False
        self._begun = False
        self._data: list[bytes] = []
        self._name = ""

    def feed(self, piece: bytes) -> list[Event]:
        """The events that a piece completes."""
        if self._after_cr and piece.startswith(b"\n"):  # the second half of a CR LF
            piece = piece[1:]
        self._after_cr = piece.endswith(b"\r")
        *lines, self._left = _LINE_END.split(self._left + piece)
        return [event for line in lines for event in self._line(line)]

    def end(self) -> list[Event]:
        """What the end of the stream completes."""
        left, self._left = self._left, b""
        return [*self._line(left), *self._dispatch()]

    def _line(self, line: bytes) -> list[Event]:
        if not self._begun:
            self._begun, line = True, line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        if line.startswith(b"{"):
            return [*self._dispatch(), Event(line)]
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._name = value.decode(errors="replace")
        if name != b"data":
            return []  # a comment, an id, a time to reconnect
        before = self._dispatch() if self._is_whole(value.strip()) else []
        self._data.append(value)
        return [*before, *self._dispatch()] if value.strip() == DONE else before

    def _is_whole(self, following: bytes) -> bool:
        """Whether the data before a line are an event that lacks its empty line."""
        if not self._data or not (following.startswith(b"{") or following == DONE):
            return False
        try:
            json.loads(b"\n".join(self._data))
        except (ValueError, RecursionError):
            return False
        return True

    def _dispatch(self) -> list[Event]:
        data, name = b"\n".join(self._data).strip(), self._name
        self._data, self._name = [], ""
        return [Event(data, name or "message")] if data else []
