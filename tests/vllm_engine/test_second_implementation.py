"""vLLM under the plugin beside transformers under `apply_schedule`: two implementations, one model.

vLLM keeps FP8 index keys and caches and computes in bfloat16, transformers here in float32. How far
they agree is measured on the full schedule; every arm is held to that. How much of the distance is
rounding is measured too: transformers rounded like an engine, beside itself in float32.
"""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from evalkit.dsa import ReuseSchedule, apply_schedule
from evalkit.selections.precision import Precision
from evalkit.selections.rounding import fp8
from tests.vllm_engine import start
from tests.vllm_engine.model import C4, SHAPE, TOPK, prompt

pytestmark = pytest.mark.vllm

LONG, TOKENS, ROWS = 3000, 2, 64
FULL = ReuseSchedule.from_pattern("F" * len(C4), layers=C4)
ARMS = [ReuseSchedule.uniform(C4, "1/4", 1)]
SLACK = 0.03  # of the mean overlap: another schedule changes the hidden states that are rounded
CHANCE = TOPK**2 / (LONG // 4) / (2 * TOPK - TOPK**2 / (LONG // 4))  # overlap by chance
UNEXPLAINED = 0.12  # overlap that vLLM may lack beside rounding after every module


@pytest.fixture(scope="module")
def reference(v4):
    """The same checkpoint in transformers, float32."""
    import transformers as tf

    config = tf.DeepseekV4Config.from_pretrained(v4, experts_implementation="eager")
    kind = (
        tf.DeepseekV4ForCausalLM
    )  # by name: vLLM has put its own configuration class in Auto's place
    return kind.from_pretrained(v4, config=config, dtype=torch.float32).eval()


@contextmanager
def rounded(model):
    """`model` with an engine's rounding: bfloat16 after every module, FP8 latents by blocks of 64.

    The 64 rotated channels of a latent stay in bfloat16. Index keys and queries are the policy's.
    """
    rotated = SHAPE["qk_rope_head_dim"]

    def latent(module, inputs, output):
        kept = short(module, inputs, output)
        return torch.cat(
            [fp8(kept[..., :-rotated], powers=True, block=64), kept[..., -rotated:]], -1
        )

    def short(module, inputs, output):
        if isinstance(output, tuple):
            return tuple(short(module, inputs, part) for part in output)
        floats = torch.is_tensor(output) and output.dtype == torch.float32
        return output.bfloat16().float() if floats else output

    hooks = []
    for name, module in model.named_modules():
        is_latent = name.endswith(("self_attn.kv_norm", "compressor.kv_norm"))
        if name:
            hooks.append(module.register_forward_hook(latent if is_latent else short))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def transformers_side(model, schedule, forced, policy=None):
    """Places of vLLM's tokens in these logits, and own selections of the last rows per forward."""
    forwards, places = [], []

    def observe(ordinal, call, selection):
        if ordinal == 0:
            forwards.append({})
        if selection is not None:
            forwards[-1][C4[ordinal]] = selection[0, -ROWS:]

    ids, cache = torch.tensor([prompt(LONG)]), None
    with (
        torch.no_grad(),
        apply_schedule(model, schedule, policy=policy, chunked=True, observe=observe),
    ):
        for token in forced:
            out = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = out.past_key_values
            places.append(int((out.logits[0, -1] > out.logits[0, -1, token]).sum()))
            ids = torch.tensor([[token]])
    return places, forwards


def overlap(one, two):
    """Mean share of common entries of two selections [rows, top-k]; -1 is none."""
    shares = []
    for a, b in zip(one.tolist(), two.tolist(), strict=True):
        first, second = set(a) - {-1}, set(b) - {-1}
        shares.append(len(first & second) / max(len(first | second), 1))
    return sum(shares) / len(shares)


@pytest.fixture(scope="module")
def compared(llm, recorder, reference):
    """Overlap of each full layer, and the lowest place of a greedy token, by schedule."""

    def run(schedule):
        recorder.put(llm.llm_engine.vllm_config, schedule)
        (tokens,) = start.answer(llm, [prompt(LONG)], TOKENS)
        theirs = recorder.forwards
        places, ours = transformers_side(reference, schedule, tokens)
        assert len(ours) == len(theirs) == TOKENS
        return agreement(schedule, ours, [forward.own for forward in theirs]), max(places)

    return run


@pytest.fixture(scope="module")
def full(compared):
    """The same of the schedule in which every layer computes, overlap by layer."""
    shares, place = compared(FULL)
    return dict(zip(C4, shares, strict=True)), place


def test_arms_agree_as_the_full_schedule_does(compared, full):
    """Every full layer's selection; of greedy tokens nothing, whose random logits lie too close."""
    shares_of_full, place_of_full = full
    show(FULL, shares_of_full.values(), place_of_full)
    for schedule in ARMS:
        shares, place = compared(schedule)
        show(schedule, shares, place)
        for layer, share in zip(schedule.full_layer_ids, shares, strict=True):
            assert share > shares_of_full[layer] - SLACK
    assert shares_of_full[C4[0]] > 0.8
    assert min(shares_of_full.values()) > CHANCE + SLACK


def test_rounding_explains_most_of_the_distance(reference, full):
    """Rounded like an engine, transformers leaves its own float32 nearly as far as vLLM does."""
    _, exact = transformers_side(reference, FULL, [3])
    with rounded(reference):
        policy = Precision(keys="fp8", queries="fp8")
        _, rough = transformers_side(reference, FULL, [3], policy)
    shares = agreement(FULL, exact, rough)
    show("rounded", shares)
    for layer, share in zip(C4, shares, strict=True):
        assert share - UNEXPLAINED < full[0][layer]


def agreement(schedule, one, two):
    """Overlap by full layer, the mean over forwards; selections of each are dicts by layer."""
    return [
        sum(overlap(a[layer], b[layer][-ROWS:]) for a, b in zip(one, two, strict=True)) / len(one)
        for layer in schedule.full_layer_ids
    ]


def show(name, shares, place=""):
    """One line of the table of docs/serving.md."""
    shown = " ".join(f"{share:.3f}" for share in shares)
    print(f"\n{str(name).partition(' layers')[0]:<16} {shown}  {place}", flush=True)
