"""Engine of OpenAI-compatible servers: retries, load balancing, no answer lost."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from evalkit.config.arm import ArmConfig
from evalkit.config.server import OpenAIServerConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.printable import printable
from evalkit.core.secrets import redact_message
from evalkit.core.types import Completion, Prompt
from evalkit.dsa import Layout, ReuseSchedule
from evalkit.dsa.json_types import JsonValue
from evalkit.engines.openai.api_keys import Key, read_key, warn_plain_http
from evalkit.engines.openai.chat_turns import closes_turns, continues_turns
from evalkit.engines.openai.client import Client
from evalkit.engines.openai.replies import Refused, Rejected, Retry
from evalkit.engines.openai.reply_body import Reply, clean
from evalkit.engines.openai.server_pool import Server, ServerPool
from evalkit.engines.openai.wire import HARMLESS, Wire, served_models
from evalkit.prompts.tokenizers import ChatTokenizer

LONGEST_BACKOFF = 60.0
_TEMPLATE = "another chat template"
GATHER_SECONDS = 0.02  # answers that come together are written together
_log = logging.getLogger("evalkit")


@dataclass(slots=True)
class _Known:
    """What was learnt of the servers, for all blocks of a run.

    Attributes:
        models: name of the only model by URL.
        close_turns: by URL, whether an assistant turn that is to go on is closed there.
        said: what was said once, and is not said again.
    """

    models: dict[str, str] = field(default_factory=dict)
    close_turns: dict[str, bool] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)


class OpenAIServerEngine:
    """Sends the prompts of an arm to its servers."""

    def __init__(self, config: OpenAIServerConfig) -> None:
        self.config = config
        self.key: Key = read_key(config.api_key_env, config.api_key_file)
        self.model = ""
        self._wire: Wire | None = None
        self.layout: Layout | None = None
        self._known = _Known()

    def load(self, model: str) -> dict[str, JsonValue]:
        """Tokenizer and schedule of the checkpoint; the weights are the servers' business."""
        from evalkit.core.model_info import model_layout
        from evalkit.prompts.tokenizers import load_tokenizer

        self.model = model
        self._wire = Wire(self.config, load_tokenizer(model))
        self.layout = model_layout(model)
        model_type = None if self.layout is None else self.layout.model_type
        return {"weights_sha256": None, "model_type": model_type}

    @property
    def wire(self) -> Wire:
        """Requests and completions in the tokens of the loaded checkpoint."""
        if self._wire is None:
            raise RuntimeError("load a model first")
        return self._wire

    @property
    def tokenizer(self) -> ChatTokenizer:
        """Of the loaded checkpoint."""
        return self.wire.tokenizer

    def native(self) -> ReuseSchedule | None:
        """The checkpoint's own schedule."""
        return None if self.layout is None else self.layout.native

    def engagement(self) -> dict[str, JsonValue]:
        """Nothing by itself: see `evalkit.engagement.check`."""
        return {"verdict": "unknown: the server was not asked"}

    def urls(self, arm: ArmConfig) -> tuple[str, ...]:
        """Servers of an arm.

        Raises:
            EvalkitError: neither the arm nor the engine names one.
        """
        urls = (arm.server.urls if arm.server else ()) or self.config.urls
        if not urls:
            raise EvalkitError(
                f"arm {arm.name}: no server: set engine.urls, or server.urls of the arm"
            )
        return urls

    def served_model(self, arm: ArmConfig) -> str | None:
        """Name under which the servers know an arm's checkpoint, where the recipe says it."""
        return (arm.server.served_model if arm.server else None) or self.config.served_model

    def answer(
        self,
        arm: ArmConfig,
        schedule: ReuseSchedule | None,  # noqa: ARG002 - the server was started with it
        prompts: Sequence[Prompt],
        done: Collection[str],
    ) -> Iterator[list[Completion]]:
        """Answers as they come; what had come when Ctrl-C was pressed is handed out first."""
        left = [prompt for prompt in prompts if prompt.sample.id not in done]
        urls = self.urls(arm)
        for url in urls:
            warn_plain_http(url, self.key)
        with asyncio.Runner() as runner:
            work = runner.run(self._start(arm, urls, left))
            try:
                while not work.finished:
                    yield runner.run(work.gather())
            except KeyboardInterrupt:
                yield work.arrived()
                raise
            except Refused as error:
                yield work.arrived()
                raise EvalkitError(f"arm {arm.name}: {error}") from None
            finally:
                runner.run(work.close())

    async def _start(self, arm: ArmConfig, urls: Sequence[str], left: Sequence[Prompt]) -> _Work:
        servers = [Server(url, Client(url, self.key)) for url in urls]
        pool = ServerPool(
            servers,
            max_requests=self.config.max_requests,
            max_tokens=self.config.max_tokens_in_flight,
        )
        work = _Work(self.wire, pool, left, self.served_model(arm), self._known)
        work.start()
        return work


