"""Load generator: sends requests to the servers of one arm and times every streamed piece."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Prompt
from evalkit.dsa.json_types import JsonObject
from evalkit.engines.openai.api_keys import Key
from evalkit.engines.openai.client import Client
from evalkit.engines.openai.replies import Refused, Rejected, Retry, ending
from evalkit.engines.openai.reply_body import Reply
from evalkit.engines.openai.server_pool import Server, ServerPool
from evalkit.engines.openai.wire import Wire, served_models


class TimingRow(TypedDict):
    """A `Timing` in rounds.jsonl."""

    number: int
    due: float
    sent: float
    arrivals: list[float]
    input_tokens: int
    output_tokens: int
    cached_tokens: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Timing:
    """One request; times in seconds after the start of its round.

    Attributes:
        number: of the request.
        due: when it arrived.
        sent: when it was sent: later than `due` where all places were taken.
        arrivals: when pieces of the answer came.
        input_tokens: by the server's count, else ours.
        output_tokens: by the server's count; else one per piece.
        cached_tokens: of the input that came out of the prefix cache, or None.
        error: one line where it failed, else None.
    """

    number: int
    due: float
    sent: float
    arrivals: tuple[float, ...]
    input_tokens: int
    output_tokens: int
    cached_tokens: int | None = None
    error: str | None = None

    @property
    def end(self) -> float:
        """When the last piece came."""
        return self.arrivals[-1] if self.arrivals else self.sent

    def row(self) -> TimingRow:
        """For the records, in microseconds' precision."""
        return {
            "number": self.number,
            "due": round(self.due, 6),
            "sent": round(self.sent, 6),
            "arrivals": [round(t, 6) for t in self.arrivals],
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "error": self.error,
        }

    @classmethod
    def of(cls, row: TimingRow) -> Timing:
        """The inverse of `row`."""
        return cls(
            number=row["number"],
            due=row["due"],
            sent=row["sent"],
            arrivals=tuple(row["arrivals"]),
            input_tokens=row["input_tokens"],
            output_tokens=row["output_tokens"],
            cached_tokens=row["cached_tokens"],
            error=row["error"],
        )


async def drive(
    wire: Wire,
    urls: Sequence[str],
    key: Key,
    prompts: Sequence[Prompt],
    due: Sequence[float],
    *,
    concurrency: int,
    extra_body: JsonObject,
    served_model: str | None = None,
) -> list[Timing]:
    """Send every prompt when it is due and a slot is free; nothing is retried.

    Raises:
        EvalkitError: the server refuses all requests.
    """
    servers = [Server(url, Client(url, key, connections=concurrency)) for url in urls]
    pool = ServerPool(servers, max_requests=concurrency, max_tokens=2**62)
    places = asyncio.Semaphore(concurrency)
    try:
        model = served_model or await _model(servers[0])
        start = time.perf_counter()

        async def one(number: int, prompt: Prompt, at: float) -> Timing:
            await asyncio.sleep(max(0.0, at - (time.perf_counter() - start)))
            async with places:
                server = await pool.acquire(wire.cost(prompt))
                try:
                    return await _timed(server, number, prompt, at)
                finally:
                    pool.release(server, wire.cost(prompt))

        async def _timed(server: Server, number: int, prompt: Prompt, at: float) -> Timing:
            body = {**wire.body(prompt, model), **extra_body}
            body |= {"stream": True, "stream_options": {"include_usage": True}}
            sent = time.perf_counter()
            try:
                reply = await server.client.complete(wire.path(prompt), body, wire.seconds(prompt))
                ending(reply.finish_reason)
            except (Retry, Rejected) as error:
                late = sent - start
                return Timing(number, at, late, (), len(prompt.token_ids), 0, None, str(error))
            return _timing(number, prompt, at, reply, start)

        jobs = [one(n, p, at) for n, (p, at) in enumerate(zip(prompts, due, strict=True))]
        return list(await asyncio.gather(*jobs))
    except Refused as error:
        raise EvalkitError(str(error)) from None
    finally:
        for server in servers:
            await server.client.close()


def _timing(number: int, prompt: Prompt, due: float, reply: Reply, start: float) -> Timing:
    tokens = reply.generated
    return Timing(
        number=number,
        due=due,
        sent=reply.sent - start,
        arrivals=tuple(t - start for t in reply.arrivals),
        input_tokens=len(prompt.token_ids) if reply.prompt_tokens is None else reply.prompt_tokens,
        output_tokens=len(reply.arrivals) if tokens is None else tokens,
        cached_tokens=reply.cached_tokens,
        error=None if reply.arrivals else "no text came",
    )


async def _model(server: Server) -> str:
    try:
        names = served_models(await server.client.get("/models"))
    except (Retry, Rejected) as error:
        raise EvalkitError(f"{server.url}: {error}") from None
    if len(names) != 1:
        raise EvalkitError(f"{server.url} lists {len(names)} models: set served_model")
    return names[0]
