"""Layers of both families, faked by the names and calls that vLLM has: who writes, who reads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from evalkit.dsa import ReuseSchedule, ScheduleError
from evalkit.vllm_plugin.buffers import prompt_rows
from evalkit.vllm_plugin.engine import _after, bind

TOKENS, TOPK = 5, 2


class Indexer(nn.Module):
    """Selects its layer's id everywhere; holds the buffer twice, as vLLM's does."""

    def __init__(self, layer, buffer):
        super().__init__()
        self.layer = layer
        self.topk_indices_buffer = buffer
        self.indexer_op = SimpleNamespace(topk_indices_buffer=buffer)
        self.weights_proj = nn.Linear(1, 1)
        self.compressed = self.scored = 0

    def compressor(self, *_):
        self.compressed += 1

    def select(self, rows):
        assert self.topk_indices_buffer is self.indexer_op.topk_indices_buffer
        self.scored += 1
        self.indexer_op.topk_indices_buffer[:rows] = self.layer

    def forward(self, hidden, qr, score, weights, positions, rotary, scale=None):
        self.compressor(score, positions, rotary)
        return hidden, None, weights


class DeepseekV4Attention(nn.Module):
    """A layer without an indexer where `buffer` is None."""

    def __init__(self, layer, buffer):
        super().__init__()
        self.prefix = f"model.layers.{layer}.attn"
        self.topk_indices_buffer = buffer
        self.indexer = None if buffer is None else Indexer(layer, buffer)
        self.read = None

    def forward(self, positions):
        if self.indexer is None:
            return
        weights = self.indexer.weights_proj(torch.ones(1, 1))
        args = ("hidden", "qr", "score", weights, positions, None)
        query, _, _ = self.indexer(*args)
        if query is not None:
            self.indexer.select(len(positions))
        self.forward_mqa("q", "kv", positions, "out")

    def forward_mqa(self, q, kv, positions, output):
        self.read = self.topk_indices_buffer[: len(positions), 0].tolist()


class DeepseekV4CPUAttention(DeepseekV4Attention):
    pass


class Implementation:
    """An explicit buffer supersedes the indexer's, and `ready` ends the time to write."""

    def __init__(self, buffer):
        self.topk_indices_buffer = buffer
        self.read = None
        self.groups = 0

    def record_logical_topk_ready(self):
        self.groups += 1
        self.read = self.topk_indices_buffer[:TOKENS, 0].tolist()


class MultiHeadLatentAttentionWrapper(nn.Module):
    def __init__(self, layer, buffer, computes):
        super().__init__()
        self.prefix = f"model.layers.{layer}.self_attn"
        self.is_sparse = True
        self.indexer = Indexer(layer, buffer) if computes else None
        self.mla_attn = SimpleNamespace(impl=Implementation(buffer))

    def forward(self, positions, hidden):
        if self.indexer is not None:
            self.indexer.select(len(positions))
        self.mla_attn.impl.record_logical_topk_ready()

    @property
    def read(self):
        return self.mla_attn.impl.read[:TOKENS]


class DeepseekV32Attention(nn.Module):
    def __init__(self, layer, buffer, computes):
        super().__init__()
        self.layer_name = f"model.layers.{layer}.self_attn.attn"
        self.indexer = Indexer(layer, buffer) if computes else None
        self.topk_indices_buffer = buffer
        self.impl = Implementation(buffer)

    def forward(self, positions):
        self._sparse_indexer_and_attn(positions, "more")

    def _sparse_indexer_and_attn(self, positions, more):
        if self.indexer is not None:
            assert self.topk_indices_buffer is self.indexer.topk_indices_buffer
            self.indexer.select(len(positions))
        self.impl.record_logical_topk_ready()

    @property
    def read(self):
        return self.impl.read


def model(kind, schedule, layers=None):
    """A model with one shared buffer, as vLLM builds it under that pattern."""
    buffer = torch.full((TOKENS, TOPK), -7, dtype=torch.int32)
    count = layers or schedule.layer_ids[-1] + 1
    if issubclass(kind, DeepseekV4Attention):
        ids = set(schedule.layer_ids)
        return nn.ModuleList(kind(i, buffer if i in ids else None) for i in range(count))
    return nn.ModuleList(kind(i, buffer, schedule.computes[i]) for i in range(count))


def run(layers, rows=TOKENS):
    positions = torch.arange(rows)
    for layer in layers:
        more = ("hidden",) if isinstance(layer, MultiHeadLatentAttentionWrapper) else ()
        layer(positions, *more)


