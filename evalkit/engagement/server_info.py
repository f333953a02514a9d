"""What a server reports of itself: SGLang, vLLM, `transformers serve`, or models only."""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlencode

import httpx2

from evalkit.core.errors import EvalkitError, in_one_line
from evalkit.core.model_info import read_config
from evalkit.core.secrets import hide, learn, redact_message
from evalkit.dsa.config_fields import text_config
from evalkit.dsa.engine_config.parse import PLUGIN_FIELD
from evalkit.dsa.json_types import JsonObject, JsonValue, as_list, as_object
from evalkit.engines.openai.api_keys import Key, split_query

REUSE_FIELDS = (
    *("use_index_cache", "index_topk_freq", "index_skip_topk_offset"),
    *("index_topk_pattern", "indexer_types", "cli_factor"),
    PLUGIN_FIELD,
)
SGLANG_SETTINGS = (
    *("tp_size", "dp_size", "pp_size", "chunked_prefill_size", "disable_radix_cache"),
    *("enable_return_indexer_topk", "speculative_algorithm", "kv_cache_dtype"),
    *("enable_cache_report", "disaggregation_mode", "disable_cuda_graph"),
    *("enable_dp_attention", "enable_two_batch_overlap", "dsa_topk_backend"),
)
VLLM_SETTINGS = (
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
    *("enable_dbo", "sparse_indexer_topk_backend"),
)
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server in its own words.

    Attributes:
        url: where it was asked.
        kind: ``sglang``, ``vllm``, ``transformers`` or ``unknown``.
        version: as it says, or "".
        models: names and paths under which it knows its models.
        overrides: configuration fields it was started with; None where it does not tell.
        positions: tokens of a prompt and its answer that it takes at most; None where it does not
            tell.
        settings: further settings that decide what is measured, as far as it tells.
    """

    url: str
    kind: str
    version: str = ""
    models: tuple[str, ...] = ()
    overrides: JsonObject | None = None
    settings: JsonObject = field(default_factory=dict)
    positions: int | None = None

    def facts(self) -> dict[str, JsonValue]:
        """For run.json: no address, and nothing that looks like a secret."""
        return {
            "kind": self.kind,
            "version": self.version,
            "models": [redact_message(model) for model in self.models],
            "overrides": hide(self.overrides, inside=True),
            "settings": hide(self.settings, inside=True),
        }


class JsonClient:
    """GET and POST of JSON beside the OpenAI endpoints; None for paths that a server lacks.

    Every request has a time for all of it, however slowly its bytes come.
    """

    def __init__(self, url: str, key: Key) -> None:
        address, self._query = split_query(url)
        root = address.rstrip("/").removesuffix("/v1")
        headers = {"authorization": f"Bearer {key.reveal()}"} if key else {}
        self.url = url
        self._key = key
        self._client = httpx2.AsyncClient(base_url=root, headers=headers, timeout=None)
        self._runner = asyncio.Runner()

    def __enter__(self) -> JsonClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()

    def _exchange(
        self, method: str, path: str, seconds: float, body: JsonObject | None = None
    ) -> httpx2.Response:
        """A whole response.

        Raises:
            httpx2.HTTPError, TimeoutError: there is none.
        """

        async def exchange() -> httpx2.Response:
            async with asyncio.timeout(seconds):
                return await self._client.request(method, self._at(path), json=body)

        return self._runner.run(exchange())

    def get(self, path: str) -> JsonValue:
        """JSON of a path; None where the server has no such path, or it is not JSON.

        Raises:
            EvalkitError: the server cannot be reached.
        """
        text = self.text(path)
        return None if text is None else _parsed(text)

    def _at(self, path: str) -> str:
        """A path with the address's own query behind it."""
        if not self._query:
            return path
        return f"{path}{'&' if '?' in path else '?'}{urlencode(self._query)}"

    def text(self, path: str) -> str | None:
        """Text of a path; None where the server has no such path.

        Raises:
            EvalkitError: the server cannot be reached, or refuses the key.
        """
        try:
            response = self._exchange("GET", path, _SECONDS)
        except TimeoutError:
            raise EvalkitError(f"{self.url}: no whole answer within {_SECONDS:.0f} s") from None
        except httpx2.HTTPError as error:
            raise EvalkitError(
                f"{self.url}: no answer: {self._key.scrub(in_one_line(error))}"
            ) from None
        if response.status_code in (401, 403):
            raise EvalkitError(f"{self.url}: the server refuses the key ({response.status_code})")
        return response.text if response.status_code == 200 else None

    def post(self, path: str, body: JsonObject, seconds: float) -> JsonValue:
        """JSON answer to a JSON body; None where there is none."""
        try:
            response = self._exchange("POST", path, seconds, dict(body))
        except (httpx2.HTTPError, TimeoutError):
            return None
        return _parsed(response.text) if response.status_code == 200 else None


