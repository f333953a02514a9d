"""A cache that grows in place holds what the library's holds, and copies apart from it."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dsa import ReuseSchedule, apply_schedule
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.transformers_model import cache_argument, new_cache
from evalkit.engines.hf.growing_cache import ROOM, appended, growing_cache
from tests.dsa.tiny import CLASSES, build, output, tokens


@given(
    pieces=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    shape=st.sampled_from([(1,), (3,), (1, 1), (3, 1), (2, 4)]),
    width=st.integers(0, 3),
    keep=st.integers(0, 5),
)
def test_is_a_concatenation(pieces, shape, width, keep):
    kept, plain = torch.tensor([]), torch.empty(*shape, 0, width)
    places = set()
    for number, count in enumerate(pieces):
        new = torch.randn(*shape, count, width)
        kept, plain = appended(kept, new), torch.cat([plain, new], dim=-2)
        places.add(kept.data_ptr())
        assert torch.equal(kept, plain)
        if number == keep:  # a batch that becomes smaller goes on in a new place
            rows = torch.arange(shape[0] - 1, -1, -2)
            kept, plain, shape = kept[rows], plain[rows], (len(rows), *shape[1:])
            places.clear()
    assert len(places) <= 2
    assert kept.stride(-3) <= (kept.shape[-2] + ROOM) * max(width, 1)


def test_more_than_the_room_moves():
    kept = appended(torch.tensor([]), torch.zeros(2, 3, 4))
    whole = appended(kept, torch.ones(2, ROOM + 1, 4))
    assert whole.data_ptr() != kept.data_ptr()
    assert torch.equal(whole, torch.cat([kept, torch.ones(2, ROOM + 1, 4)], dim=1))


def test_a_copy_has_memory_of_its_own():
    kept = appended(torch.tensor([]), torch.zeros(2, 3, 4))
    other = copy.deepcopy(kept)
    one, two = appended(kept, torch.ones(2, 1, 4)), appended(other, torch.full((2, 1, 4), 2.0))
    assert one[0, 3, 0] == 1
    assert two[0, 3, 0] == 2


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("family", sorted(CLASSES))
def test_every_family_reads_the_same(family, chunked):
    model = build(family)
    sites = indexer_sites(model)
    if chunked and sites.family.adapter is None:
        pytest.skip("no index scores of this family")
    schedule = ReuseSchedule.uniform(sites.layout.layer_ids, 1, 1)
    ids, found = tokens(2, 30), []
    for cache in (new_cache(model), growing_cache(model)):
        parts, name = [], cache_argument(model)
        with (
            torch.inference_mode(),
            apply_schedule(model, schedule, sparse=True, chunked=chunked),
        ):
            for start, end in ((0, 11), (11, 25), *((i, i + 1) for i in range(25, 29))):
                mask = torch.ones(len(ids), end, dtype=torch.long)
                positions = torch.arange(start, end).expand(len(ids), -1)
                more = {"attention_mask": mask, "position_ids": positions, name: cache}
                parts.append(output(model, ids[:, start:end], use_cache=True, **more))
        found.append(torch.cat(parts, dim=1))
    assert torch.allclose(*found, atol=1e-5)
