"""HTTP client of one OpenAI-compatible server: requests, replies, failures by what to do next.

Streams and lists go through the OpenAI SDK, its own retries off: the engine is the one retry layer.
Whole replies, the many, are posted with the SDK's transport (aiohttp) directly: building requests
and models costs several times what the exchange does (benchmarks/client_overhead.py).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
from openai import APIConnectionError, APIError, APIStatusError, AsyncOpenAI, DefaultAioHttpClient

from evalkit.core.secrets import learn, redact_message
from evalkit.dsa.json_types import JsonObject, JsonValue, as_list, as_object
from evalkit.engines.openai.api_keys import Key, split_query

CONNECT_SECONDS = 10.0
_AGAIN = frozenset({408, 409, 425, 429})
_RAW_STREAM = {"X-Stainless-Raw-Response": "stream"}  # the SDK's header for unparsed lines


class Retry(Exception):  # noqa: N818 - what to do, not what went wrong
    """Worth another try: overload, a lost connection, a broken reply.

    Attributes:
        after: seconds that the server asked for, or 0.
        gone: whether the server itself is out of reach.
    """

    def __init__(self, reason: str, *, after: float = 0.0, gone: bool = False) -> None:
        super().__init__(reason)
        self.after = after
        self.gone = gone


class Rejected(Exception):  # noqa: N818
    """The server does not take this request; it will not take it the next time either."""


class Refused(Exception):  # noqa: N818
    """The server takes no request of ours: wrong key, wrong address, unknown model."""


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
    """

    text: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    sent: float = 0.0
    arrivals: list[float] = field(default_factory=list)


