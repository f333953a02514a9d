"""Greedy continuations of seeded prompts that are longer than a selection, one per line."""

from __future__ import annotations

import json
import random
import sys
import urllib.request

LENGTHS = (9_000, 12_000, 20_000, 40_000)  # tokens; V4-Flash selects from 2,048 on, V3.2 too
VOCABULARY = range(1_000, 50_000)


def main(url: str, model: str) -> None:
    for seed, length in enumerate(LENGTHS):
        rng = random.Random(seed)
        body = {"model": model, "prompt": [rng.choice(VOCABULARY) for _ in range(length)]}
        body |= {"max_tokens": 64, "temperature": 0}
        request = urllib.request.Request(
            f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as reply:
            print(json.dumps(json.load(reply)["choices"][0]["text"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