KINDS = [MultiHeadLatentAttentionWrapper, DeepseekV32Attention, DeepseekV4CPUAttention]
TEXTS = ["FFFF", "FSFS", "FFFF lag=1", "FSFSFF lag=1", "FSSFSF lag=2", "FFFSF lag=1 phase=all"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("text", TEXTS)
def test_every_token_reads_its_source(kind, text):
    schedule = ReuseSchedule.parse(text)
    if kind is DeepseekV4CPUAttention:  # indexers in every second layer
        ids = tuple(2 * i + 1 for i in range(len(schedule)))
        schedule = ReuseSchedule(schedule.computes, schedule.source, schedule.lag_phase, ids)
    layers = model(kind, schedule)
    buffers, said = bind(layers, schedule, 3, "0.32.0")
    ids = schedule.layer_ids
    assert (said.rank, said.layers, said.schedule) == (3, ids, str(schedule))
    for decodes in (0, 2, TOKENS):
        buffers.split(decodes)
        run(layers)
        for i, layer in enumerate(ids):
            decode = ids[schedule.sources("decode")[i]]
            prefill = ids[schedule.sources("prefill")[i]]
            wanted = [decode] * decodes + [prefill] * (TOKENS - decodes)
            assert layers[layer].read == wanted, (layer, decodes)


def test_a_piece_of_a_prompt_reads_as_a_prompt_however_short():
    """Two requests of one token and one of two go with the decode steps; the second is a prompt."""
    schedule = ReuseSchedule.parse("FFFF lag=1")
    layers = model(DeepseekV32Attention, schedule)
    buffers, _ = bind(layers, schedule, 0, "0.32.0")
    batch = SimpleNamespace(
        is_prefilling=torch.tensor([False, True, False, True]),
        query_start_loc_cpu=torch.tensor([0, 1, 2, 4, 5]),
    )
    assert prompt_rows(3, batch) == [slice(1, 2)]
    buffers.split(4, prompt_rows(3, batch))
    run(layers)
    assert layers[2].read == [1, 2, 1, 1, 2]
    buffers.split(4)
    run(layers)
    assert layers[2].read == [1, 1, 1, 1, 2]
    assert prompt_rows(0, batch) == []
    assert prompt_rows(3, SimpleNamespace(is_prefilling=None)) == prompt_rows(3, None) == []


def test_shared_layers_of_v4_compress_and_do_nothing_else():
    schedule = ReuseSchedule.parse("FSFS layers=1,3,5,7")
    layers = model(DeepseekV4CPUAttention, schedule)
    bind(layers, schedule, 0, "0.32.0")
    run(layers)
    found = [layers[i].indexer for i in schedule.layer_ids]
    assert [indexer.compressed for indexer in found] == [1, 1, 1, 1]
    assert [indexer.scored for indexer in found] == [1, 0, 1, 0]
    assert found[1].weights_proj(torch.ones(1, 1)) == (None, None)
    assert found[0].weights_proj(torch.ones(1, 1)).shape == (1, 1)


def test_models_and_stages_that_do_not_fit():
    schedule = ReuseSchedule.parse("FSFS lag=1")
    with pytest.raises(ScheduleError, match="no layer with an indexer"):
        bind(nn.Linear(1, 1), schedule, 0, "0.32.0")
    whole = model(DeepseekV32Attention, schedule)
    with pytest.raises(ScheduleError, match="layer 3 has an indexer, and the schedule has no"):
        bind(whole, ReuseSchedule.parse("FSF"), 0, "0.32.0")
    with pytest.raises(ScheduleError, match="layer 2 reads the selection of layer 0"):
        bind(nn.ModuleList(list(whole)[2:]), schedule, 0, "0.32.0")


def test_what_is_replaced_runs_once_and_stops_with_one_line():
    class Engine:
        def make(self, size):
            return [size]

    seen = []
    _after(Engine, "make", lambda made, engine, size: seen.append(("first", size)))
    _after(Engine, "make", lambda made, engine, size: seen.append(("second", size)))
    assert Engine().make(3) == [3]
    assert seen == [("second", 3)]

    def refuse(*_):
        raise ScheduleError("layer 2\nreads nothing")

    _after(Engine, "make", refuse)
    with pytest.raises(SystemExit, match="evalkit: layer 2 reads nothing"):
        Engine().make(1)
