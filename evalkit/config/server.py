"""Recipe sections about servers: the client's settings, and where an arm's server runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, model_validator

from evalkit.core.recipe import Strict
from evalkit.core.secrets import hide
from evalkit.dsa.engine_config.versions import choose
from evalkit.dsa.schedule import ScheduleError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TWO_WORDS = re.compile(r"--?[\w-]+\s")
CUSTOM = "custom"

_NOT_IN_BODY = {
    **dict.fromkeys(("n", "best_of", "use_beam_search"), "every sample has one answer"),
    **dict.fromkeys(("echo", "suffix"), "the answer would hold more than was generated"),
    **dict.fromkeys(
        ("messages", "prompt", "prompt_embeds", "input_ids", "truncate_prompt_tokens"),
        "prompts are the sample's",
    ),
    **dict.fromkeys(
        ("max_tokens", "max_completion_tokens"), "the token budget is the sample's or the load's"
    ),
    **dict.fromkeys(("stream", "stream_options"), "say engine.stream"),
    **dict.fromkeys(("model", "models"), "say served_model"),
    **dict.fromkeys(("continue_final_message", "add_generation_prompt"), "say engine.chat_prefix"),
    "temperature": "say engine.temperature",
}
"""Fields of a request that are not free, and why."""


class OpenAIServerConfig(Strict):
    """Servers with an OpenAI-compatible API: SGLang, vLLM, `transformers serve` and others.

    Attributes:
        urls: servers of the arms that name none.
        api: ``ids`` sends token ids to ``/completions`` (SGLang, vLLM), ``text`` the same prompt as
            text, ``chat`` the user's turn to ``/chat/completions``. Samples that a task exempts
            from the chat template go to ``/completions`` in any case.
        stream: take answers piece by piece; a dead server is noticed sooner.
        served_model: name that the servers know; default: the only one they list.
        temperature: 0 is greedy.
        extra_body: further fields of every request, as the server knows them; not those that say
            what is asked, and how many answers there are.
        chat_prefix: how ``chat`` begins the assistant's turn: ``continue`` sends an unfinished
            message (SGLang, vLLM; a server that closes it is refused), ``user`` appends it to the
            user's turn.
        turn_samples: samples that one arm answers before the next arm has its turn.
        max_requests: in flight at each server.
        max_tokens_in_flight: prompt and answer budget, at each server; a larger request goes alone.
        timeout: seconds of any request, and `timeout_per_1k_tokens` more for every 1,000 tokens.
        timeout_per_1k_tokens: see `timeout`.
        retries: further tries of a request; after that it is an error row, tried by the next run.
        backoff: seconds before the first retry, doubled each time, at most a minute.
        max_retry_after: longest wait in seconds that a server may ask for (``Retry-After``).
        api_key_env: name of the environment variable that holds the key.
        api_key_file: file that holds the key.
        probe_prompts: prompts of the behavioural probe before every arm; 0 leaves it out.
        probe_tokens: tokens that each of them continues.
    """

    kind: Literal["openai_server"] = "openai_server"
    urls: tuple[str, ...] = ()
    api: Literal["ids", "text", "chat"] = "ids"
    stream: bool = False
    served_model: str | None = None
    temperature: float = Field(default=0.0, ge=0)
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    chat_prefix: Literal["continue", "user"] = "continue"
    turn_samples: int = Field(default=256, ge=1)
    max_requests: int = Field(default=64, ge=1)
    max_tokens_in_flight: int = Field(default=2_000_000, ge=1)
    timeout: float = Field(default=120.0, gt=0)
    timeout_per_1k_tokens: float = Field(default=10.0, ge=0)
    retries: int = Field(default=8, ge=0)
    backoff: float = Field(default=0.5, gt=0)
    max_retry_after: float = Field(default=600.0, ge=0)
    api_key_env: str | None = None
    api_key_file: str | None = None
    probe_prompts: int = Field(default=4, ge=0)
    probe_tokens: int = Field(default=32, ge=1)

    @model_validator(mode="after")
    def _places(self) -> OpenAIServerConfig:
        check_urls(self.urls)
        check_extra_body(self.extra_body)
        if self.api_key_env is not None and self.api_key_file is not None:
            raise ValueError("give api_key_env or api_key_file, not both")
        if self.api_key_env is not None and not _VARIABLE.fullmatch(self.api_key_env):
            raise ValueError("api_key_env is the name of an environment variable, not a key")
        return self


class ServerConfig(Strict):
    """Where an arm's server runs, how it was started, and what proves its schedule.

    A build of one's own, for example with lagging selections, is ``engine = "custom"``: what makes
    it run the arm's schedule is named by `environment` and `flags`, and proved by `markers`.

    Attributes:
        urls: servers of the arm; default: the engine's.
        engine: language of its settings, a name of `evalkit schedule export` with or without a
            version (``sglang==0.5.23``; a running server says its own), or ``custom``.
        served_model: name that the servers know; default: the engine section's.
        enabled: reuse switched on though every layer is full (frequency 1), or off; default: on
            where the schedule is not the checkpoint's own.
        environment: variables that the server was started with.
        flags: arguments that it was started with; secrets among both are recorded as ``[key]``.
        log: file that the server writes its log to, read by the check.
        markers: regular expressions of log lines that every rank must write.
        fallbacks: regular expressions of log lines that spoil the arm.
        ranks: how many ranks must write each marker; default: one or more.
        build: what the server was built from, for records.
        parity_of: arm of the same schedule on another build that this one is compared with.
    """

    urls: tuple[str, ...] = ()
    engine: str | None = None
    served_model: str | None = None
    enabled: bool | None = None
    environment: dict[str, str] = Field(default_factory=dict)
    flags: tuple[str, ...] = ()
    log: str | None = None
    markers: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    ranks: int | None = Field(default=None, ge=1)
    build: str | None = None
    parity_of: str | None = None

    @model_validator(mode="after")
    def _readable(self) -> ServerConfig:
        check_urls(self.urls)
        if self.engine not in (None, CUSTOM):
            try:
                choose(self.engine)
            except ScheduleError as error:
                raise ValueError(f"server.engine: {error}, or {CUSTOM}") from None
        for name in self.environment:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"server.environment: {name!r} is no name of a variable")
        for flag in self.flags:
            if _TWO_WORDS.match(flag):
                raise ValueError(f"server.flags: write {flag.split()[0]} and its value apart")
        for pattern in (*self.markers, *self.fallbacks):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return self


# Fields that say where and how fast, not what is answered; they leave the identity of a run.
CLIENT_FIELDS = frozenset(
    {"urls", "stream", "served_model", "turn_samples", "max_requests", "max_tokens_in_flight"}
    | {"timeout", "timeout_per_1k_tokens", "retries", "backoff", "max_retry_after"}
    | {"api_key_env", "api_key_file", "probe_prompts", "probe_tokens"}
)
PLACE_FIELDS = frozenset({"urls", "served_model", "log"})


def check_urls(urls: tuple[str, ...]) -> None:
    """Raise `ValueError` for what is no address, or holds a password."""
    for url in urls:
        try:
            parts = urlsplit(url)
            _ = parts.port, (parts.hostname or "").encode("idna")
        except ValueError:
            parts = urlsplit("")
        if parts.username is not None or parts.password is not None:
            raise ValueError("a URL must not hold a user name or password: use api_key_env")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            # Before an @ may stand a password.
            shown = "a URL with an @" if "@" in url else str(hide(url))
            raise ValueError(f"{shown} is not an address: write http://host:port")


def check_extra_body(fields: Mapping[str, JsonValue]) -> None:
    """Raise `ValueError` for fields that would part samples from their answers."""
    for name in fields:
        if name in _NOT_IN_BODY:
            raise ValueError(f"extra_body: {name} is not yours to set: {_NOT_IN_BODY[name]}")
