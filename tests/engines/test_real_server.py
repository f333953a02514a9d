"""Against `transformers serve`: the same completions as the hf engine, with and without faults."""

from __future__ import annotations

import json
import threading
import time

import pytest

from evalkit.run.store import RunStore
from tests.engagement.test_check import evalkit
from tests.paths import TINY_MODEL
from tests.servers.proxy import KINDS, FaultyProxy
from tests.servers.real import TransformersServe

pytestmark = pytest.mark.slow

TINY = TINY_MODEL
PATTERN = "FFSSFSFS"
RECIPE = """
model = "{model}"
[engine]
kind = "hf"
dtype = "float32"
max_batch = 1
prefill_chunk = 4096
[[tasks]]
kind = "needle"
lengths = [256]
depths = [0, 50, 100]
repeats = 4
haystacks = 4
value_digits = 4
key_adjectives = ["brave", "calm", "eager"]
key_nouns = ["apple", "arrow", "badge"]
max_new_tokens = 8
[[arms]]
name = "native"
"""


@pytest.fixture(scope="module")
def glm(tmp_path_factory):
    """A tiny GLM whose checkpoint shares layers by itself."""
    from tests.checkpoints import save

    types = ["full" if letter == "F" else "shared" for letter in PATTERN]
    directory = tmp_path_factory.mktemp("glm") / "glm"
    return whole_words(save(directory, "glm_moe_dsa", indexer_types=types))


def whole_words(directory):
    """Keep random weights from writing halves of characters: servers cannot stream those."""
    from safetensors.torch import load_file, save_file
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    weights = load_file(directory / "model.safetensors")
    for token in range(len(weights["lm_head.weight"])):
        if not tokenizer.decode([token]).isprintable() or "�" in tokenizer.decode([token]):
            weights["lm_head.weight"][token] = 0.0
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


@pytest.fixture(scope="module", params=["tiny", "glm"])
def served(request, tmp_path_factory):
    """(model directory, running server) for the shipped model and for the tiny GLM."""
    model = TINY if request.param == "tiny" else request.getfixturevalue("glm")
    log = tmp_path_factory.mktemp("serve") / "serve.log"
    with TransformersServe(model, log) as server:
        yield model, server


@pytest.fixture(scope="module")
def recipe(served, tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "recipe.toml"
    path.write_text(RECIPE.format(model=served[0]), encoding="utf-8")
    return path


def on(url, *more):
    """Options that send a recipe to a server."""
    given = ["engine.kind=openai_server", "engine.api=text", f'engine.urls=["{url}"]']
    given += ["engine.probe_prompts=1", "engine.probe_tokens=4", *more]
    return [word for setting in given for word in ("--set", setting)]


def texts(out):
    rows = RunStore(out).read_samples("native")
    return {i: (r.completion, r.finish_reason, r.error) for i, r in rows.items()}


@pytest.fixture(scope="module")
def by_hf(recipe, tmp_path_factory):
    out = tmp_path_factory.mktemp("hf") / "run"
    assert evalkit("run", recipe, "--out", out) == 0
    return texts(out)


@pytest.mark.parametrize("stream", ["false", "true"])
def test_the_same_completions_as_the_hf_engine(served, recipe, by_hf, tmp_path, stream):
    out = tmp_path / "run"
    assert evalkit("run", recipe, "--out", out, *on(served[1].url, f"engine.stream={stream}")) == 0
    assert texts(out) == by_hf
    assert len(by_hf) == 12
    entry = RunStore(out).read_run().arms[0]
    assert entry.stored["check"]["servers"][0]["kind"] == "transformers"
    assert entry.stored["engagement"] == {"verdict": "engaged"}


def test_a_schedule_that_this_server_cannot_run_is_refused(served, recipe, tmp_path, capsys):
    path = tmp_path / "recipe.toml"
    layers = (
        8
        if served[0] != TINY
        else json.loads((TINY / "config.json").read_text())["num_hidden_layers"]
    )
    path.write_text(
        recipe.read_text() + f'[[arms]]\nname = "sparse"\npattern = "{"F".ljust(layers, "S")}"\n'
    )
    assert evalkit("run", path, "--out", tmp_path / "run", *on(served[1].url)) == 2
    assert "arm sparse: not engaged" in capsys.readouterr().err
    assert RunStore(tmp_path / "run").read_samples("sparse") == {}


@pytest.mark.parametrize("stream", ["false", "true"])
def test_behind_a_proxy_with_every_fault_the_records_are_the_same(
    served, recipe, by_hf, tmp_path, stream
):
    kinds = tuple(kind for kind in KINDS if kind != "slow")  # a real timeout would take minutes
    with FaultyProxy(served[1].url, rate=0.3, kinds=kinds) as proxy:
        out = tmp_path / "run"
        settings = [f"engine.stream={stream}", "engine.backoff=0.05", "engine.max_requests=4"]
        assert evalkit("run", recipe, "--out", out, *on(proxy.url, *settings)) == 0
    assert texts(out) == by_hf
    assert proxy.faults.total() >= 3
    rows = (out / "arms" / "native" / "samples.jsonl").read_text().count("\n")
    assert rows == len(by_hf)  # no row was written twice


def test_two_servers_one_killed(served, recipe, by_hf, tmp_path):
    """The dead server's requests are answered by the other one."""
    model, first = served
    with TransformersServe(model, tmp_path / "second.log") as second:
        killer = threading.Thread(target=kill_soon, args=(tmp_path / "run", second))
        killer.start()
        urls = f'engine.urls=["{first.url}","{second.url}"]'
        settings = [urls, "engine.max_requests=2", "engine.backoff=0.05"]
        assert evalkit("run", recipe, "--out", tmp_path / "run", *on(first.url, *settings)) == 0
        killer.join()
        assert second.process.poll() is not None
    assert texts(tmp_path / "run") == by_hf


def kill_soon(out, server):
    """Kill a server as soon as the first answers are on disk."""
    path = out / "arms" / "native" / "samples.jsonl"
    until = time.monotonic() + 300
    while time.monotonic() < until and not (path.exists() and path.stat().st_size):
        time.sleep(0.02)
    server.kill()


def test_a_measurement_on_a_real_server(served, recipe, tmp_path, capsys):
    """Twice the same arm: a ratio near one, and no quality to go with it."""
    path, out = tmp_path / "recipe.toml", tmp_path / "run"
    load = "input_tokens = 48\noutput_tokens = 8\nrequests = 12\nconcurrency = 2\nwarmup = 1\n"
    load += "extra_body = {}\nresamples = 200\nmax_drift = 9.0\n"
    path.write_text(recipe.read_text() + f'[[arms]]\nname = "again"\n[bench]\n{load}')
    assert evalkit("bench", path, "--out", out, *on(served[1].url)) == 0
    assert "NOT EVALUATED" in capsys.readouterr().out
    arms = {arm["name"]: arm for arm in json.loads((out / "bench.json").read_text())["arms"]}
    assert arms["again"]["verdict"].endswith("; quality NOT EVALUATED")
    ratio = arms["again"]["ratios"]["whole"]
    assert 0.2 < ratio["value"] < 5
    assert ratio["low"] <= ratio["value"] <= ratio["high"]
    whole = arms["native"]["speed"]["measures"]["whole"]
    assert arms["native"]["speed"]["succeeded"] == whole["requests"] == 24
    assert 0 < whole["ttft"]["p50"] <= whole["ttft"]["p99"]
    assert whole["output_tokens"] <= 24 * 8
