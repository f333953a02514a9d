"""The openai_server engine against a server in this process, with and without faults."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time

import pytest

from evalkit.config.arm import ArmConfig
from evalkit.config.run import RunConfig
from evalkit.config.server import OpenAIServerConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.core.types import Sample
from evalkit.engines import open_engine
from evalkit.engines.openai.api_keys import Key, is_loopback, read_key
from evalkit.engines.openai.engine import OpenAIServerEngine
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import load_tokenizer
from tests.servers.fake import FakeServer, rule
from tests.servers.proxy import KINDS, FaultyProxy

ARM = ArmConfig(name="arm")
# Patient: on a busy machine a sound reply may be late, and lateness counts as a failure.
FAST = {"backoff": 0.01, "timeout": 1.5, "timeout_per_1k_tokens": 0.0, "retries": 40}


@pytest.fixture(scope="module")
def tokenizer(paper_checkpoint):
    return load_tokenizer(paper_checkpoint)


@pytest.fixture(scope="module")
def prompts(tokenizer):
    render = ChatRenderer(tokenizer).render
    return [
        render(Sample(f"s/{i}", "s", f"question {i} " * (1 + i % 5), ("x",), "none", 5))
        for i in range(40)
    ]


def loaded(paper_checkpoint, *urls, **options):
    engine = OpenAIServerEngine(OpenAIServerConfig(urls=urls, **(FAST | options)))
    engine.load(str(paper_checkpoint))
    return engine


def answers(engine, prompts, arm=ARM, done=()):
    return {c.sample_id: c for batch in engine.answer(arm, None, prompts, done) for c in batch}


def facts(completions):
    return {
        i: (c.text, c.finish_reason, c.prompt_tokens, c.completion_tokens, c.error)
        for i, c in completions.items()
    }


def expected(prompts):
    return {p.sample.id: "".join(rule(list(p.token_ids), 5)) for p in prompts}


@pytest.mark.parametrize("stream", [False, True])
def test_token_ids_go_out_and_answers_come_back(paper_checkpoint, prompts, stream):
    with FakeServer() as server:
        completions = answers(loaded(paper_checkpoint, server.url, stream=stream), prompts)
    assert {i: c.text for i, c in completions.items()} == expected(prompts)
    by_id = {p.sample.id: p for p in prompts}
    for sample_id, completion in completions.items():
        assert completion.prompt_tokens == len(by_id[sample_id].token_ids)
        reason = "length" if completion.completion_tokens == 5 else "stop"
        assert completion.finish_reason == reason
        assert completion.error is None
        assert completion.seconds > 0
    # Requests go out side by side: which one arrives first is open.
    sent = {tuple(body["prompt"]) for body in server.seen}
    assert sent == {tuple(p.token_ids) for p in prompts}
    for body in server.seen:
        assert (body["max_tokens"], body["temperature"], body["model"]) == (5, 0.0, "tiny")


def test_done_samples_are_not_asked_again(paper_checkpoint, prompts):
    with FakeServer() as server:
        completions = answers(loaded(paper_checkpoint, server.url), prompts, done={"s/3", "s/4"})
    assert set(completions) == {p.sample.id for p in prompts} - {"s/3", "s/4"}
    assert len(server.seen) == len(prompts) - 2


@pytest.mark.parametrize(
    ("stream", "done_event"),
    [
        (True, True),
        (False, True),
        pytest.param(True, False, marks=pytest.mark.slow),
        pytest.param(False, False, marks=pytest.mark.slow),
    ],
)
def test_every_fault_is_healed_and_the_records_are_those_of_a_clean_run(
    paper_checkpoint, prompts, stream, done_event
):
    with FakeServer(done_event=done_event) as server:
        clean = answers(loaded(paper_checkpoint, server.url, stream=stream), prompts)
        with FaultyProxy(server.url, rate=0.38) as proxy:
            engine = loaded(paper_checkpoint, proxy.url, stream=stream, max_requests=8)
            broken = answers(engine, prompts)
    assert facts(broken) == facts(clean)
    assert set(proxy.faults) == set(KINDS)
    assert proxy.faults.total() > 0.2 * (proxy.faults.total() + proxy.passed)


def test_a_server_that_answers_nothing_stops_the_run_and_the_next_one_goes_on(
    paper_checkpoint, prompts
):
    with FakeServer() as server, FaultyProxy(server.url, rate=1.0, kinds=("503",)) as proxy:
        problem = r"does not answer: given up after 3 tries: 503: try again; asked 'Hello'"
        with pytest.raises(EvalkitError, match=problem):
            answers(loaded(paper_checkpoint, proxy.url, retries=2), prompts[:3])
        proxy.rate = 0.0
        again = answers(loaded(paper_checkpoint, proxy.url, retries=2), prompts[:3])
    assert {i: c.text for i, c in again.items()} == expected(prompts[:3])


def test_tokens_in_flight_are_limited_and_long_prompts_still_go(paper_checkpoint, prompts):
    size = max(len(p.token_ids) + 5 for p in prompts)
    with FakeServer(delay=0.02) as server:
        limit = int(2.5 * size)
        answers(
            loaded(paper_checkpoint, server.url, max_tokens_in_flight=limit, timeout=9),
            prompts,
        )
        assert server.most["tokens"] <= limit
        assert server.most["requests"] > 2
    with FakeServer(delay=0.01) as server:  # a limit below one prompt: one at a time
        completions = answers(
            loaded(paper_checkpoint, server.url, max_tokens_in_flight=1, timeout=9), prompts
        )
        assert len(completions) == len(prompts)
        assert server.most["requests"] == 1
    with FakeServer(delay=0.02) as server:
        answers(loaded(paper_checkpoint, server.url, max_requests=3, timeout=9), prompts)
        assert server.most["requests"] == 3


def test_two_servers_share_and_a_dead_one_is_left_out(paper_checkpoint, prompts):
    with FakeServer(delay=0.05) as one, FakeServer(delay=0.05) as two:
        engine = loaded(paper_checkpoint, one.url, two.url, max_requests=4)
        half = answers(engine, prompts)
        assert min(len(one.seen), len(two.seen)) >= len(prompts) // 4
        killer = threading.Timer(0.08, two.kill)
        killer.start()
        before = len(one.seen)
        whole = answers(engine, prompts)
        killer.join()
    assert facts(whole) == facts(half)
    assert len(one.seen) - before > len(prompts) // 2


def test_a_server_that_restarts_is_waited_for(paper_checkpoint, prompts):
    with FakeServer(delay=0.02) as server:
        engine = loaded(paper_checkpoint, server.url, max_requests=4)
        threading.Timer(0.05, server.kill).start()
        threading.Timer(0.6, server.revive).start()
        completions = answers(engine, prompts)
    assert {i: c.text for i, c in completions.items()} == expected(prompts)


def test_text_is_what_the_server_turns_into_the_same_tokens(paper_checkpoint, prompts, tokenizer):
    with FakeServer(takes_ids=False, tokenizer=tokenizer) as server:
        completions = answers(loaded(paper_checkpoint, server.url, api="text"), prompts)
        assert not any(c.error for c in completions.values())
        assert {body["prompt"] for body in server.seen} == {p.text for p in prompts}


class DoubleBos:
    """A server's tokenizer that adds one token too many."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def encode(self, text, **options):
        return [1, *self.tokenizer.encode(text, **options)]


