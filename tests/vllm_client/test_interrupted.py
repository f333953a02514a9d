"""A real vLLM that is killed while requests are in flight, and started again."""

from __future__ import annotations

import threading
import time

import pytest

from tests.vllm_client.conftest import answered, rows, run, totals

pytestmark = pytest.mark.vllm

ARM = "full"
SETTINGS = ("engine.probe_prompts=0", "engine.max_requests=2")
IN_VAIN = ("engine.retries=1", "engine.backoff=0.05")
PATIENT = ("engine.retries=400", "engine.backoff=1.0")


@pytest.fixture(scope="module")
def recipe(vllm, tmp_path_factory):
    return vllm.recipe(tmp_path_factory.mktemp("recipe") / "recipe.toml", ARM, repeats=4)


@pytest.fixture(scope="module")
def undisturbed(recipe, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    assert run(recipe, out, *SETTINGS) == 0
    assert len(answered(out, ARM)) == 12
    return answered(out, ARM)


def kill_soon(out, server, then=lambda: None):
    """A thread that kills the server as soon as the first answers are on disk."""
    path = out / "arms" / ARM / "samples.jsonl"

    def watch():
        until = time.monotonic() + 300
        while time.monotonic() < until and not (path.exists() and path.stat().st_size):
            time.sleep(0.02)
        server.kill()
        then()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def lines(out):
    return (out / "arms" / ARM / "samples.jsonl").read_text().splitlines()


def test_a_run_that_lost_its_server_goes_on_where_it_was(
    vllm, recipe, undisturbed, tmp_path, capsys
):
    server = vllm.servers[ARM]
    killer = kill_soon(tmp_path / "run", server)
    assert run(recipe, tmp_path / "run", *SETTINGS, *IN_VAIN) == 2
    killer.join()
    assert "does not answer" in capsys.readouterr().err
    before = lines(tmp_path / "run")
    # What was in flight while another answer came is an error row, which the next run asks again.
    lost = [row for row in rows(tmp_path / "run", ARM).values() if row.error is not None]
    answers = len(before) - len(lost)
    assert 0 < answers < 12
    assert len(lost) <= 2
    server.start()
    server.wait()
    assert run(recipe, tmp_path / "run", *SETTINGS) == 0
    assert lines(tmp_path / "run")[: len(before)] == before
    assert len(lines(tmp_path / "run")) == 12 + len(lost)
    assert answered(tmp_path / "run", ARM) == undisturbed
    assert totals(server)[2] == 12 - answers  # nothing that was answered was asked again


def test_a_run_waits_for_a_server_that_comes_back(vllm, recipe, undisturbed, tmp_path):
    server = vllm.servers[ARM]
    killer = kill_soon(tmp_path / "run", server, then=server.start)
    assert run(recipe, tmp_path / "run", *SETTINGS, *PATIENT) == 0
    killer.join()
    assert answered(tmp_path / "run", ARM) == undisturbed
    assert len(lines(tmp_path / "run")) == 12
    assert 0 < totals(server)[2] < 12  # the rest was answered before
