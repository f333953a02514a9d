"""vLLM under the plugin beside transformers under `apply_schedule`: two implementations, one model.

vLLM keeps FP8 index keys and caches and computes in bfloat16, transformers here in float32. What
that alone changes is measured on the full schedule; every arm is held to it.
"""

from __future__ import annotations

import pytest
import torch

from evalkit.dsa import ReuseSchedule, apply_schedule
from tests.vllm_engine import start
from tests.vllm_engine.model import C4, prompt

pytestmark = pytest.mark.vllm

LONG, TOKENS, ROWS = 2200, 3, 64
FULL = ReuseSchedule.from_pattern("F" * len(C4), layers=C4)
ARMS = [ReuseSchedule.uniform(C4, "1", 1), ReuseSchedule.uniform(C4, "1/4", 1)]
SLACK = 0.03  # of the mean overlap: another schedule changes the hidden states that are rounded


@pytest.fixture(scope="module")
def reference(v4):
    """The same checkpoint in transformers, float32."""
    import transformers as tf

    return tf.AutoModelForCausalLM.from_pretrained(
        v4, dtype=torch.float32, experts_implementation="eager"
    ).eval()


def transformers_side(model, schedule, forced):
    """Greedy choices with `forced` tokens fed, and own selections of the last rows per forward."""
    forwards, chosen = [], []

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
            chosen.append(int(out.logits[0, -1].argmax()))
            ids = torch.tensor([[token]])
    return chosen, forwards


def overlap(one, two):
    """Mean share of common entries of two selections [rows, top-k]; -1 is none."""
    shares = []
    for a, b in zip(one.tolist(), two.tolist(), strict=True):
        first, second = set(a) - {-1}, set(b) - {-1}
        shares.append(len(first & second) / max(len(first | second), 1))
    return sum(shares) / len(shares)


@pytest.fixture(scope="module")
def compared(llm, recorder, reference):
    """Mean overlap of own selections, and equal greedy tokens, by schedule."""

    def run(schedule):
        recorder.put(llm.llm_engine.vllm_config, schedule)
        (tokens,) = start.answer(llm, [prompt(LONG)], TOKENS)
        theirs = recorder.forwards
        chosen, ours = transformers_side(reference, schedule, tokens)
        assert len(ours) == len(theirs) == TOKENS
        shares = [
            overlap(ours[i][layer], theirs[i].own[layer][-ROWS:])
            for i in range(TOKENS)
            for layer in schedule.full_layer_ids
        ]
        return sum(shares) / len(shares), sum(a == b for a, b in zip(chosen, tokens, strict=True))

    return run


def test_arms_agree_as_the_full_schedule_does(compared, record_property):
    share, equal = compared(FULL)
    print(f"\n{'schedule':<34} overlap  equal greedy tokens of {TOKENS}")
    print(f"{FULL.pattern:<34} {share:7.3f}  {equal}")
    assert share > 0.85
    for arm in ARMS:
        got, same = compared(arm)
        print(f"{str(arm).partition(' layers')[0]:<34} {got:7.3f}  {same}")
        assert got > share - SLACK
        assert same >= equal - 1


def test_a_wrong_schedule_would_be_seen(llm, recorder, reference):
    """The same comparison with another schedule on one side falls out of the tolerance."""
    recorder.put(llm.llm_engine.vllm_config, FULL)
    (tokens,) = start.answer(llm, [prompt(LONG)], 1)
    shared = ReuseSchedule.uniform(C4, "1/5")
    _, ours = transformers_side(reference, shared, tokens)
    theirs = recorder.forwards[0].read[C4[-1]][-ROWS:]
    assert overlap(ours[0][C4[0]], theirs) < 0.85
