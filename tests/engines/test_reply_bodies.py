"""Bodies of replies: content and usage in every form, refusals for length in every wording."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from evalkit.config.run import PromptConfig, ScoringConfig
from evalkit.config.server import OpenAIServerConfig
from evalkit.core.records import ItemRow
from evalkit.core.types import Sample
from evalkit.engines.openai.replies import (
    RULES,
    Refused,
    Rejected,
    Retry,
    Seen,
    ending,
    failure,
    rule_for,
)
from evalkit.engines.openai.reply_body import (
    Reply,
    error_inside,
    message_of,
    parsed,
    read_piece,
    read_whole,
    words_of,
)
from evalkit.engines.openai.wire import Wire
from evalkit.prompts.renderer import ChatRenderer
from evalkit.run.scoring import score_row
from evalkit.run.store import sample_row
from tests.servers.misbehaving import answered, choice, ended, error, events, ways

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


def test_a_refusal_that_quotes_the_prompt_is_judged_by_its_own_words():
    fault = {"loc": ["body", "temperature"], "msg": "not a number", "input": TOO_LONG["vLLM"]}
    assert message_of({"detail": [fault, {"msg": "no"}]}) == "body.temperature: not a number; no"
    assert rule_for(Seen(422, words=words_of({"detail": [fault]}))) is RULES[-1]
    quoted = {"message": "bad request: " + "x" * 1000 + TOO_LONG["vLLM"]}
    assert rule_for(Seen(400, words=words_of(quoted))) is RULES[-1]


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


@pytest.mark.parametrize(
    ("tokens", "text", "reason"),
    [
        (20, "said", "length"),
        (18, "said", "length"),  # counted otherwise at the edges
        (17, "said", "cut_early"),
        (0, "", "cut_early"),  # no room behind the prompt
        (0, "said", "length"),  # nobody counted
        (None, "said", "length"),
    ],
)
def test_an_answer_cut_before_its_budget_is_told_apart(tokenizer, tokens, text, reason):
    wire = Wire(OpenAIServerConfig(), tokenizer)
    prompt = ChatRenderer(tokenizer).render(Sample("s", "s", "Why?", ("x",), "none", 20))
    reply = Reply(text=text, finish_reason="length", completion_tokens=tokens)
    completion = wire.completion(prompt, reply)
    assert completion.finish_reason == reason
    assert bool(completion.completion_tokens) == bool(text)


def test_the_window_may_end_an_answer_that_reasons_and_its_own_budget_goes_before(tokenizer):
    wire = Wire(OpenAIServerConfig(), tokenizer)
    renderer = ChatRenderer(tokenizer, PromptConfig(reasoning_tokens=100))
    prompt = renderer.render(Sample("s", "s", "Why?", ("x",), "none", 4))
    answer = "one two three four five six seven eight nine"
    reply = Reply(text=f"<think>x</think>{answer}", finish_reason="length", completion_tokens=50)
    assert wire.completion(prompt, reply).finish_reason == "length"
    reply = Reply(text="<think>x", finish_reason="length", completion_tokens=50)
    assert wire.completion(prompt, reply).finish_reason == "cut_early"


@pytest.mark.parametrize("kind", ["text/event-stream", "application/x-ndjson", "text/plain"])
@pytest.mark.parametrize("head", ["data: ", ""])
def test_a_last_line_without_an_end_and_a_server_that_does_not_stream(ask, kind, head):
    async def answer(request, body):
        line = head + json.dumps({"choices": [choice(request, "sound", "stop", piece=bool(head))]})
        return web.Response(body=line.encode(), headers={"content-type": kind})

    for api in ("text", "chat"):
        completions, seen = ask(answer, api, stream=True)
        assert [(c.text, c.error) for c in completions.values()] == [("sound", None)] * 2
        assert len(seen) == 2


def test_a_status_written_as_text_counts():
    assert error_inside({"error": {"code": "401", "message": "no"}})[0] == 401
    assert error_inside({"error": {"code": "1" * 5000}})[0] == 500
    assert error_inside({"error": {"code": "invalid_api_key", "status": 403}})[0] == 403


def test_of_a_long_error_the_beginning_is_searched_for_secrets(ask):
    async def answer(request, body):
        return web.Response(status=418, text="api_key=abcdef123456 " + "x" * 3_000_000)

    async def once(request, body):
        if "BAD" in json.dumps(body):
            return await answer(request, body)
        return await answered(request, body, "sound", "stop")

    completions, _ = ask(once)
    assert completions["bad"].error.startswith("418: api_key=[key] xxx")
    assert len(completions["bad"].error) < 400
