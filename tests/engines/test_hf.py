"""The transformers engine: greedy answers do not depend on batching, chunking or order."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from evalkit.config.arm import ArmConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.types import Sample
from evalkit.dsa import ReuseSchedule
from evalkit.engines.hf.config import HfConfig
from evalkit.engines.hf.engine import HfEngine
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import load_tokenizer

ARM = ArmConfig(name="arm")
WORDS = "The grass is green. The sky is blue. Here we go. There and back again. 4821 7730 "


@pytest.fixture(scope="module")
def renderer(checkpoint):
    return ChatRenderer(load_tokenizer(checkpoint))


@pytest.fixture(scope="module")
def prompts(renderer):
    texts = [WORDS * count for count in (1, 3, 2, 3, 1)]
    return [
        renderer.render(Sample(f"s/{i}", "s", f"{i} {text}", ("x",), "none", 4 + i))
        for i, text in enumerate(texts)
    ]


CHUNKED = {"indexer": "chunked", "prefill_chunk": 32}


def loaded(checkpoint, **options):
    engine = HfEngine(HfConfig(dtype="float32", **options))
    engine.load(str(checkpoint))
    engine.model.double()  # rounding then cannot flip a near tie between two batch shapes
    return engine


def texts(engine, prompts, schedule=None, done=()):
    schedule = schedule or engine.native()
    batches = list(engine.answer(ARM, schedule, prompts, set(done)))
    return {c.sample_id: (c.text, c.finish_reason) for batch in batches for c in batch}


@pytest.mark.parametrize("schedule", [ReuseSchedule.uniform(8), ReuseSchedule.uniform(8, "1/4", 1)])
def test_batching_chunking_and_order_do_not_matter(checkpoint, prompts, schedule):
    alone = texts(loaded(checkpoint, max_batch=1), prompts, schedule)
    assert len(alone) == len(prompts)
    library = {"attention": "library"}
    for options in (
        {},
        {"prefill_chunk": 7},
        {"max_batch": 2, "prefill_chunk": 64},
        CHUNKED,
        library,
    ):
        engine = loaded(checkpoint, **options)
        assert texts(engine, prompts, schedule) == alone
        assert texts(engine, prompts[::-1], schedule) == alone


def test_equals_the_librarys_own_generate(checkpoint, prompts):
    engine = loaded(checkpoint, max_batch=1)
    ours = texts(engine, prompts)
    for prompt in prompts:
        ids = torch.tensor([prompt.token_ids])
        out = engine.model.generate(
            ids, max_new_tokens=prompt.sample.max_new_tokens, do_sample=False, pad_token_id=0
        )
        text = load_tokenizer(checkpoint).decode(out[0, ids.shape[1] :], skip_special_tokens=True)
        assert ours[prompt.sample.id][0] == text


def test_done_samples_are_left_out_and_the_rest_is_unchanged(checkpoint, prompts):
    engine = loaded(checkpoint, max_batch=3)
    everything = texts(engine, prompts)
    rest = texts(engine, prompts, done=("s/1", "s/4"))
    assert rest == {k: v for k, v in everything.items() if k not in ("s/1", "s/4")}


def test_an_over_long_prompt_is_an_error_row_not_a_crash(checkpoint, renderer, prompts):
    long = renderer.render(Sample("s/long", "s", WORDS * 60, ("x",), "none", 8))
    assert len(long.token_ids) + 8 > 1024
    engine = loaded(checkpoint)
    answers = {
        c.sample_id: c for b in engine.answer(ARM, engine.native(), [*prompts, long], ()) for c in b
    }
    assert answers["s/long"].finish_reason == "error"
    assert "over-length" in answers["s/long"].error
    assert answers["s/0"].error is None


def test_non_finite_logits_are_an_error_row(checkpoint, prompts):
    engine = loaded(checkpoint)
    with torch.no_grad():
        engine.model.lm_head.weight[5] = float("nan")
    answers = [c for batch in engine.answer(ARM, engine.native(), prompts, ()) for c in batch]
    assert {c.finish_reason for c in answers} == {"error"}
    assert "non-finite" in answers[0].error


def test_a_full_device_says_what_to_lower(checkpoint, prompts, monkeypatch):
    engine = loaded(checkpoint)

    def full(*args, **kwargs):
        raise torch.OutOfMemoryError("tried to allocate 80.00 GiB")

    monkeypatch.setattr(engine.model, "forward", full)
    with pytest.raises(EvalkitError, match=r"arm arm: out of memory.*lower engine\.batch_tokens"):
        texts(engine, prompts)


def test_stop_strings_and_end_of_text(checkpoint, renderer):
    engine = loaded(checkpoint)
    plain = renderer.render(Sample("s/0", "s", WORDS, ("x",), "none", 12))
    full = texts(engine, [plain])["s/0"][0]
    token = full[4:6]
    stopped = renderer.render(Sample("s/0", "s", WORDS, ("x",), "none", 12, stop=(token,)))
    assert texts(engine, [stopped])["s/0"] == (full[: full.index(token)], "stop")
    with torch.no_grad():
        engine.model.lm_head.weight.zero_()  # all logits equal: the argmax is id 0
    engine.decoder.stop_ids = frozenset({0})
    answer = next(iter(engine.answer(ARM, engine.native(), [plain], ())))[0]
    assert (answer.text, answer.finish_reason, answer.completion_tokens) == ("", "stop", 0)


def test_lag_acts_on_generated_tokens_only(checkpoint, prompts):
    """Decode-only lag: the first token comes out of prefill, so one-token answers cannot differ."""
    engine = loaded(checkpoint)
    lagged = ReuseSchedule.uniform(8, lag=3)
    renderer = ChatRenderer(load_tokenizer(checkpoint))
    one = [renderer.render(replace(p.sample, max_new_tokens=1)) for p in prompts]
    assert texts(engine, one, lagged) == texts(engine, one)
    assert texts(engine, prompts, lagged) != texts(engine, prompts)


def test_engagement_counts_indexer_runs(checkpoint, prompts):
    engine = loaded(checkpoint)
    texts(engine, prompts, ReuseSchedule.uniform(8, "1/4"))
    proof = engine.engagement()
    assert proof["verdict"] == "engaged"
    assert [count > 0 for count in proof["indexer_calls"]] == [i % 4 == 0 for i in range(8)]


def test_a_missing_checkpoint_is_one_line():
    with pytest.raises(EvalkitError, match="cannot be loaded"):
        HfEngine(HfConfig()).load("/nowhere/at/all")
