"""Under a static cache a schedule selects and answers as under a cache that grows."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from transformers import StaticCache

from evalkit.dsa import ReuseSchedule, ScheduleError, apply_schedule
from evalkit.dsa.families.registry import FAMILIES
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.transformers_model import new_cache, text_config_of
from evalkit.selections.hisa import Hisa
from evalkit.selections.temporal import Temporal
from tests.dsa.tiny import CLASSES, build, output, tokens

SCORED = sorted(f for f in CLASSES if FAMILIES[f].static_cache and FAMILIES[f].adapter)
GENERATING = sorted(f for f in SCORED if CLASSES[f][1].endswith("CausalLM"))
LENGTH, ROOM, PADDING = 40, 9, 11
WAYS = {
    "library": {},
    "sparse": {"sparse": True},
    "chunked": {"chunked": True},
    "both": {"chunked": True, "sparse": True},
    "hisa": {"sparse": True, "policy": Hisa(block=4, blocks=3)},
    "temporal": {"sparse": True, "policy": Temporal(every=3)},
}


@cache
def tiny(family):
    """In double precision no selection hangs on rounding."""
    return build(family).double()


def schedule_of(model):
    return ReuseSchedule.uniform(indexer_sites(model).layout.layer_ids, "1/2", 1)


def batch():
    """Two texts, the second padded in front."""
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, :PADDING] = 0
    return tokens(2, LENGTH), mask


def static_cache(model, length, garbage=0.0):
    """Room for `length` tokens, with something in the room."""
    store = StaticCache(text_config_of(model), max_cache_len=length)
    for layer in store.layers:
        fill_later(layer, "lazy_initialization", ("keys", "values"), garbage)
        fill_later(layer, "lazy_initialization_indexer", ("indexer_keys",), garbage)
    return store


def fill_later(layer, method, names, garbage):
    before = getattr(layer, method)

    def fill(*states):
        before(*states)
        for name in names:
            getattr(layer, name).fill_(garbage)

    setattr(layer, method, fill)


def run(model, store, ends, **how):
    """Output of a batch in pieces, and what every full layer selected for its rows."""
    (ids, mask), parts, chosen, start = batch(), [], [], 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)

    def observe(ordinal, call, selection):
        if selection is not None:
            chosen.append((ordinal, sets(selection, call.mask, mask[:, :end])))

    with torch.no_grad(), apply_schedule(model, schedule_of(model), observe=observe, **how):
        for end in ends:
            inputs = {"attention_mask": mask[:, :end], "position_ids": positions[:, start:end]}
            parts.append(output(model, ids[:, start:end], cache=store, use_cache=True, **inputs))
            start = end
    return torch.cat(parts, 1)[mask.bool()], chosen


def sets(selection, seen, real):
    """The keys that each row of a text selected and can see: the library names others, too."""
    seen = seen > -1 if seen.dtype != torch.bool else seen
    kept = []
    for text, rows in enumerate(selection.tolist()):
        first = real.shape[1] - len(rows)
        for row, keys in enumerate(rows):
            if real[text, first + row]:
                last = seen[text, min(row, seen.shape[1] - 1)]
                kept.append({k for k in keys if 0 <= k <= first + row and last[k]})
    return kept


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", SCORED)
def test_selections_and_outputs_are_those_of_a_growing_cache(family, way):
    model, how = tiny(family), WAYS[way]
    for ends in ([LENGTH], [17, 30, 38, 39, 40]):  # a prompt at once; in pieces, then decode
        grown, chosen = run(model, new_cache(model), ends, **how)
        for room in (0, ROOM):
            static, again = run(model, static_cache(model, LENGTH + room), ends, **how)
            assert torch.allclose(static, grown, atol=1e-12), (ends, room)
            assert again == chosen


@pytest.mark.parametrize("way", WAYS)
def test_what_lies_in_the_room_is_not_read(way):
    model, how = tiny("deepseek_v32"), WAYS[way]
    empty, full = (
        run(model, static_cache(model, LENGTH + ROOM, garbage), [30, 38, 39, 40], **how)
        for garbage in (0.0, 50.0)
    )
    assert torch.equal(full[0], empty[0])
    assert full[1] == empty[1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", GENERATING)
def test_generate_writes_the_same_tokens(family, way):
    (ids, mask), model = batch(), tiny(family)
    options = {"attention_mask": mask, "max_new_tokens": 10, "do_sample": False}
    answers = []
    for kind in (None, "static"):
        with apply_schedule(model, schedule_of(model), **WAYS[way]):
            answers.append(
                model.generate(ids, **options, eos_token_id=None, cache_implementation=kind)
            )
    assert torch.equal(*answers)
    assert answers[0].shape[1] == LENGTH + 10


def test_a_static_cache_is_used_again():
    model = tiny("glm_moe_dsa")
    store = static_cache(model, LENGTH + ROOM)
    first = run(model, store, [30, 39, 40], chunked=True, sparse=True)
    store.reset()
    second = run(model, store, [30, 39, 40], chunked=True, sparse=True)
    assert torch.equal(first[0], second[0])
    assert first[1] == second[1]


def test_where_transformers_has_no_static_cache_it_is_said_in_a_line():
    model = tiny("deepseek_v4")
    with apply_schedule(model, schedule_of(model)):
        with pytest.raises(ScheduleError, match="deepseek_v4: transformers has no static cache"):
            model.generate(tokens(1, 12), max_new_tokens=2, cache_implementation="static")
        assert model.generate(tokens(1, 12), max_new_tokens=2).shape[1] > 12
    assert "_prepare_static_cache" not in vars(model)
