"""Every row of the table of replies, against a server that misbehaves so."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from evalkit.config.run import ScoringConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.records import ItemRow
from evalkit.core.types import Sample
from evalkit.engines.openai.replies import (
    BROKEN_OFF,
    CUT,
    RULES,
    STOPPED,
    TOOLS,
    Refused,
    Rejected,
    Retry,
    Seen,
    ending,
    failure,
    retry_after,
    rule_for,
)
from evalkit.engines.openai.reply_body import (
    Reply,
    error_inside,
    parsed,
    read_piece,
    read_whole,
    words_of,
)
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import load_tokenizer
from evalkit.run.scoring import score_row
from evalkit.run.store import sample_row
from tests.engines.test_openai import answers, loaded
from tests.servers.misbehaving import Misbehaving, answered, choice, events

WAYS = list(itertools.product(["text", "chat"], [False, True]))
ways = pytest.mark.parametrize(("api", "stream"), WAYS)


@pytest.fixture(scope="module")
def tokenizer(paper_checkpoint):
    return load_tokenizer(paper_checkpoint)


@pytest.fixture(scope="module")
def ask(paper_checkpoint, tokenizer):
    """Ask for a prompt that the server answers badly, then for one that it answers well."""
    render = ChatRenderer(tokenizer).render
    bad = render(Sample("bad", "s", "BAD question", ("x",), "none", 5))
    good = render(Sample("good", "s", "good question", ("x",), "none", 5))

    def asked(answer, api="text", stream=False, prompts=(bad, good), **options):
        options = {"max_requests": 1, "retries": 3} | options
        with Misbehaving(answer) as server:
            engine = loaded(paper_checkpoint, server.url, api=api, stream=stream, **options)
            return answers(engine, prompts), [json.dumps(body) for body in server.seen]

    asked.bad, asked.good = bad, good
    return asked


def error(status, message="no", **more):
    """A reply with an error status."""

    async def answer(request, body):
        return web.json_response({"error": {"message": message, **more}}, status=status)

    return answer


def ended(finish, content="said"):
    async def answer(request, body):
        return await answered(request, body, content, finish)

    return answer


def raw(text, content_type="application/json"):
    async def answer(request, body):
        if body.get("stream"):
            return await events(request, text)
        return web.Response(text=text, content_type=content_type)

    return answer


async def dropped(request, body):
    request.transport.abort()
    return web.Response()


@dataclass(frozen=True)
class Case:
    """What the server does, as the rules see it, and what the error says where there is one."""

    seen: Seen
    answer: Callable[..., Any]
    says: str = ""


LONG = "This model's maximum context length is 20 tokens"
CASES = {
    "dropped": Case(Seen(0), dropped),
    "not JSON": Case(Seen(200), raw("<html>Bad gateway</html>")),
    "nested": Case(Seen(200), raw("[" * 100_000)),
    "not an object": Case(Seen(200), raw("[1, 2]")),
    "no choices": Case(Seen(200), raw('{"id": "x", "choices": []}')),
    "no finish reason": Case(Seen(200), ended(None)),
    "a number for content": Case(Seen(200), ended("stop", 7)),
    **{name: Case(Seen(200, name), ended(name)) for name in sorted(STOPPED | CUT | BROKEN_OFF)},
    "Stop": Case(Seen(200, "stop"), ended("Stop")),
    "content_filter": Case(Seen(200, "content_filter"), ended("content_filter"), "content filter"),
    **{name: Case(Seen(200, name), ended(name, None), "tool parser") for name in sorted(TOOLS)},
    "strange": Case(Seen(200, "strange"), ended("strange"), "ended the answer: strange"),
    "too long": Case(Seen(400, words=LONG.lower()), error(400, LONG), "over-length: 400"),
    "too large": Case(Seen(413), error(413), "over-length: 413"),
    "too long for 500": Case(Seen(500, words=LONG.lower()), error(500, LONG), "over-length: 500"),
    "content policy": Case(
        Seen(400, words="content_policy_violation no"),
        error(400, code="content_policy_violation"),
        "refused for its content",
    ),
    "flagged": Case(Seen(403, words="input was flagged"), error(403, "input was flagged")),
    "wrong key": Case(Seen(401), error(401, "wrong key"), "401: wrong key"),
    "not allowed": Case(Seen(403, words="not allowed"), error(403, "not allowed")),
    "wrong address": Case(Seen(404), error(404), "404"),
    "unknown model": Case(
        Seen(400, words="invalid model name passed"), error(400, "Invalid model name passed")
    ),
    "quota": Case(Seen(429, words="insufficient_quota"), error(429, code="insufficient_quota")),
    **{str(status): Case(Seen(status), error(status)) for status in (408, 409, 425, 429)},
    **{str(status): Case(Seen(status), error(status)) for status in (500, 502, 503, 504, 529)},
    "other": Case(Seen(400, words="bad request"), error(400, "bad request"), "400: bad request"),
    "validation": Case(Seen(422), error(422), "422"),
}


@ways
@pytest.mark.parametrize("name", CASES)
def test_what_becomes_of_a_reply(ask, name, api, stream):
    case = CASES[name]
    rule = rule_for(case.seen)
    times = itertools.count()

    async def answer(request, body):
        first = "BAD" in json.dumps(body) and next(times) == 0
        if first or ("BAD" in json.dumps(body) and rule.becomes != "retry"):
            return await case.answer(request, body)
        return await answered(request, body, "sound", "stop")

    if rule.becomes == "stop":
        with pytest.raises(EvalkitError, match=case.says or str(case.seen.status)):
            ask(answer, api, stream)
        return
    completions, seen = ask(answer, api, stream)
    bad, good = completions["bad"], completions["good"]
    assert (good.text, good.finish_reason, good.error) == ("sound", "stop", None)
    asked = sum("BAD" in body for body in seen)
    if rule.becomes == "retry":
        assert (bad.text, bad.error, asked) == ("sound", None, 2)
    elif rule.becomes == "answer":
        assert (bad.text, bad.finish_reason, asked) == ("said", rule.ends, 1)
    else:
        assert (bad.text, bad.finish_reason, asked) == ("", "error", 1)
        assert case.says in bad.error


def test_every_rule_has_a_case():
    decided = {id(rule_for(case.seen)) for case in CASES.values()}
    assert [rule.reply for rule in RULES if id(rule) not in decided] == []


def test_the_table_of_the_docs_is_that_of_the_code():
    text = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    rows = [f"| {rule.status} | {rule.reply} | {rule.becomes} |" for rule in RULES]
    assert "\n".join(rows) in text


# -- the server's fault or the prompt's ------------------------------------------------------------


@ways
def test_first_prompts_that_are_refused_stop_nothing(ask, tokenizer, api, stream):
    render = ChatRenderer(tokenizer).render
    prompts = [render(Sample(f"b/{i}", "s", f"BAD {i}", ("x",), "none", 5)) for i in range(5)]

    async def answer(request, body):
        if "BAD" in json.dumps(body):
            return await error(400, "no")(request, body)
        return await answered(request, body, "sound", "stop")

    completions, seen = ask(answer, api, stream, prompts=[*prompts, ask.good])
    assert [c.error for c in completions.values()] == ["400: no"] * 5 + [None]
    assert len(seen) == 7  # each once, and one that nobody can object to


@ways
def test_a_prompt_that_the_server_dies_of_is_a_row(ask, api, stream):
    async def answer(request, body):
        if "BAD" in json.dumps(body):
            return await error(500, "CUDA error")(request, body)
        return await answered(request, body, "sound", "stop")

    completions, _ = ask(answer, api, stream)
    assert completions["bad"].error == "given up after 4 tries: 500: CUDA error"
    assert completions["good"].text == "sound"


@ways
def test_a_server_that_refuses_everything_stops_the_run(ask, api, stream):
    with pytest.raises(EvalkitError, match="rejects every request: 400: unknown field; asked 'Hel"):
        ask(error(400, "unknown field"), api, stream)


def test_the_harmless_prompt_has_the_form_of_the_refused_one(ask, tokenizer):
    begun = ChatRenderer(tokenizer).render(
        Sample("bad", "s", "BAD", ("x",), "none", 5, answer_prefix=" It is", stop=("END",))
    )
    bodies = []

    async def answer(request, body):
        bodies.append(body)
        return await error(400, "no such field")(request, body)

    with pytest.raises(EvalkitError):
        ask(answer, "chat", prompts=[begun])
    refused, harmless = bodies
    assert harmless["messages"][0]["content"] == "Hello"
    assert harmless | {"messages": 0} == refused | {"messages": 0}
    assert harmless["messages"][1] == refused["messages"][1]


# -- text ------------------------------------------------------------------------------------------

CONTENTS = {
    "null": (None, ""),
    "parts": ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "c"], "abc"),
    "no parts": ([], ""),
    "thoughts": (
        [
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
            {"type": "text", "text": "so"},
        ],
        "<think>hm</think>so",
    ),
    "lone surrogate": ("a\ud83d!", "a\ufffd!"),
    "pair": ("a\ud83d\ude00", "a\U0001f600"),
    "line separator": ("a\u2028b\u0085c", "a\u2028b\u0085c"),
}


@ways
@pytest.mark.parametrize("name", CONTENTS)
def test_content_in_every_form(ask, name, api, stream):
    content, text = CONTENTS[name]
    completion = ask(ended("stop", content), api, stream, prompts=[ask.bad])[0]["bad"]
    assert (completion.text, completion.error) == (text, None)
    completion.text.encode()


@pytest.mark.parametrize("api", ["text", "chat"])
def test_text_that_is_not_escaped_and_halves_of_a_character(ask, api):
    async def answer(request, body):
        def piece(text):
            return {"choices": [choice(request, text, None, piece=True)]}

        halves = [piece("\ud83d"), piece("\ude00")]
        bare = json.dumps(piece("\u2028"), ensure_ascii=False)
        end = {"choices": [choice(request, "", "stop", piece=True)]}
        return await events(request, *halves, bare, end)

    completion = ask(answer, api, True, prompts=[ask.bad])[0]["bad"]
    assert completion.text == "\U0001f600\u2028"


def test_a_refusal_in_a_field_of_its_own_is_the_answer(ask):
    async def answer(request, body):
        message = {"content": None, "refusal": "I cannot"}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})

    assert ask(answer, "chat", prompts=[ask.bad])[0]["bad"].text == "I cannot"


USAGES = [None, [], "many", 7, {}, {"prompt_tokens": None}, {"prompt_tokens": "12"}]
USAGES += [{"prompt_tokens": True, "completion_tokens": False}, {"prompt_tokens": -1}]
USAGES += [{"prompt_tokens": 0, "completion_tokens": [1]}, {"prompt_tokens": {}}]
USAGES += [{"prompt_tokens": None, "prompt_tokens_details": "none"}]


@ways
@pytest.mark.parametrize("usage", USAGES, ids=str)
def test_usage_of_any_type_is_counted_by_us(ask, tokenizer, usage, api, stream):
    async def answer(request, body):
        return await answered(request, body, "a b c", "stop", usage=usage)

    completion = ask(answer, api, stream, prompts=[ask.bad])[0]["bad"]
    assert completion.error is None
    assert completion.prompt_tokens == len(ask.bad.token_ids)
    own = len(tokenizer.encode("a b c", add_special_tokens=False))
    assert (type(completion.completion_tokens), completion.completion_tokens) == (int, own)


@pytest.mark.parametrize("api", ["text", "chat"])
@pytest.mark.parametrize("end", ["nothing more", "cut", "an error"])
def test_a_stream_with_a_finish_reason_is_whole(ask, api, end):
    async def answer(request, body):
        said = {"choices": [choice(request, "said", None, piece=True)]}
        last = {"choices": [choice(request, None, "stop", piece=True)]}
        more = [{"error": {"message": "late", "code": 500}}] if end == "an error" else []
        response = await events(request, said, last, *more, done=False)
        if end == "cut":
            request.transport.abort()
        return response

    completions, seen = ask(answer, api, True, prompts=[ask.bad])
    assert completions["bad"].text == "said"
    assert len(seen) == 1


@pytest.mark.parametrize("api", ["text", "chat"])
def test_a_server_that_does_not_stream_is_understood(ask, api):
    async def answer(request, body):
        return await answered(request, body | {"stream": False}, "said", "stop")

    assert ask(answer, api, True, prompts=[ask.bad])[0]["bad"].text == "said"


# -- too long --------------------------------------------------------------------------------------

# Texts as the engines have them; where they stand: `_TOO_LONG` in evalkit.engines.openai.replies.
TOO_LONG = {
    "vLLM": "This model's maximum context length is 8192 tokens. However, you requested 4096 output"
    " tokens and your prompt contains at least 9000 input tokens, for a total of at least 13096",
    "vLLM, checked by the renderer": "You passed 9000 input tokens and requested 5 output tokens."
    " However, the model's context length is only 8192 tokens, resulting in a maximum input length"
    " of 8187 tokens.",
    "vLLM, the prompt alone": "The decoder prompt (length 9000) is longer than the maximum model"
    " length of 8192.",
    "SGLang": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    "SGLang, with the answer": "Requested token count exceeds the model's maximum context length of"
    " 8192 tokens. You requested a total of 9000 tokens",
    "SGLang, the scheduler": "Input length (9000 tokens) exceeds the maximum allowed length (8192"
    " tokens). Use a shorter input or enable --allow-auto-truncate.",
    "SGLang, the answer alone": "max_completion_tokens is too large: 9000.This model supports at"
    " most 8192 completion tokens.",
    "TensorRT-LLM": "The sum of prompt length (72417.0), query length (0) should not exceed"
    " max_num_tokens (69632)",
    "TensorRT-LLM 1.3": "The prompt length (72417.0) should not exceed max_num_tokens (69632)",
    "TensorRT-LLM, the worker": "`default_max_tokens` (-152) must be greater than 0,"
    " `default_max_tokens` (-152) = max_seq_len (8192) - `splited_prompt_len` (8344)",
    "llama.cpp": "request (9412 tokens) exceeds the available context size (8192 tokens), try"
    " increasing it",
    "Text Generation Inference": "Input validation error: `inputs` tokens + `max_new_tokens` must"
    " be <= 4096. Given: 9000 `inputs` tokens and 5 `max_new_tokens`",
    "LiteLLM": "litellm.ContextWindowExceededError: litellm.BadRequestError: no",
    "OpenRouter": "This endpoint's maximum context length is 8192 tokens. However, you requested"
    " about 9000 tokens",
    "Anthropic behind a gateway": "prompt is too long: 213462 tokens > 200000 maximum",
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("engine", TOO_LONG)
def test_too_long_in_the_words_of_the_engine_is_counted_so(ask, engine, stream):
    message = TOO_LONG[engine]

    async def answer(request, body):
        if stream:  # SGLang and TensorRT-LLM find out when the stream has begun
            return await events(request, {"error": {"message": message, "code": 400}})
        return await error(400, message)(request, body)

    completions, seen = ask(answer, stream=stream, prompts=[ask.bad])
    assert len(seen) == 1
    row = sample_row(ask.bad, completions["bad"])
    score = score_row(ItemRow("bad", "s", "needle_exact", ("x",), "bad", {}), row, ScoringConfig())
    assert (score.score, set(score.flags)) == (0.0, {"error", "over_length"})


@pytest.mark.parametrize(
    "body",
    [
        {"message": "no", "type": "exceed_context_size_error"},
        {"message": "no", "code": "context_length_exceeded"},
        {"message": "Provider returned error", "metadata": {"raw": TOO_LONG["vLLM"]}},
    ],
)
def test_too_long_by_its_code_or_inside_of_what_a_gateway_wraps(body):
    assert isinstance(failure(Seen(400, words=words_of(body)), "no"), Rejected)
    assert rule_for(Seen(400, words=words_of(body))).says == "over-length"


@pytest.mark.parametrize(
    "message",
    [
        "maximum number of stop strings is 4",
        "temperature exceeds 2",
        "max_tokens must be at least 1",
        "the stop string is too long",
        "prompt must be a string",
    ],
)
def test_other_refusals_are_not_taken_for_it(message):
    assert rule_for(Seen(400, words=message)) is RULES[-1]


def test_a_server_that_cuts_prompts_is_noticed(ask):
    sent = len(ask.bad.token_ids)

    async def answer(request, body):
        return await answered(request, body, "x", "stop", usage={"prompt_tokens": sent - 2})

    completion = ask(answer, "ids", prompts=[ask.bad])[0]["bad"]
    assert (
        completion.error == f"over-length: the server read {sent - 2} of the prompt's {sent} tokens"
    )


# -- waiting ---------------------------------------------------------------------------------------

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0),
        ("", 0),
        ("3", 3),
        ("2.5", 2.5),
        ("1e9", 1e9),
        ("inf", float("inf")),
        ("nan", 0),
        ("-5", 0),
        ("soon", 0),
        ("Mon, 30 Nov 2026 12:01:30 GMT", 90),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0),
        ("Mon, 30 Nov 2026 13:01:30 +0100", 90),
        ("Mon, 99 Nov 2026 12:00:00 GMT", 0),
    ],
)
def test_what_retry_after_asks_for(header, seconds):
    assert retry_after(header, NOW) == seconds


@pytest.mark.parametrize("header", ["86400", "1e9", "inf", "Fri, 31 Dec 2999 00:00:00 GMT"])
def test_a_wait_is_capped_and_said(ask, caplog, monkeypatch, header):
    slept = []

    async def sleep(seconds, *_):
        slept.append(seconds)

    monkeypatch.setattr("evalkit.engines.openai.engine.asyncio.sleep", sleep)
    times = itertools.count()

    async def answer(request, body):
        if next(times) < 2:
            return web.json_response({}, status=429, headers={"retry-after": header})
        return await answered(request, body, "sound", "stop")

    caplog.set_level(logging.WARNING)
    assert ask(answer, prompts=[ask.bad])[0]["bad"].text == "sound"
    assert [s for s in slept if s > 1] == [600.0, 600.0]
    assert caplog.text.count("the next try is in 600 s") == 1
    slept.clear()
    times = itertools.count()
    ask(answer, prompts=[ask.bad], max_retry_after=90)
    assert [s for s in slept if s > 1] == [90.0, 90.0]


def test_short_waits_are_obeyed_in_silence(ask, caplog):
    times = itertools.count()

    async def answer(request, body):
        if next(times) == 0:
            return web.json_response({}, status=503, headers={"retry-after": "0.2"})
        return await answered(request, body, "sound", "stop")

    assert ask(answer, prompts=[ask.bad])[0]["bad"].text == "sound"
    assert caplog.text == ""


# -- anything at all -------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["stop", "\ud800", "abort"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("choices", "message", "delta", "text", "content", "finish_reason", "usage"),
                    *("prompt_tokens", "completion_tokens", "error", "code", "detail", "metadata"),
                    *("type", "reasoning_content", "refusal", "raw", "prompt_tokens_details"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.integers(400, 599))
def test_no_body_is_a_traceback(value, status):
    for read in (read_whole, read_piece):
        reply = Reply()
        try:
            read(parsed(json.dumps(value)), reply)
            ending(reply.finish_reason)
        except (Retry, Rejected):
            continue
        assert isinstance(reply.text, str)
        for count in (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens):
            assert count is None or (type(count) is int and count >= 0)
    outcome = failure(Seen(status, words=words_of(value)), "reason")
    assert isinstance(outcome, Retry | Rejected | Refused)
    if isinstance(value, dict):
        inside = error_inside(value)
        assert inside is None or 400 <= inside[0] < 600