def test_a_second_bos_is_noticed(paper_checkpoint, prompts, tokenizer):
    with FakeServer(takes_ids=False, tokenizer=DoubleBos(tokenizer)) as server:
        with pytest.raises(EvalkitError, match=r"the server read \d+ tokens .* second BOS"):
            answers(loaded(paper_checkpoint, server.url, api="text"), prompts)


def test_a_bos_in_the_text_is_left_to_the_server(paper_checkpoint, prompts, tokenizer):
    from dataclasses import replace

    from evalkit.engines.openai.wire import Wire

    wire = Wire(OpenAIServerConfig(api="text"), tokenizer)
    plain = prompts[0]
    ids = tuple(tokenizer.encode(plain.text))
    if tokenizer.bos_token_id is None or ids[0] != tokenizer.bos_token_id:
        pytest.skip("this tokenizer adds no BOS")
    printed = replace(plain, text=tokenizer.bos_token + plain.text, token_ids=ids)
    assert wire.body(printed, "m")["prompt"] == plain.text


def test_ids_to_a_server_that_takes_text_only_is_said_at_once(paper_checkpoint, prompts):
    with FakeServer(takes_ids=False) as server:
        with pytest.raises(EvalkitError, match=r"rejects every request: 400.*must be a string"):
            answers(loaded(paper_checkpoint, server.url), prompts)
    assert len(server.seen) <= 2 * len(prompts)


