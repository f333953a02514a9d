"""The number of settings that were compared, printed at the end of the run."""

from __future__ import annotations

import pytest

COMPARED: dict[str, int] = {}


@pytest.fixture
def count():
    """Adds comparisons under the name of an engine and its version."""

    def add(name: str, number: int) -> None:
        COMPARED[name] = COMPARED.get(name, 0) + number

    return add


def pytest_terminal_summary(terminalreporter):
    if COMPARED:
        terminalreporter.section("settings compared with the engines' own rules")
        for name, number in COMPARED.items():
            terminalreporter.write_line(f"{name:<40} {number:>9,}")
