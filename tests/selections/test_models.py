"""Policies on tiny models of every family with index scores, and through the engine."""

from __future__ import annotations

import pytest
import torch

from evalkit.config.arm import ArmConfig
from evalkit.dsa import ReuseSchedule, UnsupportedModelError, apply_schedule
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.transformers_model import cache_argument, new_cache
from evalkit.selections.hisa import Hisa
from evalkit.selections.misa import Misa
from evalkit.selections.precision import Precision
from evalkit.selections.temporal import Temporal
from tests.dsa.test_scores import SCORED
from tests.dsa.tiny import build, output, tokens
from tests.engines.test_hf import CHUNKED, loaded, prompts, renderer  # noqa: F401  (fixtures)

LENGTH = 64
SAME = (Hisa(block=8, blocks=8), Misa(heads=16, block=16), Precision(), Temporal(every=1))
CUT = (
    Hisa(block=4, blocks=2),
    Misa(heads=10, block=16),  # so many that no score is an exact 0: zeros would tie
    Misa(heads=10, block=8, candidates=10),
    Precision(keys="fp4", queries="fp4"),
    Hisa(block=4, blocks=2, keys="fp8", queries="fp8"),
)
FP8 = {"keys": "fp8", "queries": "fp8"}
ALL_KEPT = (
    Hisa(block=8, blocks=8, **FP8),
    Misa(heads=16, block=16, **FP8),
    Temporal(every=1, **FP8),
)


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def schedules_of(model):
    ids = indexer_sites(model).layout.layer_ids
    half = "1/2" if len(ids) > 2 else 1
    return ReuseSchedule.uniform(ids), ReuseSchedule.uniform(ids, half, 1, lag_phase="all")


def in_steps(model, ids, applied, steps=6):
    """Logits of the last tokens, fed one by one behind the others."""
    cache, parts = new_cache(model), []
    start, total = 0, ids.shape[1]
    for end in [total - steps - 20, total - steps, *range(total - steps + 1, total + 1)]:
        applied.phase = "prefill" if end <= total - steps else "decode"
        positions = torch.arange(start, end)[None].expand(ids.shape[0], -1)
        caching = {"use_cache": True, cache_argument(model): cache}
        logits = output(model, input_ids=ids[:, start:end], position_ids=positions, **caching)
        parts.append(logits[:, -1])
        start = end
    return torch.stack(parts[-steps:], dim=1)


@pytest.mark.parametrize("family", SCORED)
def test_what_cuts_nothing_answers_bit_for_bit_and_the_rest_differs(family):
    model, ids = build(family), tokens(2, LENGTH)
    _, lagged = schedules_of(model)
    with apply_schedule(model, lagged, chunked=True):
        plain = output(model, ids, use_cache=False)
    for policy in (*SAME, CUT[0]):
        with apply_schedule(model, lagged, policy=policy):
            same = torch.equal(output(model, ids, use_cache=False), plain)
        assert same == (policy in SAME), policy.text


@pytest.mark.parametrize("family", SCORED)
def test_rounding_beside_what_cuts_nothing_is_rounding_alone(family):
    model, ids = build(family), tokens(2, LENGTH)
    _, lagged = schedules_of(model)
    with apply_schedule(model, lagged, policy=Precision(**FP8)):
        rounded = output(model, ids, use_cache=False)
    for policy in (*ALL_KEPT, *SAME, CUT[-1]):
        with apply_schedule(model, lagged, policy=policy):
            same = torch.equal(output(model, ids, use_cache=False), rounded)
        assert same == (policy in ALL_KEPT), policy.text


@pytest.mark.parametrize("family", ["deepseek_v32", "deepseek_v4"])
def test_steps_too(family):
    model, ids = build(family), tokens(2, LENGTH)
    full, _ = schedules_of(model)
    with apply_schedule(model, full, chunked=True) as applied:
        steps = in_steps(model, ids, applied, steps=3)
    for policy in (*SAME, Temporal(every=4)):
        with apply_schedule(model, full, policy=policy) as applied:
            same = torch.equal(in_steps(model, ids, applied, steps=3), steps)
        assert same == (policy in SAME), policy.text


