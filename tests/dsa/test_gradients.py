"""Gradients under a schedule: with and without checkpoints, backward inside and after the block."""

from __future__ import annotations

import gc
import weakref
from functools import cache

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from evalkit.dsa import ReuseSchedule, ScheduleError, ScheduleInUseError, apply_schedule
from evalkit.dsa.families.sites import indexer_sites
from tests.dsa.tiny import CLASSES, build, output, tokens

LENGTH = 40
SCHEDULES = {"reuse": ("1/2", 0), "lag": (1, 1), "both": ("1/2", 1)}
MAIN = ("deepseek_v32", "deepseek_v4", "glm_moe_dsa")
# Every kind of schedule on the main families, one on the others. Reentrant checkpoints fail in
# transformers' own model of mistral_large4_text, without a schedule too.
CASES = [
    (family, kind, reentrant)
    for family in sorted(CLASSES)
    for kind in (SCHEDULES if family in MAIN else ("both",))
    for reentrant in (True, False)
    if not (reentrant and family == "mistral_large4_text")
]


def schedule_of(model, retention, lag):
    ids = indexer_sites(model).layout.layer_ids
    return ReuseSchedule.uniform(ids, retention, lag, lag_phase="all")


def gradients(model, loss=None):
    if loss is not None:
        loss.backward()
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def loss_of(model, seed=0):
    return output(model, tokens(2, LENGTH, seed)).pow(2).mean()


def plain(model, schedule, seeds=(0,), **options):
    """Gradients without checkpoints."""
    model.activation_checkpointing_disable()
    model.zero_grad(set_to_none=True)
    with apply_schedule(model, schedule, **options):
        found = gradients(model, sum(loss_of(model, seed) for seed in seeds))
    assert len(found) > 20
    return found


def checkpointed(model, reentrant):
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    model.train()


def assert_equal(ours, expected):
    assert ours.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.allclose(ours[name], gradient, rtol=1e-9, atol=1e-12), name


@cache
def trained(family):
    return build(family).double().train()


@pytest.mark.parametrize("where", ["inside", "after"])
@pytest.mark.parametrize(("family", "kind", "reentrant"), CASES)
def test_checkpoints_change_no_gradient(family, kind, reentrant, where):
    model = trained(family)
    schedule = schedule_of(model, *SCHEDULES[kind])
    expected = plain(model, schedule)
    checkpointed(model, reentrant)
    seen = []
    with apply_schedule(model, schedule, observe=lambda o, *_: seen.append(o)) as applied:
        loss = loss_of(model)
        if where == "inside":
            loss.backward()
    ours = gradients(model, loss if where == "after" else None)
    assert_equal(ours, expected)
    assert seen == list(range(len(schedule)))  # once each, not again in backward
    assert sum(applied.calls.values()) == len(schedule.full_layers)


@pytest.mark.parametrize("family", MAIN)
@pytest.mark.parametrize("reentrant", [True, False])
def test_the_schedule_decides_the_gradients(family, reentrant):
    """So that equality above is not that of a test that sees nothing."""
    model = build(family).double().train()
    full, half = (plain(model, schedule_of(model, r, 0)) for r in (1, "1/2"))
    assert any(not torch.allclose(full[n], half[n], rtol=1e-3) for n in full.keys() & half.keys())
    checkpointed(model, reentrant)
    with apply_schedule(model, schedule_of(model, "1/2", 0)):
        first = loss_of(model, 1)
    with apply_schedule(model, schedule_of(model, 1, 0)):
        second = loss_of(model, 2)
    # Two schedules, two forwards, one backward after both: each reads its own selections.
    ours = gradients(model, first + second)
    one, two = (
        plain(model, schedule_of(model, "1/2", 0), (1,)),
        plain(model, schedule_of(model, 1, 0), (2,)),
    )
    zero = torch.zeros((), dtype=torch.float64)
    assert_equal(ours, {n: one.get(n, zero) + two.get(n, zero) for n in one.keys() | two.keys()})


@pytest.mark.parametrize("reentrant", [True, False])
def test_several_forwards_before_one_backward(reentrant):
    model = build("deepseek_v32").double().train()
    schedule = schedule_of(model, "1/4", 0)
    expected = plain(model, schedule, (1, 2, 3), chunked=True)
    checkpointed(model, reentrant)
    with apply_schedule(model, schedule, chunked=True):
        loss = sum(loss_of(model, seed) for seed in (1, 2, 3))
    assert_equal(gradients(model, loss), expected)