def test_chat_with_the_exemption_of_a_task(paper_checkpoint, tokenizer):
    render = ChatRenderer(tokenizer).render
    asked = render(Sample("s/0", "s", "hello", ("x",), "none", 5))
    exempt = render(Sample("s/1", "s", "hello", ("x",), "none", 5, chat=False))
    begun = render(Sample("s/2", "s", "hello", ("x",), "none", 5, answer_prefix=" The answer"))
    with FakeServer(tokenizer=tokenizer) as server:
        engine = loaded(paper_checkpoint, server.url, api="chat", max_requests=1)
        completions = answers(engine, [asked, exempt, begun])
        assert len(completions) == 3
        assert server.paths["/v1/chat/completions"] == 2 + 3  # three ask how turns are continued
        assert server.seen[0]["messages"] == [{"role": "user", "content": "hello"}]
        assert server.seen[1]["prompt"] == exempt.text
        assert server.seen[-1]["messages"][1] == {"role": "assistant", "content": " The answer"}
        assert server.seen[-1]["continue_final_message"] is True
        engine = loaded(paper_checkpoint, server.url, api="chat", chat_prefix="user")
        answers(engine, [begun])
        assert server.seen[-1]["messages"] == [{"role": "user", "content": "hello The answer"}]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_read_from_either_field(paper_checkpoint, tokenizer, field, stream):
    prompt = ChatRenderer(tokenizer).render(Sample("s/0", "s", "hello", ("x",), "none", 5))
    with FakeServer(tokenizer=tokenizer, reasoning=(field, "so and so")) as server:
        engine = loaded(paper_checkpoint, server.url, api="chat", stream=stream)
        text = answers(engine, [prompt])["s/0"].text
    assert text.startswith("<think>so and so</think> w")


def test_stop_strings_are_cut_where_the_server_left_them(paper_checkpoint, tokenizer):
    sample = Sample("s/0", "s", "hello", ("x",), "none", 5, stop=("STOP",))
    prompt = ChatRenderer(tokenizer).render(sample)
    with FakeServer(answer=lambda *_: [" a", " STOP", " b", " c", " d"]) as server:
        completions = answers(loaded(paper_checkpoint, server.url), [prompt])["s/0"]
    assert (completions.text, completions.finish_reason) == (" a ", "stop")
    assert server.seen[0]["stop"] == ["STOP"]


def test_the_answers_budget_holds_behind_reasoning(paper_checkpoint, tokenizer):
    from evalkit.config.run import PromptConfig

    render = ChatRenderer(tokenizer, PromptConfig(reasoning_tokens=20)).render
    prompt = render(Sample("s/0", "s", "hello", ("x",), "none", 2))
    pieces = ["<think>", " a", " b", "</think>", " is", " the", " is", " the"]
    with FakeServer(answer=lambda *_: pieces) as server:
        completions = answers(loaded(paper_checkpoint, server.url), [prompt])["s/0"]
        assert server.seen[0]["max_tokens"] == 22
    answer = completions.text.partition("</think>")[2]
    assert len(tokenizer.encode(answer, add_special_tokens=False)) == 2
    assert completions.finish_reason == "length"


