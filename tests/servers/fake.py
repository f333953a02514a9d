"""A server that answers by rule: OpenAI's endpoints and what SGLang and vLLM say of themselves."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from typing import Any

from tests.servers.http import STREAM_END, STREAM_HEAD, Request, Served, chunk, response


def rule(prompt: Any, max_tokens: int) -> list[str]:
    """The answer to a prompt: up to `max_tokens` words that depend on all of it."""
    digest = hashlib.sha256(json.dumps(prompt).encode()).digest()
    count = min(max_tokens, 2 + digest[0] % 6)
    return [f" w{byte % 50}" for byte in digest[1 : count + 1]]


class FakeServer(Served):
    """`tokenizer` counts text prompts; `reports` maps GET paths to what they answer.

    Attributes:
        seen: bodies of completion requests, in order.
        most: the most requests that were in flight at once, and their tokens.
    """

    def __init__(
        self,
        *,
        model: str = "tiny",
        takes_ids: bool = True,
        tokenizer: Any = None,
        reports: dict[str, Any] | None = None,
        key: str | None = None,
        delay: float = 0.0,
        piece_delay: float = 0.0,
        answer: Any = rule,
        reasoning: tuple[str, str] | None = None,
        done_event: bool = True,
    ) -> None:
        super().__init__()
        self.model = model
        self.takes_ids = takes_ids
        self.tokenizer = tokenizer
        self.reports = reports or {}
        self.key = key
        self.delay = delay
        self.piece_delay = piece_delay
        self.answer = answer
        self.reasoning = reasoning
        self.done_event = done_event
        self.seen: list[dict[str, Any]] = []
        self.paths: Counter[str] = Counter()
        self.flying: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def handle(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        self.paths[request.path] += 1
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            sent = request.headers.get("authorization", "")
            error = {"error": {"message": f"Incorrect API key provided: {sent}"}}
            writer.write(response(error, 401))
            return True
        if request.method == "GET":
            writer.write(self._report(request.path))
            return True
        if request.path in ("/generate", "/collective_rpc"):
            reply = self.reports.get(request.path)
            data = reply(request.json) if callable(reply) else reply
            writer.write(response(data if data else {"error": "no"}, 200 if data else 404))
            return True
        body = request.json
        self.seen.append(body)
        if self.delay:
            await self._wait(body)
        await self.complete(request.path, body, writer)
        return True

    async def _wait(self, body: dict[str, Any]) -> None:
        tokens = len(body.get("prompt") or "") + body["max_tokens"]
        for key, amount in (("requests", 1), ("tokens", tokens)):
            self.flying[key] += amount
            self.most[key] = max(self.most[key], self.flying[key])
        await asyncio.sleep(self.delay)
        self.flying["requests"] -= 1
        self.flying["tokens"] -= tokens

    def _report(self, path: str) -> bytes:
        if path == "/v1/models" and path not in self.reports:
            return response({"object": "list", "data": [{"id": self.model, "object": "model"}]})
        report = self.reports.get(path)
        if report is None:
            return response({"detail": "Not Found"}, 404)
        report = report() if callable(report) else report
        return response(report.encode() if isinstance(report, str) else report)

    def _count(self, body: dict[str, Any]) -> int:
        prompt = body.get("prompt")
        if prompt is None:
            return sum(len(m["content"]) for m in body["messages"])
        return len(self.tokenizer.encode(prompt)) if isinstance(prompt, str) else len(prompt)

    async def complete(self, path: str, body: dict[str, Any], writer: Any) -> None:
        prompt = body.get("prompt", body.get("messages"))
        if isinstance(body.get("prompt"), list) and not self.takes_ids:
            writer.write(response({"detail": "prompt must be a string."}, 400))
            return
        if body["model"] != self.model:
            writer.write(response({"error": {"message": f"no model {body['model']}"}}, 404))
            return
        pieces = self.answer(prompt, body["max_tokens"])
        reason = "length" if len(pieces) >= body["max_tokens"] else "stop"
        count = self._count(body)
        usage = {"prompt_tokens": count, "completion_tokens": len(pieces)}
        usage["total_tokens"] = sum(usage.values())
        if body.get("stream"):
            await self._stream(path, pieces, reason, usage, writer)
            return
        choice = self._choice(path, "".join(pieces)) | {"index": 0, "finish_reason": reason}
        writer.write(response({"id": "x", "choices": [choice], "usage": usage}))

    def _choice(self, path: str, text: str) -> dict[str, Any]:
        if "chat" not in path:
            return {"text": text}
        thought = {self.reasoning[0]: self.reasoning[1]} if self.reasoning else {}
        return {"message": {"role": "assistant", "content": text, **thought}}

    async def _stream(
        self, path: str, pieces: list[str], reason: str, usage: dict[str, int], writer: Any
    ) -> None:
        def event(choice: dict[str, Any] | None, **more: Any) -> bytes:
            data = {"id": "x", "choices": [choice] if choice else [], **more}
            return chunk(f"data: {json.dumps(data)}\n\n".encode())

        writer.write(STREAM_HEAD)
        chat = "chat" in path
        if chat and self.reasoning:
            delta = {self.reasoning[0]: self.reasoning[1]}
            writer.write(event({"index": 0, "delta": delta, "finish_reason": None}))
        for piece in pieces:
            text = {"delta": {"content": piece}} if chat else {"text": piece}
            writer.write(event({"index": 0, "finish_reason": None, **text}))
            await writer.drain()
            await asyncio.sleep(self.piece_delay)
        last = {"delta": {}} if chat else {"text": ""}
        if self.done_event:  # vLLM, SGLang: finish reason, then usage, then [DONE]
            writer.write(event({"index": 0, "finish_reason": reason, **last}))
            writer.write(event(None, usage=usage))
            writer.write(chunk(b"data: [DONE]\n\n"))
        else:  # transformers serve: finish reason and usage together, no [DONE]
            writer.write(event({"index": 0, "finish_reason": reason, **last}, usage=usage))
        writer.write(STREAM_END)
