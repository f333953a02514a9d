"""Imports as on a machine that has fetched nothing."""

import pytest

from evalkit.importers.common import clusters, gold
from evalkit.run.store import RunStore


@pytest.fixture(autouse=True)
def nothing_pinned(monkeypatch):
    monkeypatch.setattr(clusters, "pinned_file", lambda _: None)
    monkeypatch.setattr(gold, "pinned_file", lambda _: None)
    monkeypatch.setattr(clusters, "_has_documents", lambda: False)


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "run")
