"""A proxy that breaks what passes through it: overload, crashes, cut and garbled replies."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from urllib.parse import urlsplit

from tests.servers.http import STREAM_END, STREAM_HEAD, Request, Served, chunk, response

KINDS = (
    "429",
    "500",
    "503",
    "drop",  # no reply at all
    "reset",  # the connection is torn down
    "cut",  # the first half of the server's reply, then nothing
    "garbage",  # status 200, not JSON
    "not an object",  # JSON, not what was asked for
    "no choices",
    "error inside",  # status 200 with an error, as an event where it is a stream
    "slow",  # beyond every timeout
    "restart",  # the server is away for a moment, and all its connections with it
)


class FaultyProxy(Served):
    """Forwards to `upstream`; every POST fails with probability `rate`, in one of `kinds`."""

    def __init__(
        self, upstream: str, *, rate: float = 0.3, kinds: tuple[str, ...] = KINDS, seed: int = 0
    ) -> None:
        super().__init__()
        self.upstream = urlsplit(upstream)
        self.rate = rate
        self.kinds = kinds
        self.faults: Counter[str] = Counter()
        self.passed = 0
        self._random = random.Random(seed)

    async def handle(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        if request.method == "POST" and self._random.random() < self.rate:
            # Every kind comes once before any comes twice, so that a short test sees them all.
            kind = min(self.kinds, key=lambda k: (self.faults[k], self._random.random()))
            self.faults[kind] += 1
            return await self._fault(kind, request, writer)
        self.passed += request.method == "POST"
        writer.write(await self._forward(request))
        return False

    async def _forward(self, request: Request) -> bytes:
        """The upstream's whole reply, connection closed behind it."""
        reader, writer = await asyncio.open_connection(self.upstream.hostname, self.upstream.port)
        headers = {k: v for k, v in request.headers.items() if k not in ("connection", "host")}
        lines = [f"{request.method} {request.path} HTTP/1.1", f"host: {self.upstream.netloc}"]
        lines += [f"{k}: {v}" for k, v in headers.items()] + ["connection: close"]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + request.body)
        head = await reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        if b"content-length:" in lowered:
            size = int(lowered.split(b"content-length:")[1].split(b"\r\n")[0])
            data = head + await reader.readexactly(size)
        else:
            data = head
            while not data.endswith(STREAM_END):
                data += await reader.readuntil(b"\r\n")
        writer.close()
        return data

    async def _fault(self, kind: str, request: Request, writer: asyncio.StreamWriter) -> bool:
        stream = bool(request.json.get("stream"))
        if kind in ("429", "500", "503"):
            headers = {"retry-after": "0.01"} if kind == "429" else {}
            writer.write(response({"error": {"message": "try again"}}, int(kind), headers))
            return True
        if kind == "drop":
            return False
        if kind == "reset":
            writer.transport.abort()
            return False
        if kind == "cut":
            data = await self._forward(request)
            head = data.index(b"\r\n\r\n") + 4
            writer.write(data[: head + (len(data) - head) // 2])
            return False
        if kind == "slow":
            await asyncio.sleep(60)
            return False
        if kind == "restart":
            await self._close()
            await asyncio.sleep(0.2)
            await self._listen()
            return False
        bad = {
            "garbage": b"<html>Bad gateway</html>",
            "not an object": b"[1, 2]",
            "no choices": b'{"id": "x", "choices": []}',
            "error inside": b'{"error": "the worker died"}',
        }[kind]
        if stream:
            writer.write(STREAM_HEAD + chunk(b"data: " + bad + b"\n\n") + STREAM_END)
        else:
            writer.write(response(bad))
        return True
