"""The plugin on vLLM's own DeepSeek-V4: model, scheduler, caches and metadata are vLLM's.

Prompts are longer than 4 × index_topk tokens, else every schedule selects everything.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from evalkit.dsa import ReuseSchedule
from tests.vllm_engine import start
from tests.vllm_engine.model import C4, TOPK, prompt

pytestmark = pytest.mark.vllm

LONG = 2200
SCHEDULES = [
    ReuseSchedule.uniform(C4, retention, lag)
    for retention in ("1", "1/2", "1/4")
    for lag in (0, 1, 2)
]
SCHEDULES += [
    ReuseSchedule.uniform(C4, "1/2", 1, lag_phase="all"),
    ReuseSchedule.from_sources((0, 0, 1, 2, 2), layers=C4, lag_phase="decode"),
]
WHOLE = [SCHEDULES[1], SCHEDULES[4], SCHEDULES[-1]]


def name(schedule):
    """Without the layer ids."""
    return str(schedule).partition(" layers")[0].replace(" ", ",")


@pytest.fixture
def under(llm, recorder):
    """Puts a schedule in force and answers."""
    config = llm.llm_engine.vllm_config
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    whole = scheduler.max_num_scheduled_tokens

    def run(schedule, prompts, tokens=3, chunk=0):
        recorder.put(config, schedule)
        scheduler.max_num_scheduled_tokens = chunk or whole
        answers = start.answer(llm, prompts, tokens)
        return answers, recorder

    yield run
    scheduler.max_num_scheduled_tokens = whole


def check_reads(schedule, forwards):
    """Every token of every layer read exactly what its source selected in the same forward."""
    ids = schedule.layer_ids
    differ = 0
    for seen in forwards:
        rows = next(iter(seen.read.values())).shape[0]
        decodes = (torch.arange(rows) < seen.decode_tokens).unsqueeze(-1)
        for ordinal, layer in enumerate(ids):
            decode = seen.own[ids[schedule.sources("decode")[ordinal]]]
            prefill = seen.own[ids[schedule.sources("prefill")[ordinal]]]
            assert torch.equal(seen.read[layer], torch.where(decodes, decode, prefill)), layer
            differ += not torch.equal(decode, prefill)
    return differ


@pytest.mark.parametrize(
    ("schedule", "chunk"),
    [(schedule, 900) for schedule in SCHEDULES] + [(schedule, 0) for schedule in WHOLE],
    ids=lambda value: name(value) if isinstance(value, ReuseSchedule) else f"chunk-{value}",
)
def test_every_layer_reads_its_source_in_prefill_and_decode(under, schedule, chunk):
    _, recorder = under(schedule, [prompt(LONG)], chunk=chunk)
    sizes = [next(iter(f.read.values())).shape[0] for f in recorder.forwards]
    assert [f.decode_tokens for f in recorder.forwards[-2:]] == [1, 1]
    assert sum(sizes[:-2]) == LONG
    assert len(sizes) == (5 if chunk else 3)
    differ = check_reads(schedule, recorder.forwards)
    assert bool(differ) == (schedule.sources("decode") != schedule.sources("prefill"))
    long = [f for f in recorder.forwards if next(iter(f.read.values()))[-1].min() >= 0]
    for i, layer in enumerate(C4):
        full = schedule.computes[i]
        assert recorder.scored[layer] == (len(long) if full else 0)
        assert recorder.projected[layer] >= len(long) if full else recorder.projected[layer] == 0
        assert recorder.compressed[layer] == len(sizes)


def test_selections_matter_and_differ_between_layers(under):
    _, recorder = under(ReuseSchedule.from_pattern("F" * len(C4), layers=C4), [prompt(LONG)])
    last = recorder.forwards[-1]
    chosen = [set(last.own[layer][0].tolist()) for layer in C4]
    assert all(len(s) == TOPK and min(s) >= 0 and max(s) < (LONG + 2) // 4 for s in chosen)
    assert all(a != b for a, b in pairwise(chosen))


def test_decode_rows_lag_and_prefill_rows_do_not_in_one_batch(under):
    """A request decodes while the other one is still in its prefill."""
    schedule = ReuseSchedule.uniform(C4, "1/2", 1)
    _, recorder = under(schedule, [prompt(2060), prompt(2600, 1)], tokens=4, chunk=700)
    mixed = [
        f for f in recorder.forwards if 0 < f.decode_tokens < next(iter(f.read.values())).shape[0]
    ]
    assert mixed
    assert check_reads(schedule, recorder.forwards)


def test_a_plain_schedule_answers_as_vllm_without_the_plugin(under):
    prompts = [prompt(LONG)]
    plain, recorder = under(None, prompts, tokens=4)
    own = [f.own for f in recorder.forwards]
    full, recorder = under(ReuseSchedule.from_pattern("F" * len(C4), layers=C4), prompts, tokens=4)
    assert full == plain
    for one, two in zip(own, [f.own for f in recorder.forwards], strict=True):
        assert all(torch.equal(one[layer], two[layer]) for layer in C4)


def test_other_schedules_answer_otherwise(under):
    """So that equal answers mean something: the last prompt token's selection changes tokens."""
    prompts = [prompt(2600)]
    full, _ = under(ReuseSchedule.from_pattern("F" * len(C4), layers=C4), prompts, tokens=8)
    shared, _ = under(ReuseSchedule.uniform(C4, "1/5"), prompts, tokens=8)
    assert full != shared


def test_every_rank_tells_what_it_runs(llm, under):
    schedule = ReuseSchedule.uniform(C4, "1/2", 1)
    under(schedule, [prompt(16)], tokens=1)
    (said,) = llm.collective_rpc("evalkit_schedule")
    assert said["schedule"] == str(schedule)
    assert tuple(said["layers"]) == C4
    assert tuple(said["sources"]) == tuple(C4[s] for s in schedule.sources("decode"))
    assert said["vllm"] == "0.32.0"
