"""What a reply means: an answer, an error row, another try, or the end of the run.

`RULES` is the table of docs/serving.md. It is read from the top, and the first rule that applies
decides; an error inside a reply of status 200 is judged by the status that it names, else as 500.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Literal

OVER_LENGTH = "over-length"
"""How the reason of an error row begins where the prompt does not fit; tables count those apart."""

STOPPED = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence"})
CUT = frozenset({"length", "max_tokens", "model_length", "repetition"})
BROKEN_OFF = frozenset({"abort", "aborted", "cancelled", "error", "insufficient_system_resource"})
TOOLS = frozenset({"tool_calls", "function_call"})

CUT_EARLY: Final = "cut_early"
"""How an answer ended that was cut before its budget: by the context window or a server's limit."""
SHORT = 0.9
"""An answer is cut early if the server counted less than this share of the budget."""

_AUTHENTICATION = frozenset({401, 402, 403})
_AGAIN = frozenset({408, 409, 425, 429})

_TOO_LONG = re.compile(
    "|".join(
        (
            # vLLM 0.6 to 0.33 (entrypoints, renderers/params.py), and OpenAI and OpenRouter alike:
            # "This model's maximum context length is 8192 tokens. However, you requested ...";
            # "... However, the model's context length is only 8192 tokens, resulting in ...".
            r"maximum context length",
            r"context length is only",
            # vLLM before its renderers: "The decoder prompt (length 9000) is longer than the
            # maximum model length of 8192"; SGLang 0.5 (managers/tokenizer_manager.py):
            # "The input (9000 tokens) is longer than the model's context length (8192 tokens)."
            r"longer than the (?:maximum model length|model's context length)",
            # SGLang 0.5 (managers/utils.py): "Input length (9000 tokens) exceeds the maximum
            # allowed length (8192 tokens)."; (openai/serving_chat.py): "max_completion_tokens is
            # too large: 9000.This model supports at most 8192 completion tokens."
            r"input length .{0,80}exceeds the maximum allowed",
            r"max_completion_tokens is too large",
            # TensorRT-LLM 1.x (llmapi/llm.py): "The sum of prompt length (72417.0), query length
            # (0) should not exceed max_num_tokens (69632)"; (executor/base_worker.py):
            # "`default_max_tokens` (-152) must be greater than 0, ...".
            r"prompt length .{0,80}should not exceed max_(?:num_tokens|seq_len)",
            r"default_max_tokens\W.{0,40}must be greater than 0",
            # llama.cpp (tools/server/server-context.cpp): type "exceed_context_size_error",
            # "request (9412 tokens) exceeds the available context size (8192 tokens), try ...".
            r"exceeds? the available context size|exceed_context_size",
            # Gateways: OpenAI's code, LiteLLM's exception, Anthropic's words.
            r"context_length_exceeded|context window|contextwindowexceeded",
            r"prompt is too long",
            # Text Generation Inference: "`inputs` tokens + `max_new_tokens` must be <= 4096."
            r"`inputs` (?:tokens|must have)",
        )
    )
)
_CONTENT = re.compile(r"content[ _-]?(?:filter|policy|management)|moderation|was flagged")
_NO_MODEL = re.compile(
    r"model\b.{0,200}(?:does not exist|not found)|model_not_found"  # vLLM, OpenAI
    r"|invalid model|not a valid model|unknown model|no such model"  # LiteLLM, OpenRouter
)
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota")

Becomes = Literal["answer", "error row", "retry", "stop"]


class Retry(Exception):  # noqa: N818 - what to do, not what went wrong
    """Worth another try: overload, a lost connection, a broken reply.

    Attributes:
        after: seconds that the server asked for, or 0; may be infinite.
        gone: whether the server itself is out of reach.
    """

    def __init__(self, reason: str, *, after: float = 0.0, gone: bool = False) -> None:
        super().__init__(reason)
        self.after = after
        self.gone = gone


class Rejected(Exception):  # noqa: N818
    """The server does not answer this request, and will not the next time either.

    Attributes:
        doubtful: whether it may refuse whatever it is sent, so that its settings are at fault.
    """

    def __init__(self, reason: str, *, doubtful: bool = False) -> None:
        super().__init__(reason)
        self.doubtful = doubtful