@pytest.mark.parametrize("reentrant", [True, False])
def test_natively_shared_layers_under_checkpoints(reentrant):
    model = build("glm_moe_dsa", indexer_types=["full", "shared"] * 4).double().train()
    schedule = schedule_of(model, "1/4", 0)
    expected = plain(model, schedule)
    checkpointed(model, reentrant)
    before = [dict(vars(owner)) for owner in indexer_sites(model).owners]
    with apply_schedule(model, schedule):
        loss = loss_of(model)
    assert_equal(gradients(model, loss), expected)
    assert [dict(vars(owner)) for owner in indexer_sites(model).owners] == before


def test_the_models_own_functions_come_back():
    model = build("deepseek_v32").train()
    checkpointed(model, False)
    functions = {n: vars(m).get("_gradient_checkpointing_func") for n, m in model.named_modules()}
    with apply_schedule(model, schedule_of(model, "1/2", 0)):
        loss = loss_of(model)
        hook = indexer_sites(model).owners[1].register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            loss_of(model)
        hook.remove()
    loss.backward()
    after = {n: vars(m).get("_gradient_checkpointing_func") for n, m in model.named_modules()}
    assert after == functions
    assert any(functions.values())
    assert not any("forward" in vars(o.indexer) for o in indexer_sites(model).owners)


def test_checkpoints_by_hand_are_refused():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = build("deepseek_v32").train()
    schedule = schedule_of(model, "1/2", 0)
    layers = indexer_sites(model).root.layers
    layers[3] = checkpoint_wrapper(layers[3])
    with apply_schedule(model, schedule):
        with torch.no_grad():
            loss_of(model)
        for training in (True, False):  # torch's wrapper asks for no mode
            model.train(training)
            with pytest.raises(ScheduleError, match=r"use model\.activation_checkpointing_en"):
                loss_of(model)


by_hand = pytest.mark.parametrize("reentrant", [True, False])


def around(model, reentrant, seed=0, run=loss_of):
    """A loss, checkpointed whole; reentrant checkpoints need an input with a gradient."""
    start = torch.zeros((), dtype=torch.float64, requires_grad=True)
    return checkpoint(lambda x: run(model, seed) + x, start, use_reentrant=reentrant)


@by_hand
@pytest.mark.parametrize("where", ["inside", "after"])
@pytest.mark.parametrize(
    ("family", "kind"),
    [("deepseek_v32", "reuse"), ("deepseek_v32", "lag"), ("deepseek_v4", "both")],
)
def test_checkpoints_around_the_whole_model_change_no_gradient(family, kind, where, reentrant):
    model = trained(family)
    schedule = schedule_of(model, *SCHEDULES[kind])
    expected = plain(model, schedule, chunked=True)
    without = plain(model, schedule_of(model, 1, 0), chunked=True)
    assert any(not torch.allclose(without[n], g, rtol=1e-3) for n, g in expected.items())
    seen = []
    observe = lambda o, *_: seen.append(o)  # noqa: E731
    with apply_schedule(model, schedule, chunked=True, observe=observe) as applied:
        loss = around(model, reentrant)
        if where == "inside":
            loss.backward()
    assert_equal(gradients(model, loss if where == "after" else None), expected)
    assert seen == list(range(len(schedule)))
    assert sum(applied.calls.values()) == len(schedule.full_layers)


@by_hand
def test_each_checkpoint_runs_again_under_its_own_schedule_and_phase(reentrant):
    model = build("deepseek_v32").double().train()
    half = schedule_of(model, "1/2", 0)
    lag = ReuseSchedule.uniform(half.layer_ids, "1/2", 1)  # in decode only
    with apply_schedule(model, half):
        first = around(model, reentrant, 1)
    with apply_schedule(model, lag) as applied:
        applied.phase = "decode"
        second = around(model, reentrant, 2)
        applied.phase = "prefill"
    third = around(model, reentrant, 3)
    ours = gradients(model, first + second + third)
    with apply_schedule(model, half):
        loss = loss_of(model, 1)
    with apply_schedule(model, lag) as applied:
        applied.phase = "decode"
        loss = loss + loss_of(model, 2)
    assert_equal(ours, gradients(model, loss + loss_of(model, 3)))


