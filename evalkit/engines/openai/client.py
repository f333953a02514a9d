"""One request to an OpenAI-compatible server, one reply, and every failure sorted.

Streams and lists go through the OpenAI SDK, its own retries off: the engine is the one retry layer.
Whole replies, the many, are posted with the SDK's transport (aiohttp) directly: building requests
and models costs several times what the exchange does (benchmarks/client_overhead.py).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
from openai import APIConnectionError, APIError, APIStatusError, AsyncOpenAI, DefaultAioHttpClient

from evalkit.engines.openai.api_keys import Key

CONNECT_SECONDS = 10.0
_AGAIN = frozenset({408, 409, 425, 429})
_STREAMED = {"headers": {"X-Stainless-Raw-Response": "stream"}}


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
        self._url = base_url(url)
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self._made: AsyncOpenAI | None = None

    @property
    def _openai(self) -> Any:
        """The SDK's client, made when it is needed: that takes as long as many requests."""
        if self._made is None:
            size = self._connections
            limits = httpx2.Limits(max_connections=size, max_keepalive_connections=size)
            # Loading certificates takes longer still; plain http has no use for them.
            verify = self._url.startswith("https:")
            self._made = AsyncOpenAI(
                base_url=self._url,
                api_key=self._key.reveal(),
                max_retries=0,
                http_client=DefaultAioHttpClient(limits=limits, verify=verify),
            )
        return self._made

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
        if self._made is not None:
            await self._made.close()

    async def get(self, path: str, seconds: float = 30.0) -> dict[str, Any]:
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

    async def complete(self, path: str, body: Mapping[str, Any], seconds: float) -> Reply:
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
                    _take_whole(_json(raw), reply)
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

    async def _post(self, path: str, body: Mapping[str, Any]) -> bytes:
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
        async with self._session.post(self._url + path, data=data) as response:
            raw = await response.read()
            if response.status < 400:
                return raw
            try:
                said = json.loads(raw)
            except ValueError:
                said = raw.decode(errors="replace")
            error = said.get("error", said) if isinstance(said, dict) else said
            reason = self._said(response.status, error, response.reason or "no reason given")
            raise _outcome(response.status, reason, response.headers.get("retry-after"))

    async def _stream(
        self, path: str, body: Mapping[str, Any], timeout: httpx2.Timeout, reply: Reply
    ) -> None:
        response = await self._openai.post(
            path, cast_to=object, body=body, options={**_STREAMED, "timeout": timeout}, stream=True
        )
        thinking = False
        ended = False
        try:
            async for data in _events(response):
                if data == "[DONE]":
                    ended = True
                    break
                thinking = _take_piece(_json(data), reply, thinking)
        finally:
            await response.close()
        if reply.finish_reason is None or not (ended or reply.completion_tokens is not None):
            raise Retry("the stream ended in the middle")

    def _sorted(self, error: APIStatusError) -> Exception:
        reason = self._said(error.status_code, error.body, error.message)
        return _outcome(error.status_code, reason, error.response.headers.get("retry-after"))

    def _said(self, status: int, body: Any, otherwise: str) -> str:
        """Status and the server's own words in one line, without the key."""
        said = body.get("message") or body.get("detail") if isinstance(body, dict) else body
        return self._one_line(f"{status}: {said or otherwise}")

    def _line(self, error: BaseException) -> str:
        """One line about an error, without the key."""
        return self._one_line(str(error) or type(error).__name__)

    def _one_line(self, text: str) -> str:
        return self._key.scrub(" ".join(text.split()))[:300]


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for an address; asked once, not with every request."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


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


def _json(raw: bytes | str) -> dict[str, Any]:
    try:
        data = json.loads(raw)
    except ValueError:
        raise Retry("the reply is not JSON") from None
    if not isinstance(data, dict):
        raise Retry("the reply is not a JSON object")
    if data.get("error"):
        raise Retry(f"the server reports an error in its reply: {str(data['error'])[:200]}")
    return data


def _take_whole(data: Mapping[str, Any], reply: Reply) -> None:
    try:
        choice = data["choices"][0]
        message = choice.get("message")
        if message is None:
            reply.text = str(choice["text"])
        else:
            reply.text = _with_reasoning(_reasoning(message), str(message.get("content") or ""))
        reply.finish_reason = choice["finish_reason"]
    except (KeyError, IndexError, TypeError, AttributeError):
        raise Retry("the reply has no choices") from None
    if reply.finish_reason is None:
        raise Retry("the reply has no finish reason")
    _take_usage(data, reply)


def _take_piece(data: Mapping[str, Any], reply: Reply, thinking: bool) -> bool:
    """Add one chunk of a stream; returns whether a reasoning block is open."""
    choices = data.get("choices") or []
    if choices:
        choice = choices[0]
        delta = choice.get("delta")
        reasoning = _reasoning(delta) if delta else ""
        text = str((choice.get("text") if delta is None else delta.get("content")) or "")
        if reasoning or text:
            reply.arrivals.append(time.perf_counter())
        if reasoning:
            reply.text += reasoning if thinking else f"<think>{reasoning}"
            thinking = True
        if thinking and text:
            reply.text += "</think>"
            thinking = False
        reply.text += text
        reply.finish_reason = choice.get("finish_reason") or reply.finish_reason
    _take_usage(data, reply)
    return thinking


def _take_usage(data: Mapping[str, Any], reply: Reply) -> None:
    usage = data.get("usage") or {}
    if "prompt_tokens" in usage:
        reply.prompt_tokens = usage["prompt_tokens"]
        reply.completion_tokens = usage.get("completion_tokens")
        details = usage.get("prompt_tokens_details") or {}
        reply.cached_tokens = details.get("cached_tokens")


def _reasoning(message: Mapping[str, Any]) -> str:
    """Reasoning content from either field that servers use."""
    return str(message.get("reasoning_content") or message.get("reasoning") or "")


def _with_reasoning(reasoning: str, content: str) -> str:
    if not reasoning:
        return content
    return f"<think>{reasoning}</think>{content}" if content else f"<think>{reasoning}"


async def _events(response: Any) -> AsyncIterator[str]:
    """Data of server-sent events."""
    async for line in response.iter_lines():
        if line.startswith("data:"):
            yield line[5:].strip()


def _seconds(header: str | None) -> float:
    try:
        return max(0.0, float(header)) if header else 0.0
    except ValueError:
        return 0.0