class Refused(Exception):  # noqa: N818
    """The server takes no request of ours: wrong key, wrong address, unknown model."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A reply as the rules see it.

    Attributes:
        status: HTTP status, or the one that an error inside names; 0 where no whole reply came.
        finish: finish reason in lower case; "" where there is none.
        words: message, code and type of an error, in lower case.
        short: whether the server counted clearly fewer tokens than were asked for.
    """

    status: int
    finish: str = ""
    words: str = ""
    short: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table.

    Attributes:
        status: as the table says it.
        reply: likewise: what the body holds.
        becomes: what is done.
        applies: whether the rule is about a reply.
        ends: finish reason of an answer.
        says: what the error of a row begins with.
        doubtful: as in `Rejected`.
    """

    status: str
    reply: str
    becomes: Becomes
    applies: Callable[[Seen], bool]
    ends: Literal["stop", "length", "cut_early"] = "stop"
    says: str = ""
    doubtful: bool = False


def _names(reasons: frozenset[str]) -> str:
    return ", ".join(f"`{reason}`" for reason in sorted(reasons))


RULES = (
    Rule(
        "none",
        "no connection, no reply in time, or cut off before a finish reason",
        "retry",
        lambda seen: seen.status == 0,
    ),
    Rule(
        "200",
        "no JSON object, no `choices`, content that is no text, no finish reason",
        "retry",
        lambda seen: seen.status == 200 and not seen.finish,
    ),
    Rule(
        "200",
        f"ended by {_names(STOPPED)}; content as text, as a list of parts, or null (empty)",
        "answer",
        lambda seen: seen.finish in STOPPED,
    ),
    Rule(
        "200",
        f"ended by {_names(CUT)}, below {SHORT:.0%} of the token budget by the server's count",
        "answer",
        lambda seen: seen.finish in CUT and seen.short,
        ends=CUT_EARLY,
    ),
    Rule(
        "200",
        f"ended by {_names(CUT)}",
        "answer",
        lambda seen: seen.finish in CUT,
        ends="length",
    ),
    Rule(
        "200",
        f"ended by {_names(BROKEN_OFF)}",
        "retry",
        lambda seen: seen.finish in BROKEN_OFF,
        says="the server broke the answer off",
    ),
    Rule(
        "200",
        "ended by `content_filter`",
        "error row",
        lambda seen: seen.finish == "content_filter",
        says="a content filter ended the answer",
    ),
    Rule(
        "200",
        f"ended by {_names(TOOLS)}",
        "error row",
        lambda seen: seen.finish in TOOLS,
        says="the server took the answer for a tool call (start it without a tool parser)",
    ),
    Rule(
        "200",
        "ended by anything else",
        "error row",
        lambda seen: bool(seen.finish),
        says="the server ended the answer",
    ),
    Rule(
        "3xx",
        "a redirect: it is not followed, for the key could go to another host",
        "stop",
        lambda seen: 300 <= seen.status < 400,
    ),
    Rule(
        "413, or 4xx and 5xx (not 401, 402, 403, 429)",
        "refused as too long, in the words of vLLM, SGLang, TensorRT-LLM, llama.cpp or a gateway",
        "error row",
        lambda seen: (
            seen.status == 413
            or (seen.status not in _AUTHENTICATION | {429} and bool(_TOO_LONG.search(seen.words)))
        ),
        says=OVER_LENGTH,
    ),
    Rule(
        "400, 403, 451",
        "refused for its content (filter, policy, moderation)",
        "error row",
        lambda seen: seen.status in (400, 403, 451) and bool(_CONTENT.search(seen.words)),
        says="refused for its content",
    ),
    Rule(
        "401, 402, 403",
        "wrong key, or not allowed",
        "stop",
        lambda seen: seen.status in _AUTHENTICATION,
    ),
    Rule(
        "404, 405, or 400 and 422 that say so",
        "unknown model, or a wrong address",
        "stop",
        lambda seen: (
            seen.status in (404, 405)
            or (seen.status in (400, 422) and bool(_NO_MODEL.search(seen.words)))
        ),
    ),
    Rule(
        "429",
        "the quota is used up",
        "stop",
        lambda seen: seen.status == 429 and bool(_QUOTA.search(seen.words)),
    ),
    Rule(
        "408, 409, 425, 429",
        "overload; not before `Retry-After`",
        "retry",
        lambda seen: seen.status in _AGAIN,
    ),
    Rule(
        "5xx",
        "anything else; not before `Retry-After`",
        "retry",
        lambda seen: seen.status >= 500,
    ),
    Rule(
        "other 4xx",
        "anything else",
        "error row",
        lambda _: True,
        doubtful=True,
    ),
)


def rule_for(seen: Seen) -> Rule:
    """The first rule that applies."""
    return next(rule for rule in RULES if rule.applies(seen))


def failure(seen: Seen, reason: str, *, after: float = 0.0) -> Exception:
    """What a reply that is no answer makes of its request.

    Args:
        seen: the reply.
        reason: one line about it.
        after: seconds that the server asks to wait.
    """
    rule = rule_for(seen)
    text = f"{rule.says}: {reason}" if rule.says else reason
    if rule.becomes == "retry":
        return Retry(text, after=after)
    if rule.becomes == "stop":
        return Refused(text)
    return Rejected(text, doubtful=rule.doubtful)


def ending(finish_reason: str | None, *, short: bool = False) -> str:
    """How an answer ended: ``stop``, ``length`` or ``cut_early``.

    Args:
        finish_reason: as the server says.
        short: as in `Seen`.

    Raises:
        Retry, Rejected: it ended for a reason that is not an answer.
    """
    seen = Seen(200, finish=(finish_reason or "").lower(), short=short)
    rule = rule_for(seen)
    if rule.becomes != "answer":
        raise failure(seen, finish_reason or "no finish reason")
    return rule.ends


def retry_after(header: str | None, now: datetime | None = None) -> float:
    """Seconds that a ``Retry-After`` header asks for (RFC 9110, 10.2.3); 0 where it says nothing.

    Args:
        header: seconds, or a date.
        now: default: the time of day.
    """
    if not header:
        return 0.0
    try:
        seconds = float(header)
    except ValueError:
        try:
            until = parsedate_to_datetime(header)
        except (ValueError, OverflowError):
            return 0.0
        until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
        seconds = (until - (now or datetime.now(UTC))).total_seconds()
    return 0.0 if math.isnan(seconds) else max(0.0, seconds)
