"""One vLLM for all tests of a session; skipped with the reason where it is not installed."""

from __future__ import annotations

from importlib.metadata import entry_points
from importlib.util import find_spec

import pytest

from tests.vllm_engine import start

if find_spec("vllm") is not None:
    start.prepare()  # Triton reads its variable when it is imported, by whomever

from tests.vllm_engine import model


@pytest.fixture(scope="session")
def v4(tmp_path_factory):
    """Directory of the random DeepSeek-V4."""
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed here: make engines && make test-vllm")
    return model.save(tmp_path_factory.mktemp("v4"))


@pytest.fixture(scope="session")
def llm(v4):
    """Started as a server is, with every layer full: the plugin comes by its entry point."""
    if not entry_points(group="vllm.general_plugins", name="evalkit"):
        pytest.skip("the plugin is not installed beside vLLM: pip install ./packaging/vllm")
    patch = pytest.MonkeyPatch()
    patch.setenv("EVALKIT_SCHEDULE", "F" * len(model.C4))
    yield start.engine(v4)
    patch.undo()


@pytest.fixture(scope="session")
def recorder(llm):
    """Records what the loaded model's layers write and read."""
    from tests.vllm_engine.recording import Recorder

    return Recorder(start.model_of(llm))
