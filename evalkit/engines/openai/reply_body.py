"""Bodies of replies: text, finish reason and counts, whatever form a server gives them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from evalkit.core.reasoning import CLOSE, OPEN
from evalkit.dsa.json_types import JsonObject, JsonValue, as_list, as_object
from evalkit.engines.openai.replies import Retry

_STATUS = re.compile(r"[45][0-9][0-9]")
_THOUGHTS = frozenset({"thinking", "reasoning"})
"""Types of content parts, and names of their fields, that hold reasoning."""


@dataclass(slots=True)
class Reply:
    """What came back.

    Attributes:
        text: the completion; reasoning, where it came apart, in ``<think>`` tags before it.
        finish_reason: as the server says.
        prompt_tokens: by the server's count, or None.
        completion_tokens: likewise.
        cached_tokens: of the prompt that came out of the prefix cache, or None.
        sent: clock when the request went out.
        arrivals: clock of every piece of text (of the whole reply, where it is not streamed).
        thinking: whether a streamed reasoning block is open.
        model: that the server says has answered, or None.
    """

    text: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    sent: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    thinking: bool = False
    model: str | None = None

    @property
    def generated(self) -> int | None:
        """Tokens of the text by the server's count; None where it has none, or 0 for a text."""
        return None if self.text and not self.completion_tokens else self.completion_tokens


def parsed(raw: bytes | str) -> JsonObject:
    """The JSON object of a reply.

    Raises:
        Retry: it is none.
    """
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        raise Retry("the reply is not JSON") from None
    if not isinstance(data, dict):
        raise Retry("the reply is not a JSON object")
    return data


def error_inside(data: JsonObject) -> tuple[int, JsonValue] | None:
    """Status and error of a reply that holds one in spite of its own status 200, else None.

    SGLang, vLLM and TensorRT-LLM report what went wrong after a stream began as an event
    ``{"error": {"message": ..., "code": 400}}``. An error without a status counts as 500.
    """
    error = data if data.get("object") == "error" else data.get("error")
    if not error:
        return None
    fields = as_object(error)
    named = [fields.get(key) for key in ("code", "status_code", "status")]
    # LiteLLM writes the number as text.
    numbers = (counted(int(v) if isinstance(v, str) and _STATUS.fullmatch(v) else v) for v in named)
    statuses = [number for number in numbers if number and 400 <= number < 600]
    return (statuses[0] if statuses else 500), error


def message_of(error: JsonValue) -> str:
    """The message of an error body; "" where there is none."""
    fields = as_object(error)
    message = (fields.get("message") or fields.get("detail")) if fields else error
    faults = [as_object(fault) for fault in as_list(message)]
    if faults and all("msg" in fault for fault in faults):
        # FastAPI: a list of faults, each with the field and what was sent, the whole prompt maybe.
        return "; ".join(f"{_place(fault)}{fault['msg']}" for fault in faults)
    return str(message) if message else ""


def _place(fault: JsonObject) -> str:
    where = ".".join(map(str, as_list(fault.get("loc"))))
    return f"{where}: " if where else ""


def words_of(error: JsonValue) -> str:
    """Message, code and type of an error in lower case, with those that a gateway wraps.

    The beginning of each: behind it, some servers quote the request.
    """
    fields = as_object(error)
    wrapped = as_object(fields.get("metadata")).get("raw")  # OpenRouter: the provider's own error
    parts = [fields.get("code"), fields.get("type"), message_of(error), wrapped]
    return " ".join(str(part)[:1000] for part in parts if part).lower()


def read_whole(data: JsonObject, reply: Reply) -> None:
    """Fill a reply from one that came whole.

    Raises:
        Retry: it lacks what an answer has.
    """
    choices = as_list(data.get("choices"))
    choice = as_object(choices[0]) if choices else {}
    message = choice.get("message")
    if "finish_reason" not in choice or (message is None and "text" not in choice):
        raise Retry("the reply has no choices")
    reasoning, text = _contents(choice)
    reply.text = clean(f"{OPEN}{reasoning}{CLOSE if text else ''}{text}" if reasoning else text)
    reply.finish_reason = _name(choice["finish_reason"])
    if reply.finish_reason is None:
        raise Retry("the reply has no finish reason")
    _read_facts(data, reply)


def read_piece(data: JsonObject, reply: Reply) -> None:
    """Add one event of a stream; `clean` the text when all have come."""
    choices = as_list(data.get("choices"))
    if choices:
        choice = as_object(choices[0])
        reasoning, text = _contents(choice)
        if reasoning or text:
            reply.arrivals.append(time.perf_counter())
        if reasoning:
            reply.text += reasoning if reply.thinking else f"{OPEN}{reasoning}"
            reply.thinking = True
        if reply.thinking and text:
            reply.text += CLOSE
            reply.thinking = False
        reply.text += text
        reply.finish_reason = _name(choice.get("finish_reason")) or reply.finish_reason
    _read_facts(data, reply)


def clean(text: str) -> str:
    """A text that UTF-8 can hold: surrogates in pairs are characters, lone ones become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def counted(value: JsonValue) -> int | None:
    """A number of tokens; None for what is none: text, a truth value, below 0 or beyond 32 bits."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**31 else None


def _contents(choice: JsonObject) -> tuple[str, str]:
    """Reasoning and text of a choice: a message, a piece of one, or plain text."""
    message = choice.get("message", choice.get("delta"))
    if message is None:
        return _flat(choice.get("text"))
    if not isinstance(message, Mapping):
        raise Retry("the reply's message is no object")
    fields = as_object(message)
    apart = fields.get("reasoning_content") or fields.get("reasoning")
    inside, text = _flat(fields.get("content"))
    return (_flat(apart)[1] or inside), (text or _flat(fields.get("refusal"))[1])


def _flat(content: JsonValue) -> tuple[str, str]:
    """Reasoning and text of a content: text, null, or a list of parts.

    Raises:
        Retry: it is something else.
    """
    if content is None:
        return "", ""
    if isinstance(content, str):
        return "", content
    if not isinstance(content, list):
        raise Retry(f"the reply's content is no text but {type(content).__name__}")
    reasoning, text = "", ""
    for part in content:
        fields = as_object(part)
        thought = next((fields[name] for name in _THOUGHTS if name in fields), None)
        if isinstance(part, str):
            text += part
        elif thought is not None or fields.get("type") in _THOUGHTS:
            reasoning += _flat(fields.get("text") if thought is None else thought)[1]
        elif isinstance(fields.get("text"), str):
            text += str(fields["text"])
        else:
            raise Retry("the reply's content has a part that is no text")
    return reasoning, text


def _read_facts(data: JsonObject, reply: Reply) -> None:
    reply.model = _name(data.get("model")) or reply.model
    usage = as_object(data.get("usage"))
    if "prompt_tokens" in usage:
        reply.prompt_tokens = counted(usage["prompt_tokens"]) or None  # no prompt has 0 tokens
        reply.completion_tokens = counted(usage.get("completion_tokens"))
        details = as_object(usage.get("prompt_tokens_details"))
        reply.cached_tokens = counted(details.get("cached_tokens"))


def _name(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
