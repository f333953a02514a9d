"""Log-probabilities of texts: those of one plain forward, and of decoding token by token."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from evalkit.core.records.likelihood import Likelihood
from evalkit.core.types import Sample
from evalkit.dsa import ReuseSchedule, apply_schedule
from evalkit.dsa.transformers_model import cache_argument, new_cache
from evalkit.engines.hf.likelihood import POSITIONS, TOP
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import load_tokenizer
from tests.engines.test_hf import ARM, WORDS, loaded

CONTEXT = 20


@pytest.fixture(scope="module")
def texts(checkpoint):
    render = ChatRenderer(load_tokenizer(checkpoint)).render
    samples = [
        Sample(
            *(f"p/{i}", "p", f"{i} {WORDS * n}", (), "perplexity", 0),
            chat=False,
            scored_from=CONTEXT,
        )
        for i, n in enumerate((3, 2, 4))
    ]
    return [render(sample) for sample in samples]


def read(engine, texts, schedule=None):
    batches = engine.answer(ARM, schedule or engine.native(), texts, ())
    found = {c.sample_id: c for batch in batches for c in batch}
    assert all(c.finish_reason == "stop" and c.completion_tokens == 0 for c in found.values())
    return [Likelihood.parse(found[p.sample.id].text) for p in texts]


def test_equals_one_plain_forward(checkpoint, texts):
    engine = loaded(checkpoint)
    for prompt, ours in zip(texts, read(engine, texts), strict=True):
        ids = torch.tensor([prompt.token_ids])
        with torch.inference_mode():
            logits = engine.model(ids).logits[0].float().log_softmax(-1)
        wanted = logits[:-1].gather(1, ids[0, 1:, None])[CONTEXT - 1 :, 0]
        np.testing.assert_allclose(ours.logprobs, wanted.numpy(), atol=2e-6)
        assert len(ours.logprobs) == len(prompt.token_ids) - CONTEXT
        assert len(ours.positions) <= POSITIONS
        at = CONTEXT - 1 + ours.positions
        top = logits[torch.as_tensor(at)].topk(TOP)
        np.testing.assert_allclose(ours.top_logprobs, top.values.numpy(), atol=1e-5)


@pytest.mark.parametrize("text", ["1/4", "1/4 lag 1"])
def test_batching_and_chunking_do_not_matter(checkpoint, texts, text):
    schedule = ReuseSchedule.uniform(8, "1/4", 1 if "lag" in text else 0)
    alone = read(loaded(checkpoint, max_batch=1), texts, schedule)
    for options in ({}, {"prefill_chunk": 7}, {"indexer": "chunked", "prefill_chunk": 32}):
        for a, b in zip(alone, read(loaded(checkpoint, **options), texts, schedule), strict=True):
            np.testing.assert_allclose(a.logprobs, b.logprobs, atol=2e-6)


def by_single_steps(model, schedule, prompt):
    """Context as prefill, then one token at a time, as a server decodes."""
    ids, cache = torch.tensor([prompt.token_ids]), new_cache(model)
    found = []
    with torch.inference_mode(), apply_schedule(model, schedule):
        for start, end in [(0, CONTEXT), *((i, i + 1) for i in range(CONTEXT, ids.shape[1] - 1))]:
            logits = model(
                input_ids=ids[:, start:end],
                attention_mask=torch.ones(1, end, dtype=torch.long),
                position_ids=torch.arange(start, end)[None],
                use_cache=True,
                **{cache_argument(model): cache},
            ).logits[0, -1]
            found.append(float(logits.float().log_softmax(-1)[ids[0, end]]))
    return found


def test_equals_decoding_token_by_token_so_that_a_lag_acts(checkpoint, texts):
    engine, lagged = loaded(checkpoint), ReuseSchedule.uniform(8, "1", 1)
    ours = read(engine, texts[:1], lagged)[0].logprobs
    np.testing.assert_allclose(ours, by_single_steps(engine.model, lagged, texts[0]), atol=2e-6)
    own = read(engine, texts[:1])[0].logprobs
    assert np.abs(ours - own).max() > 1e-3


def test_non_finite_logits_are_an_error_row(checkpoint, texts):
    engine = loaded(checkpoint)
    with torch.no_grad():
        engine.model.lm_head.weight[5] = float("nan")
    answers = [c for batch in engine.answer(ARM, engine.native(), texts, ()) for c in batch]
    assert {c.finish_reason for c in answers} == {"error"}
    assert {c.error for c in answers} == {"the model returned non-finite logits"}