def test_over_long_prompts_are_rows_and_stop_nothing(paper_checkpoint, prompts):
    with FakeServer() as server:
        original = server.complete

        async def complete(path, body, writer):
            if len(body["prompt"]) > 20:
                from tests.servers.http import response

                message = "This model's maximum context length is 20 tokens"
                writer.write(response({"error": {"message": message}}, 400))
            else:
                await original(path, body, writer)

        server.complete = complete
        completions = answers(loaded(paper_checkpoint, server.url), prompts)
    long = [p.sample.id for p in prompts if len(p.token_ids) > 20]
    assert len(long) > 3
    assert {i for i, c in completions.items() if c.error} == set(long)
    assert "maximum context length" in completions[long[0]].error


# -- keys and addresses -------------------------------------------------------------------------

SECRET = "sk-very-secret-0123456789"


def test_the_key_goes_out_and_is_never_shown(
    paper_checkpoint, prompts, monkeypatch, tmp_path, caplog
):
    monkeypatch.setenv("EVAL_KEY", SECRET)
    caplog.set_level(logging.DEBUG)
    with FakeServer(key=SECRET) as server:
        engine = loaded(paper_checkpoint, server.url, api_key_env="EVAL_KEY")
        assert not any(c.error for c in answers(engine, prompts[:3]).values())
        assert (
            SECRET
            not in repr(engine.key) + repr(engine.config) + str(vars(engine)) + f"{engine.key}"
        )
        wrong = tmp_path / "key"
        wrong.write_text("sk-wrong-987\n")
        engine = loaded(paper_checkpoint, server.url, api_key_file=str(wrong))
        with pytest.raises(EvalkitError, match="401") as caught:
            answers(engine, prompts[:3])
        # The server echoes the key it refused; neither message nor chain may hold it.
        shown = []
        error = caught.value
        while error is not None:
            shown.append(str(error) + repr(error))
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        assert "sk-wrong" not in "".join(shown)
        assert "[key]" in shown[0]
    assert SECRET not in caplog.text
    assert "sk-wrong" not in caplog.text


def test_keys_are_named_not_given(monkeypatch, tmp_path):
    recipe = {"model": "x/y", "tasks": [{"kind": "needle"}], "arms": [{"name": "a"}]}
    recipe["engine"] = {"kind": "openai_server", "api_key_env": SECRET}
    with pytest.raises(EvalkitError) as caught:
        parse(recipe, RunConfig, "recipe")
    assert "name of an environment variable" in str(caught.value)
    assert SECRET not in str(caught.value)
    monkeypatch.delenv("NO_KEY", raising=False)
    with pytest.raises(EvalkitError, match="NO_KEY holds no API key"):
        read_key("NO_KEY", None)
    empty = tmp_path / "empty"
    empty.write_text("\n")
    with pytest.raises(EvalkitError, match="must hold one key"):
        read_key(None, str(empty))
    with pytest.raises(EvalkitError, match="API key file"):
        read_key(None, str(tmp_path / "none"))
    assert not read_key(None, None)
    assert Key("abc").scrub("x abc y") == "x [key] y"


def test_addresses_with_passwords_and_nonsense_are_refused():
    for url, words in (
        ("http://me:pw@host:1", "must not hold a user name"),
        ("host:8000", "is not an address"),
        ("ftp://host", "is not an address"),
    ):
        with pytest.raises(ValueError, match=words):
            OpenAIServerConfig(urls=(url,))


def test_plain_http_to_another_machine_warns(caplog):
    from evalkit.engines.openai.api_keys import warn_plain_http

    warn_plain_http("http://127.0.0.1:1", Key("k"))
    warn_plain_http("http://localhost:1", Key("k"))
    warn_plain_http("https://example.org", Key("k"))
    assert caplog.text == ""
    warn_plain_http("http://10.0.0.7:8000", Key("k"))
    assert "plain http to another machine: prompts and the API key travel" in caplog.text
    assert is_loopback("http://[::1]:80")
    assert not is_loopback("http://example.org")


# -- Ctrl-C, models, settings -------------------------------------------------------------------


