"""Fixtures of the task tests: renderers, RULER wording, and what lies outside the repository."""

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.data.sources import LONG_CONTEXT_EVAL, locate
from tests.paths import SHARED
from tests.tasks.fakes import FakeRenderer, own_specs


@pytest.fixture
def renderer():
    return FakeRenderer()


@pytest.fixture
def own_wording(monkeypatch):
    """RULER tasks in our own words: no download."""
    monkeypatch.setattr("evalkit.tasks.ruler.task.specs", own_specs)


@pytest.fixture(scope="session")
def official():
    """The pinned wheel; skips where it is neither cached nor to be had."""
    try:
        return locate(LONG_CONTEXT_EVAL)
    except EvalkitError:
        pytest.skip(f"needs {LONG_CONTEXT_EVAL.file}: neither cached nor to be fetched")


@pytest.fixture(scope="session")
def shared():
    if not SHARED.is_dir():
        pytest.skip("needs ../shared, which is not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def tiny_renderer(shared):
    """The tokenizer of the small prototype model: digits one by one, words whole."""
    transformers = pytest.importorskip("transformers")
    folder = shared / "models" / "prototype_c"
    return FakeRenderer(transformers.AutoTokenizer.from_pretrained(folder))
