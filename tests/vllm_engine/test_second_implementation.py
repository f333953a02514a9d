"""vLLM under the plugin beside transformers under `apply_schedule`: two implementations, one model.

vLLM keeps FP8 index keys and caches and computes in bfloat16, transformers here in float32. How far
they agree is measured on the full schedule; every arm is held to that.
"""

from __future__ import annotations

import pytest
import torch

from evalkit.dsa import ReuseSchedule, apply_schedule
from tests.vllm_engine import start
from tests.vllm_engine.model import C4, prompt

pytestmark = pytest.mark.vllm

LONG, TOKENS, ROWS = 3000, 2, 64
FULL = ReuseSchedule.from_pattern("F" * len(C4), layers=C4)
ARMS = [ReuseSchedule.uniform(C4, "1/4", 1)]
FIRST = 64  # random weights: the first logits lie close together
SLACK = 0.03  # of the mean overlap: another schedule changes the hidden states that are rounded


@pytest.fixture(scope="module")
def reference(v4):
    """The same checkpoint in transformers, float32."""
    import transformers as tf

    config = tf.DeepseekV4Config.from_pretrained(v4, experts_implementation="eager")
    kind = (
        tf.DeepseekV4ForCausalLM
    )  # by name: vLLM has put its own configuration class in Auto's place
    return kind.from_pretrained(v4, config=config, dtype=torch.float32).eval()


def transformers_side(model, schedule, forced):
    """Places of vLLM's tokens in these logits, and own selections of the last rows per forward."""
    forwards, places = [], []

    def observe(ordinal, call, selection):
        if ordinal == 0:
            forwards.append({})
        if selection is not None:
            forwards[-1][C4[ordinal]] = selection[0, -ROWS:]

    ids, cache = torch.tensor([prompt(LONG)]), None
    with torch.no_grad(), apply_schedule(model, schedule, chunked=True, observe=observe):
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
        shares = [
            sum(overlap(o[layer], t.own[layer][-ROWS:]) for o, t in zip(ours, theirs, strict=True))
            / TOKENS
            for layer in schedule.full_layer_ids
        ]
        return shares, max(places)

    return run


def test_arms_agree_as_the_full_schedule_does(compared):
    """Every full layer's selection, and of 512 tokens the greedy ones are among the first here."""
    chance = 512 * 512 / (LONG // 4)
    print(f"\noverlap by full layer (by chance {chance / (1024 - chance):.3f}), lowest place")
    full: dict[int, float] = {}
    for schedule in (FULL, *ARMS):
        shares, place = compared(schedule)
        shown = " ".join(f"{share:.3f}" for share in shares)
        print(f"{str(schedule).partition(' layers')[0]:<16} {shown}  {place}", flush=True)
        full = full or dict(zip(C4, shares, strict=True))
        for layer, share in zip(schedule.full_layer_ids, shares, strict=True):
            assert share > full[layer] - SLACK
        assert place < FIRST
    assert full[C4[0]] > 0.8
    assert min(full.values()) > chance / (1024 - chance) + SLACK
