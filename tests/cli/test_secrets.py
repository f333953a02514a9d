"""Keys in every place where a recipe or a server can have one: none is written or printed."""

from __future__ import annotations

import json
import re
import tomllib

import pytest

from evalkit.core.console import run_command
from evalkit.core.errors import EvalkitError
from evalkit.core.secrets import hide
from evalkit.run.store import RunStore
from tests.command import evalkit
from tests.paths import ROOT
from tests.servers.fake import FakeServer, rule
from tests.servers.http import STREAM_END, STREAM_HEAD, chunk, response

PLACES = (
    *("source", "flag", "flag_equals", "flag_second", "environment", "body", "nested", "header"),
    *("query", "cookie", "server_info", "overrides", "log", "settings", "body_json", "bench_body"),
)
PLANTED = {place: f"sk-planted-{place.replace('_', '-')}-0123456789" for place in PLACES}

RECIPE = """
model = "{model}"
[engine]
kind = "openai_server"
stream = {stream}
backoff = 0.01
retries = 1
probe_prompts = 1
api_key_env = "EVAL_KEY"
urls = ["{url}/v1?key={query}"]
extra_body = {{ api_key = "{body}", lora = {{ auth = [{{ password = "{nested}" }}] }} }}
[[tasks]]
kind = "needle"
lengths = [256]
depths = [0, 50]
repeats = 4
max_new_tokens = 20
[[arms]]
name = "two"
[arms.server]
served_model = "tiny"
[[arms]]
name = "one"
[arms.server]
engine = "custom"
served_model = "tiny"
log = "{log_file}"
markers = ["marker"]
fallbacks = ["fallback"]
flags = [
  "--api-key", "{flag}", "{flag_second}", "--hf-token={flag_equals}", "--tp", "8",
  "--header", "Authorization: Bearer {header}", "--settings", '{{"session_secret": "{body_json}"}}',
]
environment = {{ HF_TOKEN = "{environment}", COOKIE = "session={cookie}; theme=dark" }}
[bench]
requests = 2
warmup = 0
rounds = 1
concurrency = 1
input_tokens = 8
output_tokens = 4
resamples = 100
extra_body = {{ token = "{bench_body}" }}
"""
ECHOED = [value for place, value in PLANTED.items() if place not in ("log", "settings")]


class Gossip(FakeServer):
    """A server that repeats all it knows, in answers and in errors of every kind."""

    count = 0

    async def handle(self, request, writer):
        path, _, query = request.path.partition("?")
        assert f"key={PLANTED['query']}" in query
        request.path = path
        if "config_format" in query:
            request.path += "?config_format=json"
        return await super().handle(request, writer)

    async def complete(self, path, body, writer):
        assert body["lora"]["auth"] == [{"password": PLANTED["nested"]}]
        said = " ".join(ECHOED)
        self.count += 1
        kind = self.count % 7
        error = {"error": {"message": f"bad \x1b]0;evil\x07 {said}", "api_key": said}}
        if len(body["prompt"]) < 40 or kind not in (1, 2, 3):  # bench, and half of the run
            await super().complete(path, body, writer)
        elif kind == 1 and body.get("stream"):
            writer.write(STREAM_HEAD)
            writer.write(chunk(f"data: {json.dumps(error)}\n\n".encode()) + STREAM_END)
        else:
            writer.write(response(error, {1: 200, 2: 503, 3: 400}[kind]))


def answer(prompt, most):
    return [*rule(prompt, most - 9), f" the key: {ECHOED[0]}", f" cut: {ECHOED[4][:-3]}"]


