"""What the tests of engines share."""

from __future__ import annotations

import json

import pytest

from evalkit.core.types import Sample
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import load_tokenizer
from tests.engines.test_openai import answers, loaded
from tests.servers.misbehaving import Misbehaving


@pytest.fixture(scope="module")
def tokenizer(paper_checkpoint):
    return load_tokenizer(paper_checkpoint)


@pytest.fixture(scope="module")
def ask(paper_checkpoint, tokenizer):
    """Ask for a prompt that the server answers badly, then for one that it answers well.

    Returns the completions by sample id, and the bodies of the requests as JSON.
    """
    render = ChatRenderer(tokenizer).render
    bad = render(Sample("bad", "s", "BAD question", ("x",), "none", 5))
    good = render(Sample("good", "s", "good question", ("x",), "none", 5))

    def asked(answer, api="text", stream=False, prompts=(bad, good), **options):
        options = {"max_requests": 1, "retries": 3} | options
        with Misbehaving(answer) as server:
            engine = loaded(paper_checkpoint, server.url, api=api, stream=stream, **options)
            return answers(engine, prompts), [json.dumps(body) for body in server.seen]

    asked.bad, asked.good = bad, good
    return asked
