"""Load balancing: requests go where the fewest tokens are in flight, not to failed servers.

A server takes a request while it has fewer than `max_requests` and while the tokens in flight stay
within `max_tokens` (a single request larger than that passes alone). Requests wait in order, so a
long prompt is not overtaken for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from evalkit.engines.openai.client import Client

FIRST_REST = 1.0  # seconds that a server is left out after it did not answer; doubles up to
LONGEST_REST = 60.0


@dataclass(slots=True, eq=False)
class Server:
    """One address and what is under way there.

    Attributes:
        url: base URL.
        client: what sends requests.
        tokens: in flight.
        requests: in flight.
        failures: in a row.
        rests_until: left out until then, on the clock of the pool.
    """

    url: str
    client: Client
    tokens: int = 0
    requests: int = 0
    failures: int = 0
    rests_until: float = field(default=0.0)


class ServerPool:
    """Gives out servers within their limits."""

    def __init__(
        self,
        servers: Sequence[Server],
        *,
        max_requests: int,
        max_tokens: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.servers = tuple(servers)
        self.max_requests = max_requests
        self.max_tokens = max_tokens
        self._clock = clock
        self._turn = asyncio.Lock()
        self._change = asyncio.Event()

    async def acquire(self, cost: int) -> Server:
        """The live server with the fewest tokens in flight, as soon as one has room."""
        async with self._turn:
            while (server := self._free(cost)) is None:
                self._change.clear()
                await self._change.wait()
        server.tokens += cost
        server.requests += 1
        return server

    def release(self, server: Server, cost: int) -> None:
        """Give back what `acquire` took."""
        server.tokens -= cost
        server.requests -= 1
        self._change.set()

    def answered(self, server: Server) -> None:
        """The server is alive."""
        server.failures = 0
        server.rests_until = 0.0

    def failed(self, server: Server) -> None:
        """The server did not answer: leave it out for a while, longer each time.

        Requests that were under way break with the first one, and say nothing new.
        """
        now = self._clock()
        if server.rests_until > now:
            return
        rest = min(FIRST_REST * 2.0 ** min(server.failures, 99), LONGEST_REST)
        server.failures += 1
        server.rests_until = now + rest

    @property
    def live(self) -> tuple[Server, ...]:
        """Servers that are not left out at the moment."""
        now = self._clock()
        return tuple(s for s in self.servers if s.rests_until <= now)

    def _free(self, cost: int) -> Server | None:
        candidates = self.live or (min(self.servers, key=lambda s: s.rests_until),)
        room = [s for s in candidates if self._has_room(s, cost)]
        return min(room, key=lambda s: (s.tokens, s.requests)) if room else None

    def _has_room(self, server: Server, cost: int) -> bool:
        if server.requests >= self.max_requests:
            return False
        return server.tokens == 0 or server.tokens + cost <= self.max_tokens