@pytest.fixture
def planted(request, tmp_path, paper_checkpoint, monkeypatch):
    monkeypatch.setenv("EVAL_KEY", PLANTED["source"])
    log = tmp_path / "server.log"
    log.write_text(
        f"server_args={{'model_path': 'x', 'api_key': '{PLANTED['log']}'}}\n"
        f"marker rank 0 --admin-api-key {PLANTED['log']}\n"
        f"fallback: Authorization: Bearer {PLANTED['log']}\n"
    )
    info = {
        "model_path": "m",
        "api_key": PLANTED["server_info"],
        "version": "0.5.19",
        "json_model_override_args": json.dumps({"hub_token": PLANTED["overrides"]}),
        "disaggregation_mode": f"--api-key {PLANTED['settings']}",
    }
    server = Gossip(
        key=PLANTED["source"], answer=answer, reports={"/server_info?config_format=json": info}
    )
    with server:
        recipe = tmp_path / "recipe.toml"
        facts = {
            "model": paper_checkpoint,
            "url": server.url,
            "log_file": log,
            "stream": getattr(request, "param", "false"),
        }
        recipe.write_text(RECIPE.format(**facts, **PLANTED))
        yield recipe, server


def assert_clean(text, where):
    found = [place for place, value in PLANTED.items() if value[:-4] in text]
    assert not found, (where, found)


@pytest.mark.parametrize("planted", ["false", "true"], ids=["whole", "stream"], indirect=True)
def test_no_planted_key_is_written_or_printed(planted, tmp_path, capfd):
    recipe, server = planted
    out = tmp_path / "out"
    for command in (
        ("run", recipe, "--out", out),
        ("run", recipe, "--out", out),  # what failed is tried again
        ("bench", recipe, "--out", out),
        ("score", out),
        ("compare", out),
        ("report", out),
        ("report", out, "--public"),
        ("export", "lm_eval", out, "--out", out / "lm_eval"),
        ("export", "model_card", out, "--out", out / "card"),
        ("check", "--recipe", recipe),
        ("check", f"{server.url}?key={PLANTED['query']}", "--recipe", recipe, "--arm", "one"),
    ):
        code = evalkit(*command)
        shown = "".join(capfd.readouterr())
        assert_clean(shown, command)
        assert "\x1b" not in shown
        assert code in (0, 2), (command, shown)

    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) > 15
    for path in files:
        assert_clean(path.read_bytes().decode("utf-8", "replace"), path)
    assert "\x1b" not in (out / "report.md").read_text()


def test_an_answer_without_its_key_says_so(planted, tmp_path):
    recipe, _ = planted
    evalkit("run", recipe, "--out", tmp_path / "out")
    store = RunStore(tmp_path / "out")
    rows = store.read_samples("two").values()
    good = [row for row in rows if not row.failed]
    assert good
    for row in good:
        assert row.redacted
        assert re.search(r"the key: \[key\] cut: \[key\]$", row.completion)
    flags = [row.flags for row in store.read_scores("two").values()]
    assert sum("redacted" in of for of in flags) == len(good)
    evalkit("compare", tmp_path / "out")
    assert "with a secret cut out of them" in (tmp_path / "out" / "report.md").read_text()
    launch = store.read_run().arm("one").stored["check"]["launch"]
    assert "--api-key '[key]' '[key]' '--hf-token=[key]' --tp 8" in launch


def test_another_key_is_not_another_run(planted, tmp_path, monkeypatch, capfd):
    recipe, server = planted
    evalkit("run", recipe, "--out", tmp_path / "out")
    other = recipe.read_text().replace(PLANTED["flag"], "sk-rotated-0123456789")
    recipe.write_text(other)
    server.key = "sk-rotated-source-0123456789"
    monkeypatch.setenv("EVAL_KEY", server.key)
    capfd.readouterr()
    evalkit("run", recipe, "--out", tmp_path / "out")
    assert "another run" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"EVAL_KEY"', '"hf_pasted0123456789"', "holds no API key"),
        ('"EVAL_KEY"', '"sk-pasted-0123456789"', "not a key"),
        ('api_key_env = "EVAL_KEY"', 'api_key_file = "sk-pasted-0123456789"', "API key file"),
        ("http://", "http://me:sk-pasted-0123456789@", "must not hold a user name"),
        ("http://", "me:sk-pasted-0123456789@", "is not an address"),
        ("extra_body = {", 'extra_body = "--api-key sk-pasted-0123456789" #', "extra_body"),
        ("extra_body = {", 'api_key = "sk-pasted-0123456789" #', "unknown key engine.api_key"),
    ],
)
def test_a_pasted_key_is_not_shown(planted, tmp_path, capfd, old, new, words):
    recipe, _ = planted
    text = recipe.read_text().replace(old, new, 1)
    recipe.write_text(re.sub(r"^.*extra_body = \{ api_key.*$", "", text, flags=re.M))
    if "extra_body" in new or "api_key =" in new:
        recipe.write_text(text)
    assert evalkit("run", recipe, "--out", tmp_path / "out") == 2
    shown = "".join(capfd.readouterr())
    assert words in shown
    assert shown.count("\n") == 1
    written = [p.read_text(errors="replace") for p in tmp_path.glob("out/**/*") if p.is_file()]
    for text in (shown, *written):
        assert "0123456789" not in text


