"""Buffers beside the schedule itself: fake layers write, merge and read as the routes say."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dsa import ReuseSchedule, ScheduleError
from evalkit.dsa.stages import check_cut
from evalkit.vllm_plugin.buffers import SelectionBuffers
from evalkit.vllm_plugin.routing import Route, routes

TOKENS, TOPK = 6, 3


def stepped(schedule: ReuseSchedule, decode_tokens: int, rows: int = TOKENS) -> list[torch.Tensor]:
    """What every layer reads in one forward; layer i selects the number i everywhere."""
    plan = routes(schedule)
    buffers = SelectionBuffers(plan, torch.full((TOKENS, TOPK), -7, dtype=torch.int32))
    buffers.split(decode_tokens)
    read = []
    for ordinal, route in enumerate(plan.layers):
        if route.write is not None:
            buffers.slots[route.write][:rows] = ordinal
        buffers.merge(route, rows)
        read.append(buffers.slots[route.read][:rows, 0].clone())
    return read


@st.composite
def schedules(draw):
    letters = "F" + draw(st.text("FS", max_size=9))
    phase = draw(st.sampled_from(["decode", "all"]))
    uniform = draw(st.booleans())
    lag = st.integers(0, 3)
    lags = draw(lag) if uniform else [draw(lag) for _ in letters]
    return ReuseSchedule.from_pattern(letters, lags, lag_phase=phase)


@given(schedules(), st.integers(0, TOKENS), st.integers(1, TOKENS))
def test_every_token_reads_its_source(schedule, decode_tokens, rows):
    """Decode tokens come first and read σ(ℓ), the others p(ℓ), in any mixture."""
    read = stepped(schedule, decode_tokens, rows)
    decode, prefill = schedule.sources("decode"), schedule.sources("prefill")
    for ordinal, got in enumerate(read):
        wanted = [decode[ordinal] if t < decode_tokens else prefill[ordinal] for t in range(rows)]
        assert got.tolist() == wanted


@given(schedules())
def test_shared_layers_write_nothing_and_slots_are_few(schedule):
    plan = routes(schedule)
    for route, full in zip(plan.layers, schedule.computes, strict=True):
        assert (route.write is not None) == full
    most = max(schedule.lags, default=0)
    assert plan.slots <= most + 1 + any(route.merge for route in plan.layers)
    if isinstance(schedule.lag, int):  # one copy for each full layer that lags, none for shared
        lagging = [i for i in schedule.full_layers if schedule.lags[i]]
        assert sum(route.merge is not None for route in plan.layers) <= len(lagging)


def test_routes_by_hand():
    """FFSF with k = 1: layer 1 and its shared layer 2 read 0 in decode and 1 in prefill."""
    plan = routes(ReuseSchedule.from_pattern("FFSF", 1))
    assert plan.slots == 3
    assert plan.layers == (
        Route(0, None, 0),
        Route(1, (0, 1), 2),
        Route(None, None, 2),
        Route(0, (1, 0), 2),
    )
    serial = routes(ReuseSchedule.from_pattern("FSFS"))
    assert serial.slots == 1
    assert [route.read for route in serial.layers] == [0, 0, 0, 0]
    both = routes(ReuseSchedule.from_pattern("FFFF", 1, lag_phase="all"))
    assert [(route.merge, route.read) for route in both.layers] == [
        (None, 0), (None, 0), (None, 1), (None, 0),
    ]  # fmt: skip


def test_a_plain_schedule_leaves_the_engine_its_buffer():
    own = torch.zeros((TOKENS, TOPK), dtype=torch.int32)
    buffers = SelectionBuffers(routes(ReuseSchedule.from_pattern("FFFF")), own)
    assert len(buffers.slots) == 1
    assert buffers.slots[0] is own


def test_merging_keeps_addresses_and_rows_beyond_the_batch():
    """What a CUDA graph has captured stays where it is; rows of other batches are not touched."""
    schedule = ReuseSchedule.from_pattern("FF", 1)
    plan = routes(schedule)
    buffers = SelectionBuffers(plan, torch.zeros((TOKENS, TOPK), dtype=torch.int32))
    addresses = [slot.data_ptr() for slot in buffers.slots] + [buffers.decode_rows.data_ptr()]
    for decode_tokens in (0, 2, 6):
        buffers.split(decode_tokens)
        buffers.slots[1].fill_(5)
        buffers.merge(plan.layers[1], 4)
    assert [s.data_ptr() for s in buffers.slots] + [buffers.decode_rows.data_ptr()] == addresses
    assert buffers.slots[2][4:].unique().tolist() == [-1]


@pytest.mark.parametrize(
    ("text", "stage", "says"),
    [
        ("FFFF lag=1", range(2, 4), "layer 2 reads the selection of layer 1 in decode"),
        ("FSSF", range(2, 4), "layer 2 reads the selection of layer 0"),
        ("FSFS", range(2, 4), ""),
        ("FFFF lag=1", range(4), ""),
        ("FSFS layers=2,4,6,8", range(4, 9), "layer 4 reads the selection of layer 2"),
    ],
)
def test_pipeline_stages_that_cut_a_source_from_its_reader(text, stage, says):
    schedule = ReuseSchedule.parse(text)
    if not says:
        check_cut(schedule, stage)
        return
    with pytest.raises(ScheduleError, match=says):
        check_cut(schedule, stage)
