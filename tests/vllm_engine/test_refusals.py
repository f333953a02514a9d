"""What does not fit ends vLLM's start with one line, on real vLLM."""

from __future__ import annotations

import pytest

from tests.vllm_engine import start
from tests.vllm_engine.model import C4

pytestmark = pytest.mark.vllm


@pytest.fixture
def arguments(llm, v4, monkeypatch):
    """Engine arguments as a server makes them, under a schedule of the environment."""
    from vllm import EngineArgs

    from evalkit.vllm_plugin.plugin import register

    def make(text, **options):
        monkeypatch.setenv("EVALKIT_SCHEDULE", text)
        register()
        return EngineArgs(
            model=str(v4), skip_tokenizer_init=True, enforce_eager=True, **options
        ).create_engine_config()

    yield make
    monkeypatch.undo()  # the schedule of the session's engine is back
    register()


def refused(run):
    with pytest.raises(SystemExit) as stopped:
        run()
    text = str(stopped.value)
    assert text.startswith("evalkit: ")
    assert "\n" not in text
    return text


def test_what_fits_is_noted_in_the_configuration(arguments):
    config = arguments("FSFSF lag=1")
    noted = "FSFSF lag=1 layers=" + ",".join(map(str, C4))
    assert config.additional_config["evalkit_schedule"] == noted


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SFFFF", "the first layer must be full"),
        ("FSFF sources=0,1,1,2", "which does not run its indexer"),
        ("FFFF", "the model has its 5 indexers in layers 1,2,4,5,6"),
    ],
)
def test_schedules_that_cannot_be(arguments, text, says):
    assert says in refused(lambda: arguments(text))


def test_a_pipeline_cut(arguments):
    run = lambda: arguments("FSSSS", pipeline_parallel_size=2)  # noqa: E731
    assert "a pipeline stage begins between them" in refused(run)


def test_an_unknown_release(arguments, monkeypatch):
    import vllm

    monkeypatch.setattr(vllm, "__version__", "0.31.0")
    text = refused(lambda: arguments("FFFFF"))
    assert "vLLM 0.31.0 is not known to this plugin (known: 0.32.0, 0.33.0)" in text


def test_a_changed_release(arguments, monkeypatch, tmp_path):
    import vllm

    monkeypatch.setattr(vllm, "__file__", str(tmp_path / "__init__.py"))
    assert "is not the release" in refused(lambda: arguments("FFFFF"))


def test_start_variables_are_those_of_a_server():
    assert "EVALKIT_SCHEDULE" not in start.ENVIRONMENT