def test_a_key_of_an_override_is_not_shown(planted, tmp_path, capfd):
    recipe, _ = planted
    change = 'arms.none.server.environment.HF_TOKEN="hf-0123456789"'
    assert evalkit("run", recipe, "--out", tmp_path / "out", "--set", change) == 2
    shown = "".join(capfd.readouterr())
    assert "no entry none" in shown
    assert "hf-0123456789" not in shown


def test_tracebacks_and_libraries_are_guarded(capfd):
    import sys
    import warnings

    from evalkit.core.secrets import learn

    learn({"api_key": PLANTED["source"]})

    def app():
        print(f"a library prints {PLANTED['source']}")
        warnings.warn(f"and warns of {PLANTED['source']}", stacklevel=1)
        raise RuntimeError(f"\x1b[31m{PLANTED['source']}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)
        with pytest.raises(RuntimeError) as caught:
            run_command("evalkit", app)
    sys.excepthook(caught.type, caught.value, caught.tb)
    shown = "".join(capfd.readouterr())
    assert "a library prints [key]" in shown
    assert "and warns of [key]" in shown
    assert r"RuntimeError: \x1b[31m[key]" in shown
    assert_clean(shown, "traceback")


def test_arms_with_control_characters_are_refused(planted, tmp_path, capfd):
    recipe, _ = planted
    recipe.write_text(recipe.read_text().replace('name = "two"', r'name = "\u001b[31mtwo"'))
    assert evalkit("run", recipe, "--out", tmp_path / "out") == 2
    shown = "".join(capfd.readouterr())
    assert "must not hold control characters" in shown
    assert "\x1b" not in shown
    assert shown.count("\n") == 1
    from evalkit.importers import import_predictions

    with pytest.raises(EvalkitError, match=r"--arm: .*control characters"):
        import_predictions("ruler", tmp_path, "a\u202eb", RunStore(tmp_path / "imported"))


def test_a_server_that_tells_its_own_keys(capfd):
    settings = f"--api-key {PLANTED['settings']} \x1b[31m"
    info = {
        "model_path": "m\x1b]0;evil\x07",
        "api_key": PLANTED["server_info"],
        "version": "0.5.19",
        "json_model_override_args": json.dumps({"hub_token": PLANTED["overrides"]}),
        "disaggregation_mode": settings,
    }
    with FakeServer(reports={"/server_info?config_format=json": info}) as server:
        assert evalkit("check", server.url) == 0
        assert evalkit("check", server.url.replace("//", "//me:sk-planted-user-0123456789@")) == 2
    shown = "".join(capfd.readouterr())
    assert "{'hub_token': '[key]'}" in shown
    assert r"disaggregation_mode = --api-key [key] \x1b[31m" in shown
    assert r"m\x1b]0;evil\x07" in shown
    assert "sk-planted" not in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").rglob("*.toml")), ids=str)
def test_shipped_recipes_hold_nothing_that_looks_like_a_secret(path):
    recipe = tomllib.loads(path.read_text(encoding="utf-8"))
    assert json.dumps(hide(recipe)) == json.dumps(recipe)
