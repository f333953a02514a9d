"""Two real vLLM servers for all tests of a session; the client runs in the project's environment.

Both serve the small model under the plugin. `lagging` (1/4, lag 1) reads the checkpoint's own chat
template and tells what its prefix cache gave; `full` renders chats by vLLM's code for DeepSeek.
"""

from __future__ import annotations

import json
import re
import urllib.request
from types import SimpleNamespace

import pytest

from evalkit.dsa import ReuseSchedule
from evalkit.run.store import RunStore
from tests.command import evalkit
from tests.paths import ROOT, TINY_MODEL
from tests.vllm_engine import small_model
from tests.vllm_engine.server import Server

PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
LAYERS = json.loads((TINY_MODEL / "config.json").read_text())["num_hidden_layers"]
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
ARMS = {"lagging": ("1/4", 1), "full": ("1", 0)}
FLAGS = {
    "lagging": ("--tokenizer-mode", "hf", "--enable-prompt-tokens-details"),
    "full": (),
}
RECIPE = """
model = "{model}"
[engine]
kind = "openai_server"
max_requests = 4
backoff = 0.2
probe_prompts = 1
probe_tokens = 4
[[tasks]]
kind = "needle"
lengths = [512]
depths = [0, 50, 100]
repeats = {repeats}
needles = 4
value_digits = 4
key_adjectives = "{words}/adjectives.txt"
key_nouns = "{words}/nouns.txt"
max_new_tokens = 16
"""
ARM = """
[[arms]]
name = "{name}"
retention = "{retention}"
lag = {lag}
[arms.server]
engine = "vllm-plugin"
enabled = true
ranks = 1
urls = ["{url}"]
"""


@pytest.fixture(scope="session")
def vllm(tmp_path_factory):
    """`model`, `servers` by name, and `recipe(path, arms, repeats)`, which writes one."""
    if not PYTHON.exists():
        pytest.skip("no vLLM here: make engines && make test-vllm")
    folder = tmp_path_factory.mktemp("vllm")
    model = small_model.save(folder / "model")
    config = model / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": TEMPLATE}))
    servers = {
        name: Server(
            model,
            str(ReuseSchedule.uniform(LAYERS, *ARMS[name])),
            folder / name,
            *("--max-model-len", "1024", *FLAGS[name]),
            dtype="float32",
            python=str(PYTHON),
        )
        for name in ARMS
    }

    def recipe(path, *arms, repeats=2, more=""):
        words = ROOT / "recipes" / "tiny" / "words"
        text = RECIPE.format(model=model, words=words, repeats=repeats) + more
        for arm in arms:
            retention, lag = ARMS[arm]
            text += ARM.format(name=arm, retention=retention, lag=lag, url=servers[arm].url)
        path.write_text(text, encoding="utf-8")
        return path

    try:
        for server in servers.values():
            server.wait()
        yield SimpleNamespace(model=model, servers=servers, recipe=recipe)
    finally:
        for server in servers.values():
            server.stop()


def run(recipe, out, *settings):
    """Exit code of `evalkit run` with settings of its own."""
    changes = [word for setting in settings for word in ("--set", setting)]
    return evalkit("run", recipe, "--out", out, *changes)


def rows(out, arm="lagging"):
    """Recorded answers by sample."""
    return RunStore(out).read_samples(arm)


def answered(out, arm="lagging"):
    """What was answered, how it ended and what was counted, by sample."""
    return {
        key: (row.completion, row.finish_reason, row.prompt_tokens, row.completion_tokens)
        for key, row in rows(out, arm).items()
    }


def totals(server):
    """Tokens of prompts, tokens of answers and requests that a server counted since its start."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as reply:
        text = reply.read().decode()
    names = ("prompt_tokens_total", "generation_tokens_total", "request_success_total")
    return [
        sum(float(v) for v in re.findall(rf"^vllm:{name}{{.*}} ([\d.e+]+)$", text, re.M))
        for name in names
    ]
