"""HTTP client of one OpenAI-compatible server: requests out, replies in, each tried once.

The engine is the one retry layer. Requests are posted with aiohttp directly: building the OpenAI
SDK's requests and models costs several times what the exchange does
(benchmarks/client_overhead.py), and its reader of streams breaks lines at U+2028 inside an answer.
Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from evalkit.core.secrets import hide, learn
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.engines.openai.api_keys import Key, split_query
from evalkit.engines.openai.events import DONE, Event, EventReader
from evalkit.engines.openai.replies import Retry, Seen, failure, retry_after
from evalkit.engines.openai.reply_body import (
    Reply,
    clean,
    error_inside,
    message_of,
    parsed,
    read_piece,
    read_whole,
    words_of,
)

CONNECT_SECONDS = 10.0
LONGEST_ERROR = 10_000


class Client:
    """Sends requests to one server."""

    def __init__(self, url: str, key: Key, *, connections: int = 1000) -> None:
        self._key = key
        address, self._query = split_query(url)
        self._url = base_url(address)
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, seconds: float = 30.0) -> JsonObject:
        """GET a JSON object.

        Raises:
            Retry, Rejected, Refused: as `complete`.
        """
        async with self._exchange("GET", path, seconds) as response:
            return self._object(await response.read())

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
        try:
            async with self._exchange("POST", path, seconds, body) as response:
                if body.get("stream") and response.content_type != "application/json":
                    async for event in _events(response):
                        read_piece(self._event(event), reply)
                else:
                    raw = await response.read()
                    reply.arrivals.append(time.perf_counter())
                    read_whole(self._object(raw), reply)
        except Retry:
            if reply.finish_reason is None:
                raise  # with a finish reason, all of the answer had come
        if reply.finish_reason is None:
            raise Retry("the stream ended in the middle")
        reply.text = clean(reply.text)
        return reply

    @asynccontextmanager
    async def _exchange(
        self, method: str, path: str, seconds: float, body: JsonObject | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response that is no error; what breaks until it is read is a `Retry`."""
        data = None if body is None else json.dumps(body).encode()
        try:
            async with asyncio.timeout(seconds):
                pending = self._connected().request(
                    method,
                    self._url + path,
                    data=data,
                    params=self._query,
                    allow_redirects=False,  # a POST may become a GET, a key go to another host
                )
                async with pending as response:
                    if response.status >= 300:
                        raise self._refusal(response, await response.read())
                    yield response
        except aiohttp.ClientConnectionError as error:
            raise Retry(f"connection: {self._line(error)}", gone=True) from None
        except TimeoutError:
            # A long answer may be late; a server that does not even list its models is away.
            raise Retry(f"no reply within {seconds:.0f} s", gone=body is None) from None
        except (aiohttp.ClientError, OSError) as error:
            raise Retry(f"connection broke: {self._line(error)}") from None

    def _connected(self) -> aiohttp.ClientSession:
        """The session, made where the event loop runs."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections),
                headers={
                    "authorization": f"Bearer {self._key.reveal()}",
                    "content-type": "application/json",
                },
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                proxy=_proxy(self._url),
            )
        return self._session

    def _object(self, raw: bytes) -> JsonObject:
        """The JSON object of a reply without an error in it."""
        data = parsed(raw)
        self._raise_inside(data)
        return data

    def _event(self, event: Event) -> JsonObject:
        """The JSON object of an event, likewise."""
        if event.name == "error":
            self._raise_inside({"error": _error_of(event.data) or "no reason given"})
        return self._object(event.data)

    def _raise_inside(self, data: JsonObject) -> None:
        inside = error_inside(data)
        if inside is not None:
            status, error = inside
            reason = self._one_line(f"an error in the reply: {message_of(error)}")
            raise failure(Seen(status, words=words_of(error)), reason)

    def _refusal(self, response: aiohttp.ClientResponse, raw: bytes) -> Exception:
        """What a reply with a status of errors or redirects means."""
        error = _error_of(raw)
        message = message_of(error) or response.reason or "no reason given"
        if response.status < 400:
            place = hide(response.headers.get("location", "nowhere"))
            message = f"the server redirects to {place}: name the address that answers by itself"
        return failure(
            Seen(response.status, words=words_of(error)),
            self._one_line(f"{response.status}: {message}"),
            after=retry_after(response.headers.get("retry-after")),
        )

    def _line(self, error: BaseException) -> str:
        """One line about an error, without the key."""
        return self._one_line(str(error) or type(error).__name__)

    def _one_line(self, text: str) -> str:
        # The beginning: a page of a megabyte would be searched for secrets with every try.
        return self._key.scrub(" ".join(clean(text[:LONGEST_ERROR]).split()))[:300]


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    """Server-sent events up to ``[DONE]`` or the end."""
    reader = EventReader()
    async for piece in response.content.iter_any():
        for event in reader.feed(piece):
            if event.data == DONE:
                return
            yield event
    for event in reader.end():
        if event.data != DONE:
            yield event


def _error_of(raw: bytes) -> JsonValue:
    """The error in a body, which may be JSON or not."""
    answer: JsonValue
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError):
        answer = raw.decode(errors="replace")
    return answer.get("error", answer) if isinstance(answer, dict) else answer


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for an address; asked once, not with every request."""
    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
    learn(proxy)  # it may hold a password
    return proxy


def base_url(url: str) -> str:
    """The address under which ``/completions`` is: ``/v1`` is added to a bare host."""
    url = url.rstrip("/")
    return url if url.split("://", 1)[-1].count("/") else f"{url}/v1"
