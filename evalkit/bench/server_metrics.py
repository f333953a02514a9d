"""Server-side counters before and after a round: prefix cache, speculative decoding.

The accept-length proxy is tokens that came out of verification ÷ verification calls, over all
requests together. It has no denominator per request and per draft: it is no acceptance rate, and it
says nothing about quality.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from evalkit.dsa.json_types import JsonValue, as_list, as_object
from evalkit.engagement.server_info import JsonClient

_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{.*\})?\s+([0-9.eE+-]+)(?:\s+\d+)?$")
# Prometheus names (vLLM; SGLang with --enable-metrics) and what they count.
COUNTERS = {
    "vllm:prefix_cache_queries_total": "cache_queries",
    "vllm:prefix_cache_hits_total": "cache_hits",
    "vllm:spec_decode_num_drafts_total": "verifications",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted",
    "sglang:prompt_tokens_total": "cache_queries",
    "sglang:cached_tokens_total": "cache_hits",
}


def read_counters(client: JsonClient) -> dict[str, float]:
    """Counters of one server; what it does not tell is left out."""
    counters: dict[str, float] = {}
    for line in (client.text("/metrics") or "").splitlines():
        match = _LINE.match(line.strip())
        name = COUNTERS.get(match[1]) if match else None
        if match and name:  # one line per engine or rank
            counters[name] = counters.get(name, 0.0) + float(match[2])
    length = None if counters else _server_average(client.get("/server_info"))
    return counters if length is None else {"server_accept_length": length}


def added(counters: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Counters of several servers together; averages are averaged."""
    names = {name for server in counters for name in server}
    total = {name: sum(server.get(name, 0.0) for server in counters) for name in names}
    if "server_accept_length" in total:
        total["server_accept_length"] /= sum("server_accept_length" in c for c in counters)
    return total


def between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What was counted in between; averages, which the server keeps since its start, stay."""
    return {
        name: value if name == "server_accept_length" else value - before.get(name, 0.0)
        for name, value in after.items()
    }


def accept_length(tokens: float, verifications: float) -> float | None:
    """The proxy: tokens ÷ verification calls; None without speculation."""
    return tokens / verifications if verifications > 0 else None


def accept_length_of(counted: Sequence[Mapping[str, float]]) -> float | None:
    """The proxy of several rounds, by counters (vLLM), else the server's own average (SGLang)."""
    calls = sum(c.get("verifications", 0.0) for c in counted)
    if calls > 0:
        return accept_length(sum(c.get("accepted", 0.0) for c in counted) + calls, calls)
    averages = [c["server_accept_length"] for c in counted if "server_accept_length" in c]
    return sum(averages) / len(averages) if averages else None


def _server_average(info: JsonValue) -> float | None:
    """SGLang's ``avg_spec_accept_length``."""
    states = as_list(as_object(info).get("internal_states"))
    values = [as_object(state).get("avg_spec_accept_length") for state in states]
    numbers = [float(v) for v in values if isinstance(v, int | float)]
    return sum(numbers) / len(numbers) if numbers else None