@by_hand
def test_checkpoints_around_the_block_enter_it_themselves(reentrant):
    model = build("deepseek_v32").double().train()
    schedule = schedule_of(model, "1/2", 0)

    def run(model, seed):
        with apply_schedule(model, schedule):
            return loss_of(model, seed)

    loss = around(model, reentrant, run=run)
    assert_equal(gradients(model, loss), plain(model, schedule))


@by_hand
def test_checkpoints_around_the_model_and_its_layers(reentrant):
    model = build("deepseek_v32").double().train()
    schedule = schedule_of(model, "1/2", 1)
    expected = plain(model, schedule)
    checkpointed(model, reentrant)
    with apply_schedule(model, schedule):
        loss = around(
            model, reentrant, run=lambda m, s: checkpoint(loss_of, m, s, use_reentrant=False)
        )
    assert_equal(gradients(model, loss), expected)


@by_hand
def test_a_checkpoint_leaves_nothing_on_the_model(reentrant):
    model = build("deepseek_v32").double().train()
    expected = gradients(model, around(model, reentrant))
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    hooks = [(m._forward_pre_hooks.copy(), m._forward_hooks.copy()) for m in model.modules()]
    with apply_schedule(model, schedule_of(model, "1/2", 0)):
        loss = around(model, reentrant)
    gradients(model, loss)
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before
    assert [(m._forward_pre_hooks, m._forward_hooks) for m in model.modules()] == hooks
    assert_equal(gradients(model, around(model, reentrant)), expected)
    alive = weakref.ref(model)
    del model, loss, hooks
    gc.collect()
    assert alive() is None


def test_a_backward_within_another_schedule_is_refused():
    model = build("deepseek_v32").train()
    with apply_schedule(model, schedule_of(model, "1/2", 0)):
        loss = around(model, False)
    with (
        apply_schedule(model, schedule_of(model, 1, 0)),
        pytest.raises(ScheduleInUseError, match="leave that block first"),
    ):
        loss.backward()


@by_hand
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", SCHEDULES)
def test_checkpoints_by_hand_around_layers_are_refused(kind, reentrant, training):
    from evalkit.dsa.overrides import override_forward

    model = build("deepseek_v32").train(training)
    layer = indexer_sites(model).root.layers[5]
    forward = layer.forward

    def single(hidden, **options):
        return checkpoint(lambda h: forward(h, **options), hidden, use_reentrant=reentrant)

    schedule = schedule_of(model, *SCHEDULES[kind])
    with override_forward(layer, single), apply_schedule(model, schedule):
        with torch.no_grad():
            output(model, tokens(1, LENGTH), use_cache=False)
        with pytest.raises(ScheduleError, match=r"use model\.activation_checkpointing_enable"):
            output(model, tokens(1, LENGTH), use_cache=False)


def test_a_forward_that_is_called_past_the_model_is_refused():
    """As some wrappers call it: what the model's hooks do is left out, checkpoints among it."""
    model = build("glm_moe_dsa").train()
    root = indexer_sites(model).root
    with apply_schedule(model, schedule_of(model, "1/2", 0)):
        with pytest.raises(ScheduleError, match="outside a forward of the model: call the model"):
            root.forward(input_ids=tokens(1, LENGTH), use_cache=False)
        model.forward(input_ids=tokens(1, LENGTH), use_cache=False)  # calls the decoder itself


@pytest.mark.parametrize("reentrant", [True, False])
def test_layers_that_train_in_a_model_that_does_not(reentrant):
    """A layer checkpoints by its own mode, not by that of the model."""
    model = build("deepseek_v32").double().train()
    schedule = schedule_of(model, "1/2", 0)
    expected = plain(model, schedule)
    checkpointed(model, reentrant)
    root = indexer_sites(model).root
    root.training = False
    with apply_schedule(model, schedule):
        loss = loss_of(model)
    assert_equal(gradients(model, loss), expected)


def test_an_interrupt_leaves_the_models_own_functions():
    model = build("deepseek_v32").train()
    checkpointed(model, False)
    functions = {n: vars(m).get("_gradient_checkpointing_func") for n, m in model.named_modules()}

    def interrupt(*_):
        raise KeyboardInterrupt

    hook = indexer_sites(model).owners[1].register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt), apply_schedule(model, schedule_of(model, "1/2", 0)):
        loss_of(model)
    hook.remove()
    after = {n: vars(m).get("_gradient_checkpointing_func") for n, m in model.named_modules()}
    assert after == functions