@pytest.mark.parametrize("family", ["deepseek_v32", "deepseek_v4"])
def test_decoding_with_a_cache_equals_reading_at_once(family):
    model, ids = build(family).double(), tokens(2, LENGTH)
    full, lagged = schedules_of(model)
    for number, policy in enumerate(CUT):
        schedule, sparse = (full, lagged)[number % 2], number > 1
        with apply_schedule(model, schedule, policy=policy, sparse=sparse) as applied:
            steps = in_steps(model, ids, applied, steps=3)
            applied.phase = "decode"
            whole = output(model, ids, use_cache=False)[:, -3:]
        assert torch.allclose(steps, whole, atol=1e-4), policy.text


def test_steps_of_reuse_fed_in_chunks_equal_those_fed_one_by_one():
    model, ids = build("deepseek_v32").double(), tokens(1, LENGTH)
    _, schedule = schedules_of(model)
    with apply_schedule(model, schedule, policy=Temporal(every=4), sparse=True) as applied:
        steps = in_steps(model, ids, applied, steps=10)
        calls = applied.calls[0]
    with apply_schedule(model, schedule, policy=Temporal(every=4), sparse=True) as applied:
        cache, parts = new_cache(model), []
        for start, end in ((0, 40), (40, 57), (57, LENGTH)):
            rows = torch.arange(start, end)[None]
            applied.decode_rows = rows >= LENGTH - 10
            caching = {"use_cache": True, cache_argument(model): cache}
            parts.append(output(model, ids[:, start:end], position_ids=rows, **caching))
    whole = torch.cat(parts, dim=1)[:, -10:]
    assert torch.allclose(whole, steps, atol=1e-6)
    assert calls == 2 + 3  # two chunks of the prompt, and the steps 0, 4 and 8 of ten
    assert applied.calls[1] == 0


def test_gradients_under_a_policy_and_checkpointing():
    model, ids = build("deepseek_v32").train(), tokens(1, LENGTH)
    full, _ = schedules_of(model)
    gradients = []
    for checkpointed in (False, True):
        model.zero_grad()
        if checkpointed:
            model.activation_checkpointing_enable()
        with torch.enable_grad(), apply_schedule(model, full, policy=CUT[0]):
            output(model, ids, use_cache=False).square().mean().backward()
        weight = model.model.layers[2].self_attn.o_proj.weight
        gradients.append(weight.grad.clone())
    assert gradients[0].abs().sum() > 0
    assert torch.allclose(*gradients, atol=1e-6)


def test_a_family_without_index_scores_is_refused_by_name():
    model = build("glm5_next_text")
    full, _ = schedules_of(model)
    with (
        pytest.raises(UnsupportedModelError, match="pools of tokens"),
        apply_schedule(model, full, policy=CUT[0]),
    ):
        pass


def answered(engine, arm, prompts):  # noqa: F811
    batches = engine.answer(arm, engine.native(), prompts, ())
    return {c.sample_id: (c.text, c.finish_reason) for batch in batches for c in batch}


def test_answers_do_not_depend_on_batches_and_chunks(checkpoint, prompts):  # noqa: F811
    engines = [
        loaded(checkpoint, **options)
        for options in (
            {**CHUNKED, "max_batch": 1},
            {"attention": "library"},
        )
    ]
    prompts = prompts[:3]
    for policy in (CUT[0], Temporal(every=3)):
        arm = ArmConfig(name="cut", selection=policy)
        alone, together = (answered(engine, arm, prompts) for engine in engines)
        assert together == alone, policy.text
        for engine in engines:
            proof = engine.engagement()
            assert proof["selection"] == policy.text
            assert proof["verdict"] == "engaged"
    plain = ArmConfig(name="plain")
    assert answered(engines[0], plain, prompts) != alone
    assert "selection" not in engines[0].engagement()
