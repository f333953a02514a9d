"""Server-sent events in every form that the standard allows, and those that servers get wrong."""

from __future__ import annotations

import itertools
import json

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from evalkit.config.bench import BenchConfig
from evalkit.config.server import OpenAIServerConfig
from evalkit.engines.openai.events import DONE, Event, EventReader
from tests.servers.misbehaving import answered, choice


def read(*pieces: bytes) -> list[Event]:
    reader = EventReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    return [*events, *reader.end()]


EXAMPLES = {
    # The standard's own examples, and what its rules say of the rest.
    b": comment\n\ndata: some text\n\ndata: another\ndata: with two lines\n\n": [
        (b"some text", "message"),
        (b"another\nwith two lines", "message"),
    ],
    b"event: add\ndata: 73\n\nevent: remove\rdata:  2\r\r": [(b"73", "add"), (b"2", "remove")],
    b"data\n\ndata\ndata\n\ndata:": [],  # nothing in them
    b"\xef\xbb\xbfdata: x\r\n\r\nid: 7\r\nretry: 3\r\nunknown: y\r\ndata: z\r\n\r\n": [
        (b"x", "message"),
        (b"z", "message"),
    ],
    b'data: {"a":\ndata: 1}\n\n': [(b'{"a":\n1}', "message")],
    b"event: error\n\ndata: x\n\n": [(b"x", "message")],  # a type ends with its event
    # Beyond the standard.
    b'data: {"a": 1}\ndata: {"a": 2}\ndata: [DONE]\n': [
        (b'{"a": 1}', "message"),
        (b'{"a": 2}', "message"),
        (DONE, "message"),
    ],
    b'data: {"a": 1}': [(b'{"a": 1}', "message")],
    b'{"a": 1}\n{"a": 2}': [(b'{"a": 1}', "message"), (b'{"a": 2}', "message")],
}


@pytest.mark.parametrize("stream", EXAMPLES)
def test_events(stream):
    expected = [Event(*event) for event in EXAMPLES[stream]]
    assert read(stream) == expected
    assert read(*(bytes([byte]) for byte in stream)) == expected


@given(st.binary(max_size=60), st.lists(st.integers(0, 60)))
def test_where_a_stream_is_cut_changes_nothing(tail, cuts):
    stream = b"event: error\r\ndata: {\r\ndata: }\r\n\r\n" + tail
    places = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    assert read(*(stream[a:b] for a, b in itertools.pairwise(places))) == read(stream)


def test_a_done_event_is_told_at_once():
    assert EventReader().feed(b"data: [DONE]\n") == [Event(DONE)]


ENDS = {"LF": "\n", "CR LF": "\r\n", "CR": "\r"}


@pytest.mark.parametrize("api", ["text", "chat"])
@pytest.mark.parametrize("end", ENDS)
def test_answers_in_any_line_ends_and_on_several_lines(ask, api, end):
    async def answer(request, body):
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        pieces = [
            choice(request, "a\u2028b", None, piece=True),
            choice(request, None, "stop", piece=True),
        ]
        for piece in pieces:
            lines = json.dumps({"choices": [piece]}, indent=1).split("\n")
            event = [": hello", "event: message", *(f"data: {line}" for line in lines), "", ""]
            await response.write(ENDS[end].join(event).encode())
        return response

    assert ask(answer, api, True, prompts=[ask.bad])[0]["bad"].text == "a\u2028b"


ERRORS = {
    '{"message": "no room", "code": 503}': "503",
    '{"detail": "no room"}': "500",
    '{"error": {"message": "no room"}}': "500",
    "no room": "500",
    "": None,  # by the standard no event at all
}


@pytest.mark.parametrize("data", ERRORS)
def test_an_event_named_error_is_an_error(ask, data):
    times = itertools.count()

    async def answer(request, body):
        if next(times):
            return await answered(request, body, "sound", "stop")
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"event: error\ndata: {data}\n\n".encode())
        return response

    completions, seen = ask(answer, "text", True, prompts=[ask.bad])
    assert (completions["bad"].text, len(seen)) == ("sound", 2)


def test_an_error_event_says_why(ask):
    async def answer(request, body):
        if "BAD" not in json.dumps(body):
            return await answered(request, body, "sound", "stop")
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        text = '{"message": "prompt is too long", "code": 400}'
        await response.write(f"event: error\ndata: {text}\n\n".encode())
        return response

    row = ask(answer, "text", True)[0]["bad"]
    assert row.error == "over-length: an error in the reply: prompt is too long"


@pytest.mark.parametrize(
    "name", ["n", "best_of", "stream", "model", "messages", "prompt", "max_tokens", "temperature"]
)
def test_fields_that_part_samples_from_answers_are_refused(name):
    says = f"extra_body: {name} is not yours to set: "
    with pytest.raises(ValueError, match=says):
        OpenAIServerConfig(extra_body={"top_p": 1, name: 2})
    with pytest.raises(ValueError, match=says):
        BenchConfig(input_tokens=1, output_tokens=2, extra_body={name: 2})
    OpenAIServerConfig(extra_body={"top_p": 1, "chat_template_kwargs": {"n": 1}, "seed": 3})
