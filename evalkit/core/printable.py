"""Foreign text that may be shown: control characters are spelled out, not sent to a terminal."""

from __future__ import annotations

import re

# C0 and C1 controls except tab and newline, line and paragraph separators, marks and overrides of
# the writing direction, and lone surrogates, which cannot be printed at all.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """A text in which every control character is written out, such as ``\\x1b``."""
    return _CONTROLS.sub(lambda match: _spelled(ord(match[0])), text)


def name_problem(name: str) -> str:
    """What is wrong with the name of an arm; "" for a good one. It goes to terminals and tables."""
    if not name.strip():
        return "an arm needs a name"
    if "\t" in name or "\n" in name or printable(name) != name:
        return "the name of an arm is shown in terminals: it must not hold control characters"
    return ""


def _spelled(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
