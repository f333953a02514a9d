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

from evalkit.config.arm import ArmConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.types import Sample
from evalkit.engines.openai.replies import (
    BROKEN_OFF,
    CUT,
    RULES,
    STOPPED,
    TOOLS,
    Seen,
    retry_after,
    rule_for,
)
from evalkit.prompts.renderer import ChatRenderer
from tests.engines.test_openai import loaded
from tests.servers.misbehaving import Misbehaving, answered, ended, error, events, ways


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


def redirect(status, place="http://127.0.0.1:9/v1/elsewhere"):
    async def answer(request, body):
        return web.Response(status=status, headers={"location": place})

    return answer


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
    "cut early": Case(Seen(200, "length", short=True), ended("length", tokens=1)),
    "Stop": Case(Seen(200, "stop"), ended("Stop")),
    "content_filter": Case(Seen(200, "content_filter"), ended("content_filter"), "content filter"),
    **{name: Case(Seen(200, name), ended(name, None), "tool parser") for name in sorted(TOOLS)},
    "strange": Case(Seen(200, "strange"), ended("strange"), "ended the answer: strange"),
    **{str(status): Case(Seen(status), redirect(status)) for status in (301, 302, 303, 307, 308)},
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


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_nowhere_and_named(ask, status):
    asked = []

    async def elsewhere(request, body):
        asked.append(dict(request.headers))
        return await answered(request, body, "sound", "stop")

    with Misbehaving(elsewhere) as other:
        place = f"{other.url}/v1/completions?token=sk-0123456789"
        with pytest.raises(EvalkitError) as caught:
            ask(redirect(status, place))
    said = str(caught.value)
    assert f"{status}: the server redirects to {other.url}/v1/completions?" in said
    assert "sk-0123456789" not in said
    assert "\n" not in said
    assert asked == []


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


def test_a_server_that_dies_in_the_middle_stops_the_run_and_keeps_what_came(
    paper_checkpoint, tokenizer
):
    render = ChatRenderer(tokenizer).render
    prompts = [render(Sample(f"s/{i}", "s", f"{i}", ("x",), "none", 5)) for i in range(6)]
    times, came = itertools.count(), []

    async def answer(request, body):
        if next(times) < 3:
            return await answered(request, body, "sound", "stop")
        return await error(502, "no upstream")(request, body)

    with Misbehaving(answer) as server:
        engine = loaded(paper_checkpoint, server.url, max_requests=1, retries=2)
        with pytest.raises(EvalkitError, match="does not answer: given up after 3 tries: 502"):
            for batch in engine.answer(ArmConfig(name="arm"), None, prompts, ()):
                came += [completion.sample_id for completion in batch]
    assert came == ["s/0", "s/1", "s/2"]
    assert len(server.seen) == 3 + 3 + 3  # answers, tries of the fourth, tries of the harmless one


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
        if body["max_tokens"] == 1:  # whether the server goes on with a turn: it does not say
            return await error(400, "no such field")(request, body)
        bodies.append(body)
        return await error(400, "no such field")(request, body)

    with pytest.raises(EvalkitError):
        ask(answer, "chat", prompts=[begun])
    refused, harmless = bodies
    assert harmless["messages"][0]["content"] == "Hello"
    assert harmless | {"messages": 0} == refused | {"messages": 0}
    assert harmless["messages"][1] == refused["messages"][1]


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


@ways
def test_another_model_that_answers_is_said_once(ask, caplog, api, stream):
    async def answer(request, body):
        return await answered(request, body, "sound", "stop", model="fall\x1b[31mback")

    with caplog.at_level(logging.WARNING):
        completions, _ = ask(answer, api, stream)
    assert [c.text for c in completions.values()] == ["sound", "sound"]
    assert [record.getMessage() for record in caplog.records] == [
        "model tiny was asked, and fall\\x1b[31mback answers: is that the arm's checkpoint?"
    ]


@ways
def test_the_model_that_was_asked_is_not_mentioned(ask, caplog, api, stream):
    async def answer(request, body):
        return await answered(request, body, "sound", "stop", model=body["model"])

    with caplog.at_level(logging.WARNING):
        ask(answer, api, stream)
    assert not caplog.records