@pytest.fixture
def interruptible():
    """Ctrl-C as in a terminal: a shell that runs the tests in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_hands_out_what_had_come(paper_checkpoint, prompts, interruptible):
    with FakeServer(delay=0.5) as server:
        engine = loaded(paper_checkpoint, server.url, max_requests=4, timeout=9)
        stream = engine.answer(ARM, None, prompts, ())
        completions = [c.sample_id for c in next(stream)]
        threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            while True:
                completions += [c.sample_id for c in next(stream)]
        assert 4 <= len(completions) < len(prompts)
        assert len(completions) == len(set(completions))
        time.sleep(0.1)
        asked = len(server.seen)
        time.sleep(0.2)
        assert len(server.seen) == asked  # nothing goes on behind our back
        rest = answers(engine, prompts, done=completions)
    assert set(rest) == {p.sample.id for p in prompts} - set(completions)


def test_several_models_need_a_choice(paper_checkpoint, prompts):
    models = {"data": [{"id": "a"}, {"id": "tiny"}]}
    with FakeServer(reports={"/v1/models": models}) as server:
        with pytest.raises(EvalkitError, match=r"lists 2 models .a, tiny.: set served_model"):
            answers(loaded(paper_checkpoint, server.url), prompts[:2])
        completions = answers(
            loaded(paper_checkpoint, server.url, served_model="tiny"), prompts[:2]
        )
        assert not any(c.error for c in completions.values())
        with pytest.raises(EvalkitError, match="404"):
            answers(loaded(paper_checkpoint, server.url, served_model="b"), prompts[:2])


def test_a_list_of_models_that_is_missing_is_said(paper_checkpoint, prompts):
    with FakeServer(reports={"/v1/models": None}) as server:
        with pytest.raises(EvalkitError, match="list of models: 404: Not Found"):
            answers(loaded(paper_checkpoint, server.url), prompts[:2])


def test_an_arm_names_its_own_servers(paper_checkpoint, prompts):
    with FakeServer() as common, FakeServer() as arm_server:
        engine = loaded(paper_checkpoint, common.url)
        arm = ArmConfig(name="own", server={"urls": [arm_server.url]})
        answers(engine, prompts[:3], arm)
        assert (len(common.seen), len(arm_server.seen)) == (0, 3)
    with pytest.raises(EvalkitError, match="arm arm: no server"):
        answers(loaded(paper_checkpoint), prompts[:1])


def test_extra_fields_go_with_every_request(paper_checkpoint, prompts):
    with FakeServer() as server:
        answers(loaded(paper_checkpoint, server.url, extra_body={"ignore_eos": True}), prompts[:2])
        assert all(body["ignore_eos"] is True for body in server.seen)


def test_open_engine_knows_it():
    assert isinstance(open_engine(OpenAIServerConfig()), OpenAIServerEngine)


def test_timeouts_grow_with_the_prompt(paper_checkpoint, prompts):
    from evalkit.engines.openai.wire import Wire

    wire = Wire(OpenAIServerConfig(timeout=10, timeout_per_1k_tokens=100), None)
    short, long = prompts[0], prompts[4]
    assert wire.seconds(short) == pytest.approx(10 + 0.1 * (len(short.token_ids) + 5))
    assert wire.seconds(long) > wire.seconds(short)


def test_settings_are_json_for_the_records():
    text = OpenAIServerConfig(api_key_env="EVAL_KEY").model_dump(mode="json")
    assert json.loads(json.dumps(text))["api_key_env"] == "EVAL_KEY"


def test_proxies_of_the_environment_are_used_except_where_they_are_not_wanted(monkeypatch):
    from evalkit.engines.openai.client import _proxy

    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert _proxy("http://10.0.0.7:8000/v1") is None
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1,internal")
    assert _proxy("http://10.0.0.7:8000/v1") == "http://proxy:3128"
    assert _proxy("http://127.0.0.1:8000/v1") is None
    assert _proxy("http://internal:8000/v1") is None
    assert _proxy("https://10.0.0.7/v1") is None
