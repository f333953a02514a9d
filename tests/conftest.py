"""Test-wide settings."""

from __future__ import annotations

import os

import hypothesis
import pytest

from evalkit.core import secrets

# One thread per worker: two workers with all threads each make a two-core machine crawl.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The suite needs no network; a test that reaches for the hub must fail, not wait.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A test that waits for the disk or for a busy machine is slow, not wrong.
hypothesis.settings.register_profile("evalkit", deadline=None)
hypothesis.settings.load_profile("evalkit")


@pytest.fixture(autouse=True)
def _no_secrets():
    """What one test tells the process is not searched for in the next."""
    yield
    secrets.forget()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """Directory of a random DeepSeek-V3.2 model (8 layers, index_topk 8) with a tokenizer."""
    from tests.checkpoints import save

    return save(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="session")
def paper_checkpoint(tmp_path_factory):
    """Directory with the configuration and tokenizer of such a model, without weights."""
    from tests.checkpoints import paper

    return paper(tmp_path_factory.mktemp("paper") / "model")