class Client:
    """Sends requests to one server."""

    def __init__(self, url: str, key: Key, *, connections: int = 1000) -> None:
        self._key = key
        address, self._query = split_query(url)
        self._url = base_url(address)
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self._sdk: AsyncOpenAI | None = None

    @property
    def _openai(self) -> AsyncOpenAI:
        """The SDK's client, made when it is needed: that takes as long as many requests."""
        if self._sdk is None:
            size = self._connections
            limits = httpx2.Limits(max_connections=size, max_keepalive_connections=size)
            # Loading certificates takes longer still; plain http has no use for them.
            verify = self._url.startswith("https:")
            self._sdk = AsyncOpenAI(
                base_url=self._url,
                api_key=self._key.reveal(),
                default_query=self._query,
                max_retries=0,
                http_client=DefaultAioHttpClient(limits=limits, verify=verify),
            )
        return self._sdk

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
        if self._sdk is not None:
            await self._sdk.close()

    async def get(self, path: str, seconds: float = 30.0) -> JsonObject:
        """GET a JSON object.

        Raises:
            Retry, Rejected, Refused: as `complete`.
        """
        try:
            async with asyncio.timeout(seconds):
                response = await self._openai.get(path, cast_to=httpx2.Response)
                return _json(response.content)
        except TimeoutError:
            raise Retry(f"no reply within {seconds:.0f} s", gone=True) from None
        except APIStatusError as error:
            raise self._sorted(error) from None
        except APIConnectionError as error:
            raise Retry(f"connection: {self._line(error.__cause__ or error)}", gone=True) from None
        except (APIError, httpx2.HTTPError, OSError) as error:
            raise Retry(f"connection broke: {self._line(error)}") from None

    async def complete(self, path: str, body: JsonObject, seconds: float) -> Reply:
        """POST a completion or chat completion.

        Args:
            path: ``/completions`` or ``/chat/completions``.
            body: the request.
            seconds: for all of it.

        Raises:
            Retry, Rejected, Refused: see there; the reason never holds the key.
        """
        reply = Reply(sent=time.perf_counter())
        timeout = httpx2.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
        try:
            async with asyncio.timeout(seconds):
                if body.get("stream"):
                    await self._stream(path, body, timeout, reply)
                else:
                    raw = await self._post(path, body)
                    reply.arrivals.append(time.perf_counter())
                    _read_whole(_json(raw), reply)
        except aiohttp.ClientConnectionError as error:
            raise Retry(f"connection: {self._line(error)}", gone=True) from None
        except TimeoutError:
            raise Retry(f"no reply within {seconds:.0f} s") from None
        except APIStatusError as error:
            raise self._sorted(error) from None
        except APIConnectionError as error:
            reason = f"connection: {self._line(error.__cause__ or error)}"
            raise Retry(reason, gone=True) from None
        except (APIError, httpx2.HTTPError, aiohttp.ClientError, OSError) as error:
            raise Retry(f"connection broke: {self._line(error)}") from None
        return reply

    async def _post(self, path: str, body: JsonObject) -> bytes:
        """A whole reply."""
        if self._session is None:  # made where the event loop runs
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections),
                headers={
                    "authorization": f"Bearer {self._key.reveal()}",
                    "content-type": "application/json",
                },
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                proxy=_proxy(self._url),
            )
        data = json.dumps(body).encode()
        where = self._url + path
        async with self._session.post(where, data=data, params=self._query) as response:
            raw = await response.read()
            if response.status < 400:
                return raw
            try:
                answer = json.loads(raw)
            except ValueError:
                answer = raw.decode(errors="replace")
            error = answer.get("error", answer) if isinstance(answer, dict) else answer
            reason = self._reason(response.status, error, response.reason or "no reason given")
            raise _outcome(response.status, reason, response.headers.get("retry-after"))

    async def _stream(
        self, path: str, body: JsonObject, timeout: httpx2.Timeout, reply: Reply
    ) -> None:
        pending = self._openai.post(
            path,
            cast_to=object,
            body=body,
            options={"headers": _RAW_STREAM, "timeout": timeout},
            stream=True,
        )
        response = cast(_Stream, await pending)
        thinking = False
        ended = False
        try:
            async for data in _events(response):
                if data == "[DONE]":
                    ended = True
                    break
                thinking = _read_piece(_json(data), reply, thinking)
        finally:
            await response.close()
        if reply.finish_reason is None or not (ended or reply.completion_tokens is not None):
            raise Retry("the stream ended in the middle")

    def _sorted(self, error: APIStatusError) -> Exception:
        reason = self._reason(error.status_code, error.body, error.message)
        return _outcome(error.status_code, reason, error.response.headers.get("retry-after"))

    def _reason(self, status: int, body: object, otherwise: str) -> str:
        """Status and the server's message in one line, without the key."""
        message = body.get("message") or body.get("detail") if isinstance(body, dict) else body
        return self._one_line(f"{status}: {message or otherwise}")

    def _line(self, error: BaseException) -> str:
        """One line about an error, without the key."""
        return self._one_line(str(error) or type(error).__name__)

    def _one_line(self, text: str) -> str:
        return self._key.scrub(" ".join(text.split()))[:300]


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for an address; asked once, not with every request."""
    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
    learn(proxy)  # it may hold a password
    return proxy


def _outcome(status: int, reason: str, retry_after: str | None) -> Exception:
    """What an error status means for the request."""
    if status in _AGAIN or status >= 500:
        return Retry(reason, after=_seconds(retry_after))
    if status in (401, 403, 404, 405):
        return Refused(reason)
    return Rejected(reason)


def base_url(url: str) -> str:
    """The address under which ``/completions`` is: ``/v1`` is added to a bare host."""
    url = url.rstrip("/")
    return url if url.split("://", 1)[-1].count("/") else f"{url}/v1"


def _json(raw: bytes | str) -> JsonObject:
    try:
        data = json.loads(raw)
    except ValueError:
        raise Retry("the reply is not JSON") from None
    if not isinstance(data, dict):
        raise Retry("the reply is not a JSON object")
    if data.get("error"):
        said = redact_message(str(data["error"]))[:200]
        raise Retry(f"the server reports an error in its reply: {said}")
    return data


def _read_whole(data: JsonObject, reply: Reply) -> None:
    """Fill a reply from one that came whole."""
    choices = as_list(data.get("choices"))
    choice = as_object(choices[0]) if choices else {}
    message = choice.get("message")
    if "finish_reason" not in choice or (message is None and "text" not in choice):
        raise Retry("the reply has no choices")
    if message is None:
        reply.text = str(choice["text"])
    else:
        reply.text = _with_reasoning(*_contents(as_object(message)))
    reply.finish_reason = _text(choice["finish_reason"])
    if reply.finish_reason is None:
        raise Retry("the reply has no finish reason")
    _read_usage(data, reply)


def _read_piece(data: JsonObject, reply: Reply, thinking: bool) -> bool:
    """Add one chunk of a stream; returns whether a reasoning block is open."""
    choices = as_list(data.get("choices"))
    if choices:
        choice = as_object(choices[0])
        delta = choice.get("delta")
        reasoning, text = "", str(choice.get("text") or "")
        if delta is not None:
            reasoning, text = _contents(as_object(delta))
        if reasoning or text:
            reply.arrivals.append(time.perf_counter())
        if reasoning:
            reply.text += reasoning if thinking else f"<think>{reasoning}"
            thinking = True
        if thinking and text:
            reply.text += "</think>"
            thinking = False
        reply.text += text
        reply.finish_reason = _text(choice.get("finish_reason")) or reply.finish_reason
    _read_usage(data, reply)
    return thinking


def _read_usage(data: JsonObject, reply: Reply) -> None:
    usage = as_object(data.get("usage"))
    if "prompt_tokens" in usage:
        reply.prompt_tokens = _count(usage["prompt_tokens"])
        reply.completion_tokens = _count(usage.get("completion_tokens"))
        details = as_object(usage.get("prompt_tokens_details"))
        reply.cached_tokens = _count(details.get("cached_tokens"))


def _contents(message: JsonObject) -> tuple[str, str]:
    """Reasoning, from either field that servers use, and content."""
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    return str(reasoning), str(message.get("content") or "")


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: JsonValue) -> int | None:
    return value if isinstance(value, int) else None


def _with_reasoning(reasoning: str, content: str) -> str:
    if not reasoning:
        return content
    return f"<think>{reasoning}</think>{content}" if content else f"<think>{reasoning}"


class _Stream(Protocol):
    """A response that is read line by line."""

    def iter_lines(self) -> AsyncIterator[str]: ...
    async def close(self) -> None: ...


async def _events(response: _Stream) -> AsyncIterator[str]:
    """Data of server-sent events."""
    async for line in response.iter_lines():
        if line.startswith("data:"):
            yield line[5:].strip()


def _seconds(header: str | None) -> float:
    try:
        return max(0.0, float(header)) if header else 0.0
    except ValueError:
        return 0.0
