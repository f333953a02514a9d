"""Training under a selection policy: where it acts, what it leaves alone, resume, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from distill.config.train import DistillConfig
from distill.errors import DistillError
from distill.models.forward import final_hidden_states
from distill.objective.loss import student_loss
from distill.objective.query_sampling import sample_queries
from distill.objective.teacher_assignment import trained_layers
from distill.objective.teachers import IndexTeacher
from distill.setup import load_training_setup
from distill.training.artifacts import save
from distill.training.evaluation_recipe import arms
from distill.training.events import StepDone
from distill.training.metrics_log import read_metrics
from distill.training.step import distil_batch
from distill.validation.logit_kl import reference
from distill.validation.metrics import evaluate, recall_of
from distill.validation.oracle_bound import oracle_bounds
from distill.validation.oracle_selection import oracle_selections
from evalkit.config.arm import ArmConfig
from evalkit.core.errors import EvalkitError
from evalkit.dsa import apply_schedule, index_features, select
from evalkit.dsa.families.sites import indexer_sites
from evalkit.selections.hisa import Hisa
from evalkit.selections.misa import Misa
from evalkit.selections.precision import Precision
from tests.distill.helpers import LENGTH, batch, features_of, schedule_of, setup
from tests.distill.training.test_trainer import Killed, recipe, same, tensors, train
from tests.dsa.tiny import TOPK, build

HALF = {"retention": "1/2"}
LAST = "00000002"
BLOCKS = Hisa(block=4, blocks=4)


SHORT = {
    "data": {"held_out": 2, "calibration": 1, "train": 4},
    "train": {"steps": 2, "batch": 2, "evaluate_every": 2, "save_every": 1},
}


def under(selection, **arm):
    return {"arm": {**HALF, **arm, "selection": selection.section}, **SHORT}


@pytest.fixture(scope="module")
def plain(checkpoint, tmp_path_factory):
    """A run without a policy."""
    out = tmp_path_factory.mktemp("plain")
    return out, train(recipe(checkpoint, arm=HALF, **SHORT), out)


def numbers(out):
    return [{**row, "seconds": 0} for row in read_metrics(out / "metrics.jsonl")]


@pytest.mark.parametrize(
    "selection",
    [Hisa(block=8, blocks=LENGTH // 8), Precision()],
    ids=lambda selection: selection.name,
)
def test_where_nothing_is_left_out_training_is_the_same_bit_for_bit(
    plain, checkpoint, tmp_path, selection
):
    out, first = plain
    again = train(recipe(checkpoint, **under(selection)), tmp_path / "run", out / "data")
    assert again.setup.trained == first.setup.trained == (2, 4, 6)
    for name in ("students", "best", "optimizer"):
        assert same(tensors(out, LAST, name), tensors(tmp_path / "run", LAST, name)), name
    assert numbers(tmp_path / "run") == numbers(out)


def test_a_run_under_a_policy_stops_and_goes_on(plain, checkpoint, tmp_path):
    data, config = plain[0] / "data", recipe(checkpoint, **under(BLOCKS))
    whole = train(config, tmp_path / "whole", data)
    assert not same(tensors(plain[0], LAST), tensors(tmp_path / "whole", LAST))

    def stop(event):
        if isinstance(event, StepDone) and event.step == 2:
            raise Killed

    with pytest.raises(Killed):
        train(config, tmp_path / "run", data, stop)
    with pytest.raises(DistillError, match="another run; changed: arm"):
        train(recipe(checkpoint, **under(Misa(heads=2))), tmp_path / "run", data)
    resumed = train(config, tmp_path / "run", data)
    for name in ("students", "best", "optimizer"):
        assert same(tensors(tmp_path / "whole", LAST, name), tensors(tmp_path / "run", LAST, name))
    assert resumed.state.best == whole.state.best
    assert resumed.setup.warnings == ()
    card = save(resumed.setup, resumed.best, resumed.state, tmp_path / "run") / "README.md"
    assert (
        'where full layers select by `selection = {kind = "hisa", block = 4, blocks = 4}`:'
        " name it" in card.read_text()
    )


@pytest.mark.parametrize("states", ["on_policy", "off_policy"])
def test_the_step_sees_what_the_arm_selects(states):
    """The loss is that of the features that a forward under the policy leads to."""
    model, text = build("deepseek_v32"), batch()
    schedule, students, plan = setup(
        model, "1/2", layers=(4,), selection=BLOCKS.section, train={"states": states}
    )
    seen = {}

    def observe(ordinal, call, _):
        seen[ordinal] = call

    own = indexer_sites(model).layout.native
    arm = (schedule, plan.policy) if states == "on_policy" else (own, None)
    policy = arm[1]
    with (
        torch.no_grad(),
        apply_schedule(model, arm[0], policy=policy, chunked=True, sparse=True, observe=observe),
    ):
        model(text.ids, use_cache=False)
    (group,) = sample_queries(text.valid, [0, 1], first=TOPK, count=plan.queries, seed=plan.seed)
    features = index_features(model, students.modules[4], seen[4], group.positions)
    teachers = [IndexTeacher(features_of(model, text, c, group.positions)) for c in (4, 5)]
    objective = plan.objective.trained()
    assert objective.policy == BLOCKS
    with torch.no_grad():
        expected = student_loss(features, teachers, objective, weight=group.weight)
    found = distil_batch(model, students, text, [0, 1], plan)[4]
    assert found.mean("kl") == pytest.approx(expected.mean("kl"), rel=1e-5)
    assert found.of("kl").weight == expected.of("kl").weight > found.queries


def test_metrics_are_those_of_the_policy_s_selection():
    model, some = build("deepseek_v32"), [batch()]
    policy = Misa(heads=2, block=8)
    _, students, plan = setup(model, "1", layers=(0,), selection=policy.section)
    original = reference(model, schedule_of(model, "1"), some)
    sums = evaluate(model, students, plan, original)
    (group,) = plan.query_groups(some[0], some[0].own_draws, None)
    features = features_of(model, some[0], 0, group.positions)
    wanted = select(features, TOPK)
    recall = recall_of(select(features, TOPK, policy=policy), wanted, LENGTH)
    assert sums.mean("recall") == pytest.approx(
        float((recall * group.weight).sum() / group.weight.sum()), abs=1e-6
    )
    assert 0 < sums.mean("recall") < 1
    with apply_schedule(model, plan.schedule, policy=policy, sparse=True), torch.no_grad():
        hidden = model.get_decoder()(some[0].ids, use_cache=False).last_hidden_state
    assert torch.equal(final_hidden_states(model, plan.schedule, some[0], policy=policy), hidden)


def test_selections_that_are_given_take_the_place_of_the_policy_s():
    model, some = build("deepseek_v32"), [batch()]
    native = indexer_sites(model).layout.native
    original = reference(model, native, some)
    policy = Misa(heads=1, block=8)

    def given(layers):
        return lambda b: oracle_selections(model, native, b, layers)

    free = original.divergence(model, native, policy=policy)
    first = original.divergence(model, native, policy=policy, given=given((0,)))
    every = original.divergence(model, native, policy=policy, given=given(native.full_layers))
    assert every.max() < 1e-6 < first.mean() < free.mean()


def test_the_oracle_undoes_a_policy_where_nothing_is_shared(plain, checkpoint, tmp_path):
    config = recipe(checkpoint, **under(Misa(heads=1, block=8), retention="1"))
    out = tmp_path / "oracle"
    loaded = load_training_setup(config, out, plain[0] / "data")
    assert loaded.trained == tuple(range(1, 8))
    undistilled, but_first, everywhere = oracle_bounds(loaded, 0.5)
    assert undistilled.overall > but_first.overall > 0
    assert everywhere.overall < 1e-6


def test_layers_that_serve_themselves_alone_train_under_a_policy():
    schedule = schedule_of(build("deepseek_v32"), "1")
    with pytest.raises(DistillError, match="every full layer serves itself alone"):
        trained_layers(schedule, "train")
    assert trained_layers(schedule, "train", policy=BLOCKS) == tuple(range(8))
    assert trained_layers(schedule, "keep", policy=BLOCKS) == tuple(range(1, 8))


def test_the_evaluation_names_the_selection():
    config = recipe("x", **under(Misa(heads=2)))
    compared = arms(config.arm, Path("i"))
    twin, distilled = (ArmConfig.model_validate(arm) for arm in compared[2:])
    assert twin.selection == distilled.selection == Misa(heads=2)
    assert twin.retention == distilled.retention == "1/2"
    assert "selection" not in compared[0]


def test_what_cannot_be_trained_is_refused_in_a_line(plain, checkpoint, tmp_path):
    with pytest.raises(ValueError, match="temporal every=4: it acts from one decode step"):
        recipe(checkpoint, arm={"selection": {"kind": "temporal", "every": 4}})
    with pytest.raises(EvalkitError) as error:
        few = recipe(checkpoint, **under(Hisa(block=2, blocks=3)))
        load_training_setup(few, tmp_path, plain[0] / "data")
    assert str(error.value) == (
        "arm: selection hisa block=2 blocks=3: 3 blocks of 2 keys are fewer than index_topk 8:"
        " keep blocks = 4 or more"
    )
    assert DistillConfig.model_validate({"model": "x", "arm": HALF}).arm.selection is None
