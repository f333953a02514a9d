"""An aiohttp server that answers as it is told: any status, body, headers, events, or silence."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

WAYS = list(itertools.product(["text", "chat"], [False, True]))
ways = pytest.mark.parametrize(("api", "stream"), WAYS)
"""Every way in which an answer can be asked for."""

Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


class Misbehaving:
    """Every completion request is answered by `answer`, in a thread of its own.

    Attributes:
        seen: bodies of the completion requests, in order.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.seen: list[dict[str, Any]] = []
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None

    def __enter__(self) -> Misbehaving:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _start(self) -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/{path:.*}", self._complete)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny"}]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.seen.append(body)
        return await self.answer(request, body)


async def events(request: web.Request, *data: Any, done: bool = True) -> web.StreamResponse:
    """A stream of server-sent events: JSON of `data` (text goes out as it is)."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for item in data:
        text = item if isinstance(item, str) else json.dumps(item)
        await response.write(f"data: {text}\n\n".encode())
    if done:
        await response.write(b"data: [DONE]\n\n")
    return response


def choice(request: web.Request, content: Any, finish: Any, *, piece: bool = False) -> Any:
    """A choice of a chat or text completion, or of one piece of it."""
    if "chat" not in request.path:
        return {"index": 0, "text": content, "finish_reason": finish}
    name = "delta" if piece else "message"
    return {"index": 0, name: {"content": content}, "finish_reason": finish}


async def answered(
    request: web.Request, body: dict[str, Any], content: Any, finish: Any, **more: Any
) -> web.StreamResponse:
    """A completion, as a stream where that was asked for."""
    if not body.get("stream"):
        return web.json_response({"choices": [choice(request, content, finish)], **more})
    first = choice(request, content, None, piece=True)
    last = choice(request, None, finish, piece=True)
    return await events(request, {"choices": [first]}, {"choices": [last], **more})


def ended(finish: Any, content: Any = "said", tokens: int | None = None) -> Answer:
    """Completions that end so, with a count of their tokens where one is given."""
    counts = {} if tokens is None else {"usage": {"prompt_tokens": 0, "completion_tokens": tokens}}

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await answered(request, body, content, finish, **counts)

    return answer


def error(status: int, message: str = "no", **more: Any) -> Answer:
    """Refusals."""

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": message, **more}}, status=status)

    return answer
