"""Longest common subsequences of many pairs of sentences at once, by bit-parallel arithmetic.

One big integer holds a row of the dynamic programme for all columns: every word of every column
sentence is a bit, and a guard bit, always 0, parts the sentences. A row costs a handful of integer
operations whatever the number of sentences, and so does a step back through it. No recursion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Row = Sequence[str | None]
"""Words; None is one that no column has."""

_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
STORED_BYTES = 1 << 28
"""Rows, and masks of words, kept at a time; beyond it they are computed again when needed."""


class Columns:
    """The sentences on one side of the table, laid out as bits.

    Attributes:
        bits: per word, where it stands.
        bytes: size of a row.
        full: every word.
        backward: the same in reverse order, in which rows are walked back: a sentence begins with
            its last word (`starts`) and ends at the guard before its first (`guards`).
    """

    def __init__(self, sentences: Iterable[Sequence[str]]) -> None:
        self.bits: dict[str, list[int]] = {}
        ends, guards, bit = [], [0], 1
        for sentence in sentences:
            if sentence:
                for word in sentence:
                    self.bits.setdefault(word, []).append(bit)
                    bit += 1
                ends.append(bit - 1)
                guards.append(bit)
                bit += 1
        self.bytes = (bit + 7) // 8
        self.full = self.mask([b for places in self.bits.values() for b in places])
        self.backward = self.reverse(self.full)
        self.starts = self.reverse(self.mask(ends))
        self.guards = self.reverse(self.mask(guards))
        self._known: dict[str | None, tuple[int, int]] = {None: (0, 0)}

    def masks(self, word: str | None) -> tuple[int, int]:
        """Where a word stands, forwards and in reverse order."""
        pair = self._known.get(word)
        if pair is None:
            mask = self.mask(self.bits.get(word or "", ()))
            pair = mask, self.reverse(mask)
            if len(self._known) * self.bytes < STORED_BYTES:
                self._known[word] = pair
        return pair

    def mask(self, bits: Iterable[int]) -> int:
        """An integer with these bits set; linear in its size."""
        data = bytearray(self.bytes)
        for bit in bits:
            data[bit >> 3] |= 1 << (bit & 7)
        return int.from_bytes(data, "little")

    def reverse(self, row: int) -> int:
        """The same bits in reverse order."""
        return int.from_bytes(row.to_bytes(self.bytes, "little").translate(_REVERSED), "big")


def matches(row: Row, columns: Columns) -> list[int]:
    """Words of one longest common subsequence of `row` with every column sentence.

    Ties are broken as in the package ``rouge`` 1.0.1 with `row` as the first text: from the ends,
    equal words are taken; else the row moves back only if that keeps a longer subsequence than
    moving the column would.

    Returns:
        For each position of `row`, the columns (in reverse order) that it is matched with.
    """
    matched = [0] * len(row)
    if not columns.bits:
        return matched
    piece = max(1, STORED_BYTES // columns.bytes)
    before = _states_before(row, columns, piece)
    allowed = columns.backward
    for number in range(len(before) - 1, -1, -1):
        first = number * piece
        rows = _growth(row[first : first + piece], columns, before[number])
        allowed = _back(row, columns, rows, first, allowed, matched)
        if not allowed:
            break
    return matched


def _states_before(row: Row, columns: Columns, piece: int) -> list[int]:
    """The state before each piece of rows."""
    state, before = columns.full, []
    for first in range(0, len(row), piece):
        before.append(state)
        if first + piece < len(row):
            for state in _states(row[first : first + piece], columns, state):  # noqa: B007, B020
                pass
    return before


def _states(row: Row, columns: Columns, state: int) -> Iterator[int]:
    """Rows of the table, one after each word: 0 where the subsequence grows with that column."""
    full = columns.full
    for word in row:
        mask, _ = columns.masks(word)
        if mask:
            same = state & mask
            state = ((state + same) | (state - same)) & full
        yield state


def _growth(row: Row, columns: Columns, state: int) -> list[int]:
    """Rows in reverse order, 1 where the subsequence grows with that column."""
    rows, last, growth = [], -1, 0
    for current in _states(row, columns, state):
        if current != last:
            last, growth = current, columns.reverse(columns.full ^ current)
        rows.append(growth)
    return rows


def _back(
    row: Row, columns: Columns, rows: list[int], first: int, allowed: int, matches: list[int]
) -> int:
    """Walk back through some rows in all column sentences at once.

    `allowed` has the columns that each sentence has not passed yet. In every row each sentence
    goes to its nearest allowed column that grows or matches; after a match it goes one further.
    """
    full, guards, starts = columns.backward, columns.guards, columns.starts
    for i in range(len(rows) - 1, -1, -1):
        _, mask = columns.masks(row[first + i])
        candidates = (rows[i] | mask) & allowed
        # Subtracting 1 from every sentence clears its lowest candidate and fills what is below;
        # where there is none it fills the sentence and takes the guard.
        less = (candidates | guards) - starts
        others = candidates & less
        matched = (candidates ^ others) & mask
        allowed = full ^ ((less ^ others) & full) ^ matched
        matches[first + i] = matched
        if not allowed:
            break
    return allowed