class _Work:
    """Requests of one block under way."""

    def __init__(
        self,
        wire: Wire,
        pool: ServerPool,
        prompts: Sequence[Prompt],
        served_model: str | None,
        known: _Known,
    ) -> None:
        self._wire = wire
        self._config = wire.config
        self._pool = pool
        self._todo = iter(prompts)
        self._left = len(prompts)
        self._named = served_model
        self._known = known
        self._ready: list[Completion] = []
        self._came = asyncio.Event()
        self._problem: Exception | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._last_answer = 0.0
        self._doubting = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._said_until = 0.0

    @property
    def finished(self) -> bool:
        """Whether every prompt was handed out."""
        return self._left == 0

    def start(self) -> None:
        """Begin; the running event loop does the rest."""
        count = min(self._left, self._config.max_requests * len(self._pool.servers))
        self._tasks = [asyncio.create_task(self._worker()) for _ in range(count)]

    async def gather(self) -> list[Completion]:
        """Wait for an answer, and take those that come right behind it.

        Raises:
            Refused: the servers take nothing from us.
        """
        await self._came.wait()
        if len(self._ready) < self._left and self._problem is None:
            await asyncio.sleep(GATHER_SECONDS)
        if self._problem is not None:
            raise self._problem
        return self.arrived()

    def arrived(self) -> list[Completion]:
        """What has come and was not handed out."""
        completions, self._ready = self._ready, []
        self._came.clear()
        self._left -= len(completions)
        return completions

    async def close(self) -> None:
        """Abandon what is under way and close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._pool.servers:
            await server.client.close()

    async def _worker(self) -> None:
        for prompt in self._todo:
            try:
                completion = await self._one(prompt)
                self._ready.append(completion)  # not in one line: `_ready` changes while we wait
            except Exception as error:
                self._problem = self._problem or error
            self._came.set()
            if self._problem is not None:
                return

    async def _one(self, prompt: Prompt) -> Completion:
        """An answer, or an error row where it is the prompt that gets none.

        Raises:
            Refused: the server is at fault.
        """
        begun = time.monotonic()
        try:
            return await self._answer(prompt)
        except Retry as failure:
            await self._doubt(prompt, begun, f"does not answer: {failure}")
            return self._wire.error(prompt, str(failure))
        except Rejected as failure:
            if failure.doubtful and not self._last_answer:
                await self._doubt(prompt, begun, f"rejects every request: {failure}")
            return self._wire.error(prompt, str(failure))

    async def _answer(self, prompt: Prompt) -> Completion:
        """An answer, tried until it comes or the tries are used up.

        Raises:
            Retry, Rejected, Refused: there is none; see there.
        """
        tries = moves = 0
        while True:
            try:
                completion = await self._try(prompt)
                self._last_answer = time.monotonic()
                return completion
            except Rejected as refusal:
                if not refusal.doubtful:  # it knows what it does not answer
                    self._last_answer = time.monotonic()
                raise
            except Retry as failure:
                moves += 1
                if failure.gone and self._pool.live and moves < len(self._pool.servers):
                    continue  # another server may take it at once
                moves = 0
                tries += 1
                if tries > self._config.retries:
                    raise Retry(f"given up after {tries} tries: {failure}") from None
                await asyncio.sleep(self._pause(tries - 1, failure.after))

    async def _doubt(self, prompt: Prompt, since: float, problem: str) -> None:
        """Ask for something harmless where nothing was answered since a prompt was sent first.

        Raises:
            Refused: that is not answered either, so it is not the prompt.
        """
        async with self._doubting:
            if self._last_answer >= since:
                return
            try:
                await self._answer(self._wire.harmless(prompt))
            except (Retry, Rejected) as failure:
                if self._last_answer < since:
                    raise Refused(
                        f"the server {problem}; asked {HARMLESS!r}, it does the same"
                    ) from failure

    async def _try(self, prompt: Prompt) -> Completion:
        cost = self._wire.cost(prompt)
        server = await self._pool.acquire(cost)
        try:
            model = await self._model(server)
            body = self._wire.body(prompt, model)
            await self._check_turns(server, prompt, model)
            reply = await server.client.complete(
                self._wire.path(prompt), body, self._wire.seconds(prompt)
            )
            self._note_model(model, reply.model)
            self._note_template(prompt, reply)
            completion = self._wire.completion(prompt, reply)
            self._pool.answered(server)
            return completion
        except Retry as failure:
            if failure.gone:
                self._pool.failed(server)
            raise
        finally:
            self._pool.release(server, cost)

    def _note_model(self, asked: str, answered: str | None) -> None:
        """Say once that another model answers: gateways fall back to one without an error."""
        if answered is not None and answered != asked and answered not in self._known.said:
            self._known.said.add(answered)
            _log.warning(
                "model %s was asked, and %s answers: is that the arm's checkpoint?",
                asked,
                printable(redact_message(clean(answered))),
            )

    def _note_template(self, prompt: Prompt, reply: Reply) -> None:
        """Say once that the server renders chats otherwise than the checkpoint's own template."""
        if self._wire.other_template(prompt, reply) and _TEMPLATE not in self._known.said:
            self._known.said.add(_TEMPLATE)
            _log.warning(
                "%s: the server read %d tokens where the checkpoint's chat template makes %d:"
                " it renders chats by another one",
                prompt.sample.id,
                reply.prompt_tokens,
                len(prompt.token_ids),
            )

    async def _model(self, server: Server) -> str:
        """Name of the model at a server: the one that was named, or the only one it lists."""
        if self._named is not None:
            return self._named
        if server.url not in self._known.models:
            try:
                names = served_models(await server.client.get("/models"))
            except Refused as refusal:
                raise Refused(f"{server.url}: list of models: {refusal}") from None
            if len(names) != 1:
                listed = ", ".join(names) or "none"
                raise Refused(
                    f"{server.url} lists {len(names)} models ({listed}): set served_model"
                )
            self._known.models[server.url] = names[0]
        return self._known.models[server.url]

    async def _check_turns(self, server: Server, prompt: Prompt, model: str) -> None:
        """Raise `Refused` where the answer prefix would be a turn that is over."""
        if not continues_turns(self._wire, prompt):
            return
        close = self._known.close_turns
        async with self._asking:
            if server.url not in close:
                close[server.url] = await closes_turns(server.client, self._wire, prompt, model)
        if close[server.url]:
            raise Refused(
                f"{server.url} closes the assistant's turn behind the answer prefix instead of"
                " going on with it, as vLLM does with its own chat encodings of DeepSeek: use"
                " engine.api = ids or engine.chat_prefix = user"
            )

    def _pause(self, tries: int, after: float) -> float:
        """Seconds before the next try: exponential, spread, no less than the server asked for.

        What it asks for is capped, and said where it is longer than any pause of our own.
        """
        longest = min(self._config.backoff * 2.0 ** min(tries, 99), LONGEST_BACKOFF)
        wait = min(after, self._config.max_retry_after)
        if wait > LONGEST_BACKOFF and time.monotonic() >= self._said_until:
            self._said_until = time.monotonic() + wait
            _log.warning(
                "the server asks to be left alone for %.0f s: the next try is in %.0f s",
                after,
                wait,
            )
        return max(wait, random.uniform(0.5, 1.0) * longest)
