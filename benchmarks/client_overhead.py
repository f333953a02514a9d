"""Requests per second of the server client, beside a bare HTTP loop and lm-evaluation-harness.

    python benchmarks/client_overhead.py [--concurrency 1 16 64 256] [--requests 400] [--repeats 3]

All clients send the same prompts to the same trivial server on loopback, in turns in one process;
the server is a process of its own. The medians of the repeats are printed: requests per second, and
processor time of the client per request, which a busy machine disturbs less. The harness column
needs `pip install lm-eval` (its `local-completions`); it is left out where that is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Send = Callable[[Sequence[Any]], int]
MODEL = Path(__file__).parents[1] / "recipes" / "tiny" / "model"
TOKENS = 8
REPLY = json.dumps(
    {
        "id": "x",
        "object": "text_completion",
        "model": "tiny",
        "choices": [{"index": 0, "text": " an answer", "finish_reason": "length"}],
    }
)
WORDS = "The calm badger keeps an apple in the basket by the arrow. "


class Trivial(asyncio.Protocol):
    """Answers every POST with the same completion, and GET with the list of models."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end].lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.data) < end + 4 + size:
                return
            body, self.data = self.data[end + 4 : end + 4 + size], self.data[end + 4 + size :]
            self.transport.write(self.answer(head, body))

    def answer(self, head: bytes, body: bytes) -> bytes:
        text = '{"object":"list","data":[{"id":"tiny"}]}'
        if head.startswith(b"post"):
            prompt = json.loads(body)["prompt"]
            prompt = prompt[0] if prompt and isinstance(prompt[0], list) else prompt
            usage = {"prompt_tokens": len(prompt), "completion_tokens": TOKENS}
            text = f'{REPLY[:-1]}, "usage": {json.dumps(usage)}}}'
        raw = text.encode()
        lines = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
        return lines + str(len(raw)).encode() + b"\r\n\r\n" + raw


def serve(port: Any) -> None:
    """Listen on a free port of loopback, and say which."""

    async def listen() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Trivial, "127.0.0.1", 0, backlog=1024)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(listen())


def bare(url: str, concurrency: int) -> Send:
    """A loop around the HTTP client of the SDK: no retries, no records, no checks."""
    import httpx2

    async def loop(prompts: Sequence[Any]) -> int:
        todo, answers = iter(prompts), 0
        limits = httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)

        async def worker(client: httpx2.AsyncClient) -> None:
            nonlocal answers
            for prompt in todo:
                body = {"model": "tiny", "prompt": list(prompt.token_ids), "max_tokens": TOKENS}
                body["temperature"] = 0
                reply = await client.post(f"{url}/v1/completions", json=body)
                answers += bool(reply.json()["choices"][0]["text"])

        async with httpx2.AsyncClient(limits=limits, timeout=60) as client:
            await asyncio.gather(*(worker(client) for _ in range(concurrency)))
        return answers

    return lambda prompts: asyncio.run(loop(prompts))


def ours(url: str, concurrency: int) -> Send:
    """The engine as `evalkit run` uses it: pool, retries, checks of every reply."""
    from evalkit.config.arm import ArmConfig
    from evalkit.config.server import OpenAIServerConfig
    from evalkit.engines.openai.engine import OpenAIServerEngine

    engine = OpenAIServerEngine(OpenAIServerConfig(urls=(url,), max_requests=concurrency))
    engine.load(str(MODEL))

    def send(prompts: Sequence[Any]) -> int:
        batches = engine.answer(ArmConfig(name="a"), None, prompts, ())
        return sum(completion.error is None for batch in batches for completion in batch)

    return send


def harness(url: str, concurrency: int) -> Send | None:
    """lm-evaluation-harness, `local-completions`, token ids like the others."""
    try:
        from lm_eval.api.instance import Instance
        from lm_eval.models.openai_completions import LocalCompletionsAPI
    except ImportError:
        return None
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    model = LocalCompletionsAPI(
        base_url=f"{url}/v1/completions",
        model="tiny",
        tokenizer=str(MODEL),
        tokenizer_backend="huggingface",
        tokenized_requests=True,
        num_concurrent=concurrency,
        max_length=2048,
    )

    def send(prompts: Sequence[Any]) -> int:
        options = {"until": [], "max_gen_toks": TOKENS, "temperature": 0}
        asked = [
            Instance("generate_until", {}, (prompt.text, {**options}), number)
            for number, prompt in enumerate(prompts)
        ]
        return sum(bool(text) for text in model.generate_until(asked, disable_tqdm=True))

    return send


def prompts_of(count: int) -> list[Any]:
    """Distinct prompts of about a hundred tokens."""
    from evalkit.core.types import Sample
    from evalkit.prompts.renderer import ChatRenderer
    from evalkit.prompts.tokenizers import load_tokenizer

    render = ChatRenderer(load_tokenizer(str(MODEL))).render
    return [
        render(Sample(f"s/{i}", "s", f"{i} {WORDS * 6}", ("x",), "none", TOKENS, chat=False))
        for i in range(count)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    port: Any = context.Queue()
    server = context.Process(target=serve, args=(port,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{port.get(timeout=60)}"
    clients = {"bare loop": bare, "evalkit": ours, "harness": harness}
    prompts = prompts_of(args.requests)
    print("requests per second (client's processor time per request, ms)")
    print(f"{'at once':>8}" + "".join(f"{name:>20}" for name in clients) + f"{'ours ÷ bare':>14}")
    least: dict[str, float] = {}
    for concurrency in args.concurrency:
        sends = {name: make(url, concurrency) for name, make in clients.items()}
        rates: dict[str, list[float]] = {name: [] for name in clients}
        costs: dict[str, list[float]] = {name: [] for name in clients}
        for _ in range(args.repeats):
            for name, send in sends.items():
                if send is None:
                    continue
                start, busy = time.perf_counter(), time.process_time()
                answered = send(prompts)
                seconds, busy = time.perf_counter() - start, time.process_time() - busy
                if answered != len(prompts):
                    raise SystemExit(f"{name}: {answered} answers to {len(prompts)} prompts")
                rates[name].append(len(prompts) / seconds)
                costs[name].append(1000 * busy / len(prompts))
        cells = [
            f"{statistics.median(rates[n]):.0f} ({statistics.median(costs[n]):.2f})"
            if rates[n]
            else "not installed"
            for n in clients
        ]
        for name in ("bare loop", "harness"):
            if rates[name]:
                ratio = statistics.median(rates["evalkit"]) / statistics.median(rates[name])
                least[name] = min(ratio, least.get(name, ratio))
        share = statistics.median(rates["evalkit"]) / statistics.median(rates["bare loop"])
        print(f"{concurrency:>8}" + "".join(f"{cell:>20}" for cell in cells) + f"{share:>14.2f}")
    server.terminate()
    print(json.dumps(least))


if __name__ == "__main__":
    main()
