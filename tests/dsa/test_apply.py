"""apply_schedule on tiny random models of every family: proofs, not smoke."""

from __future__ import annotations

import threading

import pytest
import torch

from evalkit.dsa import (
    ReuseSchedule,
    ScheduleError,
    ScheduleInUseError,
    UnsupportedModelError,
    apply_schedule,
)
from evalkit.dsa.families.sites import indexer_sites
from tests.dsa.tiny import CLASSES, LAYERS, TOPK, build, output, tokens

MAIN = ("deepseek_v32", "glm_moe_dsa", "deepseek_v4")
PADDED = tuple(f for f in CLASSES if f != "deepseek_v4")  # V4 windows forbid padding
LENGTH = 64


@pytest.fixture(scope="module", params=sorted(CLASSES))
def any_model(request):
    return request.param, build(request.param)


@pytest.fixture(scope="module", params=MAIN)
def main_model(request):
    return request.param, build(request.param)


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def schedule_for(model, retention=1, lag=0, **kwargs):
    return ReuseSchedule.uniform(indexer_sites(model).layout.layer_ids, retention, lag, **kwargs)


def record(model, applied_kwargs, *args, **kwargs):
    """(output, own selection per ordinal, consumed selection per ordinal) of one forward."""
    selected, consumed, hooks = {}, {}, []
    schedule, options = applied_kwargs

    def observe(ordinal, _call, selection):
        if selection is not None:
            selected[ordinal] = selection.clone()

    for ordinal, owner in enumerate(indexer_sites(model).owners):
        hooks.append(
            owner.indexer.register_forward_hook(
                lambda _m, _a, out, o=ordinal: consumed.__setitem__(o, out.clone())
            )
        )
    try:
        with apply_schedule(model, schedule, observe=observe) as applied:
            for key, value in options.items():
                setattr(applied, key, value)
            result = output(model, *args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return result, selected, consumed


def test_all_full_is_bit_identical_and_undone_exactly(any_model):
    _, model = any_model
    ids = tokens(2, LENGTH)
    before = output(model, ids)
    modules = {name: id(module) for name, module in model.named_modules()}
    attributes = {name: set(vars(module)) for name, module in model.named_modules()}
    with apply_schedule(model, schedule_for(model)) as applied:
        under = output(model, ids)
        assert set(model.state_dict()) == set(model.state_dict())
    assert torch.equal(before, under)
    assert all(applied.calls[i] == 1 for i in range(len(indexer_sites(model).owners)))
    with apply_schedule(model, schedule_for(model, "1/2")):
        assert not torch.equal(before, output(model, ids))
    assert {name: id(module) for name, module in model.named_modules()} == modules
    assert {name: set(vars(module)) for name, module in model.named_modules()} == attributes
    assert torch.equal(before, output(model, ids))


@pytest.mark.parametrize("pattern", ["FSFSFSFS", "FFSSSSFS", "FSSSSSSS", "FFFSSSFS"])
@pytest.mark.parametrize("family", ["glm_moe_dsa", "hy_v4", "mistral_large4_text"])
def test_patterns_equal_the_librarys_own_sharing(family, pattern):
    ids = tokens(2, LENGTH)
    full = build(family)
    types = ["full" if letter == "F" else "shared" for letter in pattern]
    native = build(family, indexer_types=types)
    native.load_state_dict(full.state_dict(), strict=False)
    with apply_schedule(full, ReuseSchedule.from_pattern(pattern)):
        ours = output(full, ids)
    assert torch.equal(ours, output(native, ids))
    # The native checkpoint has no indexers on shared layers: its own pattern is a no-op on it.
    with apply_schedule(native, ReuseSchedule.from_pattern(pattern)):
        assert torch.equal(ours, output(native, ids))
    assert all(
        owner.indexer is None or pattern[i] == "F"
        for i, owner in enumerate(indexer_sites(native).owners)
    )


def test_native_sharing_can_be_made_sparser_never_denser():
    ids = tokens(1, LENGTH)
    full = build("glm_moe_dsa")
    native = build("glm_moe_dsa", indexer_types=["full", "shared"] * (LAYERS // 2))
    native.load_state_dict(full.state_dict(), strict=False)
    before = output(native, ids)
    vars_before = [dict(vars(owner)) for owner in indexer_sites(native).owners]
    sparser = ReuseSchedule.uniform(LAYERS, "1/4")
    with apply_schedule(native, sparser):
        ours = output(native, ids)
    with apply_schedule(full, sparser):
        assert torch.equal(ours, output(full, ids))
    assert [dict(vars(owner)) for owner in indexer_sites(native).owners] == vars_before
    assert torch.equal(before, output(native, ids))
    with pytest.raises(ScheduleError, match="layer 1 has no indexer in this checkpoint"):
        with apply_schedule(native, ReuseSchedule.uniform(LAYERS)):
            pass
    assert torch.equal(before, output(native, ids))


@pytest.mark.parametrize("lag", [1, 2])
def test_lag_consumes_the_hand_computed_selection(any_model, lag):
    _, model = any_model
    count = len(indexer_sites(model).owners)
    schedule = schedule_for(model, lag=lag, lag_phase="all")
    _, selected, consumed = record(model, (schedule, {}), tokens(2, LENGTH))
    for layer in range(count):
        source = layer - lag if layer >= lag else layer
        assert torch.equal(consumed[layer], selected[source])
    assert any(not torch.equal(selected[i], consumed[i]) for i in range(count))


def test_lag_acts_in_decode_only(main_model):
    _, model = main_model
    ids = tokens(1, LENGTH)
    schedule = schedule_for(model, lag=1)
    _, selected, consumed = record(model, (schedule, {"phase": "prefill"}), ids)
    assert all(torch.equal(selected[i], consumed[i]) for i in selected)
    _, selected, consumed = record(model, (schedule, {"phase": "decode"}), ids)
    assert all(torch.equal(selected[i - 1 if i else 0], consumed[i]) for i in selected)


def test_shared_layers_do_no_indexer_work(any_model):
    family, model = any_model
    ran = []
    hooks = [
        module.register_forward_hook(lambda _m, _a, _o, key=(i, name): ran.append(key))
        for i, owner in enumerate(indexer_sites(model).owners)
        for name, module in owner.indexer.named_modules()
        if name
    ]
    schedule = schedule_for(model, "1/2")
    with apply_schedule(model, schedule) as applied:
        output(model, tokens(1, LENGTH), use_cache=True)
    for hook in hooks:
        hook.remove()
    shared = {i for i, full in enumerate(schedule.computes) if not full}
    worked = {name for i, name in ran if i in shared}
    # DeepSeek-V4 keeps the compressor state of shared layers; no query, weight or score.
    allowed = (
        {"kv_proj", "gate_proj", "kv_norm", "rotary_emb"} if family == "deepseek_v4" else set()
    )
    assert worked <= allowed
    assert {i for i, _ in ran} >= set(schedule.full_layers)
    assert not any(applied.calls[i] for i in shared)


def test_v4_shared_layer_keeps_its_compressor_state():
    from transformers import DynamicCache

    model = build("deepseek_v4")
    ids = tokens(1, 40)
    states = []
    for retention in (1, "1/2"):
        cache = DynamicCache(config=model.config)
        with apply_schedule(model, schedule_for(model, retention)):
            model(ids[:, :30], cache=cache, use_cache=True)
            for i in range(30, 40):
                model(ids[:, i : i + 1], cache=cache, use_cache=True)
        states.append(cache.layers[4])
    full, shared = states  # layer 4 is the first shared one: its input is the same in both
    assert shared.entry_count == full.entry_count
    for name in ("compressed_kv", "buffer_kv", "buffer_gate", "overlap_kv", "overlap_gate"):
        ours, reference = getattr(shared, name)["indexer"], getattr(full, name)["indexer"]
        assert (ours is None and reference is None) or torch.equal(ours, reference)


def feed(model, ids, cuts, applied=None, phases=None):
    """Logits of a sequence fed through a cache in pieces."""
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    parts, start = [], 0
    for i, cut in enumerate([*cuts, ids.shape[1]]):
        if applied is not None and phases is not None:
            applied.phase = phases[i]
        parts.append(output(model, ids[:, start:cut], cache=cache, use_cache=True))
        start = cut
    return torch.cat(parts, dim=1)


@pytest.fixture(scope="module", params=MAIN)
def double_model(request):
    """fp64: rounding cannot flip a near tie at the top-k border, so equality can be asked for."""
    return build(request.param).double()


@pytest.mark.parametrize("retention", [1, "1/2", "1/4"])
@pytest.mark.parametrize("lag", [0, 1])
def test_cached_and_chunked_equal_whole(double_model, retention, lag):
    model = double_model
    ids = tokens(2, LENGTH, seed=3)
    schedule = schedule_for(model, retention, lag, lag_phase="all")
    with apply_schedule(model, schedule):
        whole = output(model, ids, use_cache=False)
        chunked = feed(model, ids, [16, 32, 33, 50])
        cached = feed(model, ids, list(range(40, LENGTH)))
    assert torch.allclose(whole, chunked, atol=1e-5)
    assert torch.allclose(whole, cached, atol=1e-5)


@pytest.mark.parametrize("family", sorted(set(CLASSES) - {"glm5_next_text"}))
@pytest.mark.parametrize("retention", [1, "1/2"])
def test_chunked_selection_equals_the_librarys_indexer(family, retention):
    model = build(family).double()
    ids = tokens(2, LENGTH, seed=3)
    schedule = schedule_for(model, retention)
    mask = torch.ones_like(ids)
    if family != "deepseek_v4":
        mask[1, :23] = 0
    options = {"attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
    with apply_schedule(model, schedule):
        library = output(model, ids, use_cache=False, **options)
        library_cached = feed(model, ids, [16, 32, 33, 60])
    with apply_schedule(model, schedule, chunked=True):
        ours = output(model, ids, use_cache=False, **options)
        ours_cached = feed(model, ids, [16, 32, 33, 60])
    assert torch.allclose(library[0], ours[0], atol=1e-5)
    assert torch.allclose(library[1, 23:], ours[1, 23:], atol=1e-5)
    assert torch.allclose(library_cached, ours_cached, atol=1e-5)


def test_chunked_selection_of_pools_is_refused():
    model = build("glm5_next_text")
    with apply_schedule(model, schedule_for(model), chunked=True):
        with pytest.raises(UnsupportedModelError, match="pools of tokens"):
            output(model, tokens(1, LENGTH))


@pytest.mark.parametrize("retention", [1, "1/2"])
def test_decode_rows_reproduce_prefill_then_decode(double_model, retention):
    """One whole forward with decode rows equals prefill (lag 0) followed by lagged decoding."""
    model = double_model
    ids, prompt = tokens(2, LENGTH, seed=5), 48
    schedule = schedule_for(model, retention, lag=1)
    with apply_schedule(model, schedule) as applied:
        phases = ["prefill"] + ["decode"] * (LENGTH - prompt)
        cached = feed(model, ids, list(range(prompt, LENGTH)), applied, phases)
        applied.decode_rows = (torch.arange(LENGTH) >= prompt).expand(2, -1)
        whole = output(model, ids, use_cache=False)
        applied.decode_rows = None
        applied.phase = "prefill"
        unlagged = output(model, ids, use_cache=False)
    assert torch.allclose(whole, cached, atol=1e-5)
    if retention == 1 or len(indexer_sites(model).owners) > 3:
        assert not torch.allclose(whole[:, prompt:], unlagged[:, prompt:], atol=1e-2)


@pytest.mark.parametrize("family", PADDED)
@pytest.mark.parametrize("retention", [1, "1/2"])
def test_rows_of_a_padded_batch_equal_themselves_alone(family, retention):
    model = build(family).double()
    long, short = tokens(1, LENGTH, seed=7), tokens(1, 41, seed=8)
    batch = torch.zeros(2, LENGTH, dtype=torch.long)
    mask = torch.zeros(2, LENGTH, dtype=torch.long)
    batch[0], mask[0] = long[0], 1
    batch[1, -41:], mask[1, -41:] = short[0], 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with apply_schedule(model, schedule_for(model, retention)):
        together = output(model, batch, attention_mask=mask, position_ids=positions)
        alone = output(model, short)
    assert torch.allclose(together[1, -41:], alone[0], atol=1e-5)


def test_nested_and_concurrent_use_are_refused(main_model):
    _, model = main_model
    ids = tokens(1, LENGTH)
    before = output(model, ids)
    with apply_schedule(model, schedule_for(model)):
        with pytest.raises(ScheduleInUseError, match="already under a schedule"):
            with apply_schedule(model, schedule_for(model, "1/2")):
                pass
        assert torch.equal(before, output(model, ids))
    caught = []

    def other_thread(*_):
        def run():
            try:
                output(model, ids)
            except ScheduleInUseError as error:
                caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    with apply_schedule(model, schedule_for(model, "1/2")):
        undisturbed = output(model, ids)
        hook = indexer_sites(model).owners[0].register_forward_hook(other_thread)
        assert torch.equal(output(model, ids), undisturbed)  # its selections are still there
        hook.remove()
    assert len(caught) == 1
    assert torch.equal(before, output(model, ids))


def test_an_error_inside_leaves_the_model_as_it_was(main_model):
    _, model = main_model
    ids = tokens(1, LENGTH)
    before = output(model, ids)
    with pytest.raises(ZeroDivisionError), apply_schedule(model, schedule_for(model, "1/2")):
        raise ZeroDivisionError
    assert torch.equal(before, output(model, ids))
    with apply_schedule(model, schedule_for(model, "1/2")) as applied:
        hook = indexer_sites(model).owners[1].register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            output(model, ids)
        hook.remove()
        assert not applied._carrier  # a failed forward leaves nothing for the next one
        output(model, ids)


def test_a_lone_layer_is_refused():
    model = build("deepseek_v32")
    sites = indexer_sites(model)
    seen = {}
    hook = sites.owners[1].register_forward_pre_hook(
        lambda _m, args, kwargs: seen.update(args=args, kwargs=kwargs), with_kwargs=True
    )
    with apply_schedule(model, schedule_for(model, "1/2")):
        output(model, tokens(1, LENGTH), use_cache=False)
        with pytest.raises(ScheduleError, match="layer 1 runs outside a forward of the model"):
            sites.owners[1](*seen["args"], **seen["kwargs"])
    hook.remove()


def test_a_schedule_that_does_not_fit_is_refused():
    model = build("deepseek_v4")
    with pytest.raises(ScheduleError, match=r"has 8 layers, the model 3 .*2, 4, 6"):
        with apply_schedule(model, ReuseSchedule.uniform(8)):
            pass
    with pytest.raises(ScheduleError, match=r"layers=\[2, 4, 6\]"):
        with apply_schedule(model, ReuseSchedule.uniform(3)):
            pass


def test_other_models_are_refused_by_name():
    import transformers as tf

    llama = tf.LlamaForCausalLM(
        tf.LlamaConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
        )
    )
    with pytest.raises(UnsupportedModelError, match="llama is not supported: it has no lightning"):
        with apply_schedule(llama, ReuseSchedule.uniform(1)):
            pass
    from evalkit.dsa.families.registry import family_of

    for name, reason in (("qwen4_exp_text", "token mask"), ("minimax_m3_vl_text", "blocks")):
        with pytest.raises(UnsupportedModelError, match=reason):
            family_of(name)


def test_every_indexer_of_the_installed_library_is_accounted_for():
    """A new family in a new release is noticed here: support it or refuse it with a reason."""
    from pathlib import Path

    import transformers

    from evalkit.dsa.families.registry import FAMILIES

    of_library = [name for name, family in FAMILIES.items() if family.parameters or family.refused]
    known = {name.removesuffix("_text") for name in of_library}
    models = Path(transformers.__file__).parent / "models"
    bearing = {
        path.parent.name
        for path in models.glob("*/modeling_*.py")
        if "self.indexer = " in path.read_text(encoding="utf-8")
    }
    assert bearing == known


def test_below_topk_every_schedule_is_exact():
    """Why the tests use lengths far above index_topk: below it nothing can differ."""
    model = build("deepseek_v32")
    ids = tokens(1, TOPK)
    with apply_schedule(model, schedule_for(model, "1/8")):
        under = output(model, ids)
    assert torch.allclose(under, output(model, ids), atol=1e-5)