def read_server(url: str, key: Key) -> ServerInfo:
    """What the server at an address reports of itself.

    Raises:
        EvalkitError: it cannot be reached, or refuses the key.
    """
    with JsonClient(url, key) as client:
        return read_server_info(client)


def read_server_info(client: JsonClient) -> ServerInfo:
    """What a server reports of itself.

    Raises:
        EvalkitError: it cannot be reached, or refuses the key.
    """
    listing = as_list(as_object(client.get("/v1/models")).get("data"))
    entries = [as_object(entry) for entry in listing]
    told = [length for entry in entries if isinstance(length := entry.get("max_model_len"), int)]
    return replace(_described(client, entries), positions=max(told, default=None))


def _described(client: JsonClient, entries: Sequence[JsonObject]) -> ServerInfo:
    """The same without its window, which vLLM and SGLang tell in the list of their models."""
    models = _distinct([entry.get(key) for entry in entries for key in ("id", "root")])
    info = as_object(client.get("/server_info?config_format=json"))
    info = info or as_object(client.get("/get_server_info"))
    learn(info)  # SGLang tells the key that it was started with
    if "json_model_override_args" in info:
        return _sglang(client.url, models, info)
    if "vllm_config" in info:
        version = as_object(client.get("/version")).get("version", "")
        return _vllm(client.url, models, str(version), info["vllm_config"])
    if any("value" in as_object(entry.get("status")) for entry in entries):
        return ServerInfo(client.url, "transformers", "", models, _served_config(models))
    version = client.get("/version")
    if isinstance(version, dict) or any(entry.get("owned_by") == "vllm" for entry in entries):
        return _vllm(client.url, models, str(as_object(version).get("version", "")), None)
    return ServerInfo(client.url, "unknown", "", models)


def _sglang(url: str, models: Sequence[str], info: JsonObject) -> ServerInfo:
    return ServerInfo(
        url,
        "sglang",
        str(info.get("version", "")),
        _distinct([*models, info.get("model_path")]),
        _overrides(info.get("json_model_override_args")),
        {name: info[name] for name in SGLANG_SETTINGS if name in info},
    )


def _vllm(url: str, models: tuple[str, ...], version: str, config: JsonValue) -> ServerInfo:
    """vLLM tells its configuration in development mode only (VLLM_SERVER_DEV_MODE=1)."""
    if not isinstance(config, dict):
        return ServerInfo(url, "vllm", version, models)
    model = as_object(config.get("model_config"))
    sections = [as_object(config.get(name)) for name in ("parallel_config", "kernel_config")]
    settings = {k: section[k] for section in sections for k in VLLM_SETTINGS if k in section}
    overrides = _overrides(model["hf_overrides"]) if "hf_overrides" in model else None
    note = as_object(config.get("additional_config")).get(PLUGIN_FIELD)
    if overrides is not None and note is not None:
        overrides = {**overrides, PLUGIN_FIELD: note}
    settings["speculative_method"] = as_object(config.get("speculative_config")).get("method")
    return ServerInfo(
        url,
        "vllm",
        version,
        _distinct([*models, model.get("model")]),
        overrides,
        settings,
    )


def _served_config(models: Sequence[str]) -> JsonObject | None:
    """Reuse fields of the config.json that `transformers serve` serves: it takes no overrides."""
    for name in models:
        path = Path(name) / "config.json"
        if os.path.isfile(path):  # noqa: PTH113 - a name may be longer than any path
            config = text_config(read_config(path))
            return {k: config[k] for k in REUSE_FIELDS if config.get(k) is not None}
    return None


def _overrides(raw: JsonValue) -> JsonObject | None:
    """Overrides as an object; None for what cannot be read (a callable, broken JSON)."""
    if isinstance(raw, str):
        raw = _parsed(raw or "{}")
        if raw is None:
            return None
    learn(raw)
    return {} if raw is None else raw if isinstance(raw, dict) else None


def _parsed(text: str) -> JsonValue:
    """JSON, without NaN and infinities, which no record can hold; None for what is not."""
    try:
        value: JsonValue = json.loads(text, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return value


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _distinct(names: Sequence[JsonValue]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(name) for name in names if name is not None))
