"""What a server reports of itself: SGLang, vLLM, `transformers serve`, or models only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from evalkit.core.errors import EvalkitError
from evalkit.engines.openai.api_keys import Key

REUSE_FIELDS = (
    *("use_index_cache", "index_topk_freq", "index_skip_topk_offset"),
    *("index_topk_pattern", "indexer_types"),
)
_SGLANG_SETTINGS = (
    *("tp_size", "dp_size", "pp_size", "chunked_prefill_size", "disable_radix_cache"),
    *("enable_return_indexer_topk", "speculative_algorithm", "kv_cache_dtype"),
    *("enable_cache_report", "disaggregation_mode", "disable_cuda_graph"),
)
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Report:
    """A server in its own words.

    Attributes:
        url: where it was asked.
        kind: ``sglang``, ``vllm``, ``transformers`` or ``unknown``.
        version: as it says, or "".
        models: names and paths under which it knows its models.
        overrides: configuration fields it was started with; None where it does not tell.
        settings: further settings that decide what is measured, as far as it tells.
    """

    url: str
    kind: str
    version: str = ""
    models: tuple[str, ...] = ()
    overrides: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """For run.json."""
        return {
            "kind": self.kind,
            "version": self.version,
            "models": list(self.models),
            "overrides": None if self.overrides is None else dict(self.overrides),
            "settings": dict(self.settings),
        }


class Web:
    """GET and POST of JSON beside the OpenAI endpoints; what is not there is None."""

    def __init__(self, url: str, key: Key) -> None:
        root = url.rstrip("/").removesuffix("/v1")
        headers = {"authorization": f"Bearer {key.reveal()}"} if key else {}
        self.url = url
        self._key = key
        self._client = httpx2.Client(base_url=root, headers=headers, timeout=_SECONDS)

    def __enter__(self) -> Web:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        """JSON of a path; None where the server has no such thing.

        Raises:
            EvalkitError: the server cannot be reached.
        """
        text = self.text(path)
        try:
            return None if text is None else json.loads(text)
        except ValueError:
            return None

    def text(self, path: str) -> str | None:
        """Text of a path; None where the server has no such thing."""
        try:
            response = self._client.get(path)
        except httpx2.HTTPError as error:
            why = self._key.scrub(" ".join(str(error).split()) or type(error).__name__)
            raise EvalkitError(f"{self.url}: no answer: {why}") from None
        if response.status_code in (401, 403):
            raise EvalkitError(f"{self.url}: the server refuses the key ({response.status_code})")
        return response.text if response.status_code == 200 else None

    def post(self, path: str, body: Mapping[str, Any], seconds: float) -> Any:
        """JSON answer to a JSON body; None where the server has no such thing."""
        try:
            response = self._client.post(path, json=dict(body), timeout=seconds)
            return response.json() if response.status_code == 200 else None
        except (httpx2.HTTPError, ValueError):
            return None


def read_report(web: Web) -> Report:
    """Ask a server what it is.

    Raises:
        EvalkitError: it cannot be reached, or refuses the key.
    """
    listing = web.get("/v1/models") or {}
    entries = [e for e in listing.get("data") or [] if isinstance(e, dict)]
    models = tuple(
        dict.fromkeys(str(e[k]) for e in entries for k in ("id", "root") if e.get(k) is not None)
    )
    info = web.get("/server_info?config_format=json") or web.get("/get_server_info")
    if isinstance(info, dict) and "json_model_override_args" in info:
        return _sglang(web.url, models, info)
    if isinstance(info, dict) and "vllm_config" in info:
        version = (web.get("/version") or {}).get("version", "")
        return _vllm(web.url, models, str(version), info["vllm_config"])
    if any(isinstance(e.get("status"), dict) and "value" in e["status"] for e in entries):
        return Report(web.url, "transformers", "", models, _own_config(models))
    version = web.get("/version")
    if isinstance(version, dict) or any(e.get("owned_by") == "vllm" for e in entries):
        return _vllm(web.url, models, str((version or {}).get("version", "")), None)
    return Report(web.url, "unknown", "", models)


def _sglang(url: str, models: tuple[str, ...], info: Mapping[str, Any]) -> Report:
    return Report(
        url,
        "sglang",
        str(info.get("version", "")),
        tuple(dict.fromkeys([*models, str(info.get("model_path", ""))])),
        _overrides(info.get("json_model_override_args")),
        {name: info[name] for name in _SGLANG_SETTINGS if name in info},
    )


def _vllm(url: str, models: tuple[str, ...], version: str, config: Any) -> Report:
    """vLLM tells its configuration in development mode only (VLLM_SERVER_DEV_MODE=1)."""
    overrides, settings = None, {}
    if isinstance(config, dict):
        model = config.get("model_config") or {}
        overrides = _overrides(model.get("hf_overrides") or {})
        models = tuple(dict.fromkeys([*models, str(model.get("model", ""))]))
        parallel = config.get("parallel_config") or {}
        kept = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
        settings = {name: parallel[name] for name in kept if name in parallel}
    return Report(url, "vllm", version, models, overrides, settings)


def _own_config(models: tuple[str, ...]) -> dict[str, Any] | None:
    """`transformers serve` takes no overrides: the config.json that it serves is in force."""
    for name in models:
        path = Path(name) / "config.json"
        if path.is_file():
            config = json.loads(path.read_text(encoding="utf-8"))
            config = config.get("text_config") or config
            return {k: config[k] for k in REUSE_FIELDS if config.get(k) is not None}
    return None


def _overrides(raw: Any) -> dict[str, Any] | None:
    """Overrides as a dictionary; None for what cannot be read (a callable, broken JSON)."""
    if isinstance(raw, str):
        try:
            raw = json.loads(raw or "{}")
        except ValueError:
            return None
    return dict(raw) if isinstance(raw, dict) else ({} if raw is None else None)
