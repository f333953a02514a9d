"""Closed form: against a second solver, on itself, over any split, in the arm."""

from __future__ import annotations

import pytest
import torch

from distill.init.candidates import candidates, closed_form
from distill.init.ridge_regression import Gram, Regression
from distill.models.forward import visit_indexer_calls
from distill.models.student import Students
from distill.validation.logit_kl import Criterion, arm_divergence, reference
from evalkit.dsa.families.sites import indexer_sites
from tests.distill.helpers import batch, digest, schedule_of, setup
from tests.dsa.tiny import build


def calls(model, some, layers, schedule=None):
    by_layer = {}
    schedule = schedule or indexer_sites(model).layout.native
    visit_indexer_calls(model, schedule, some, lambda o, c: by_layer.update({o: c}), layers=layers)
    return by_layer


def test_gram_equals_least_squares_on_stacked_rows():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    y = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    gram, ridge = Gram(), 0.03
    for part in (slice(0, 7), slice(7, 40)):
        gram.add_input(x[part])
        gram.add_output("y", x[part], y[part])
    shift = (ridge * (x.T @ x).diagonal().mean()).sqrt()
    stacked = torch.cat([x, shift * torch.eye(6, dtype=x.dtype)])
    wanted = torch.cat([y, torch.zeros(6, 3, dtype=x.dtype)])
    expected = torch.linalg.lstsq(stacked, wanted).solution.T
    assert torch.allclose(gram.solve("y", ridge), expected, atol=1e-10)
    assert gram.tokens == 40


@pytest.mark.parametrize("family", ["deepseek_v32", "glm_moe_dsa", "deepseek_v4"])
def test_a_candidate_is_the_least_squares_map_of_every_projection(family):
    model = build(family)
    some = batch(4, 64)
    where = indexer_sites(model)
    _, students, plan = setup(model, f"1/{len(where.owners)}", layers=(0,))
    found = candidates(model, students, plan, [some], 0, 1e-6)
    last = len(where.owners) - 1
    assert set(found) == {str(where.layout.layer_ids[i]) for i in range(1, last + 1)}
    seen = calls(model, some, [0, last])
    state = found[str(where.layout.layer_ids[last])]
    own = where.owners[last].indexer
    for name, module in own.named_modules():
        if isinstance(module, torch.nn.Linear):
            latent = name in ("wq_b", "q_b_proj")
            x = seen[0].q_resid if latent else seen[0].hidden
            y = module(
                (seen[last].q_resid if latent else seen[last].hidden).to(module.weight.dtype)
            )
            exact = torch.linalg.lstsq(x.flatten(0, 1).double(), y.detach().flatten(0, 1).double())
            expected = exact.solution.T.float()
            assert torch.allclose(state[f"{name}.weight"], expected, atol=2e-3), name
        elif isinstance(module, torch.nn.LayerNorm):
            assert torch.equal(state[f"{name}.weight"], module.weight)
    assert state.keys() == own.state_dict().keys()


def test_from_its_own_inputs_a_layer_gets_itself_back():
    model = build("deepseek_v32")
    own = indexer_sites(model).owners[3].indexer
    student = Students.of_model(indexer_sites(model), [3]).modules[3]
    regression = Regression(model, student)
    for seed in range(3):
        some = batch(4, 64, seed)
        call = calls(model, some, [3])[3]
        regression.inputs(call, some.valid)
        regression.outputs(3, own, call, some.valid)
    state = regression.candidate(3, own, 1e-9)
    for name, tensor in own.state_dict().items():
        assert torch.allclose(state[name], tensor, atol=1e-3), name


def test_padding_does_not_count():
    model = build("deepseek_v32")
    some = batch(2, 40)
    padded = batch(2, 40)
    padded.valid[1, 25:] = False
    _, students, plan = setup(model, "1/8", layers=(0,))
    whole = candidates(model, students, plan, [padded], 0, 1e-3)["5"]
    padded.ids[1, 25:] = 7  # what stands in the padding
    again = candidates(model, students, plan, [padded], 0, 1e-3)["5"]
    other = candidates(model, students, plan, [some], 0, 1e-3)["5"]
    assert torch.allclose(whole["wk.weight"], again["wk.weight"], atol=1e-6)
    assert not torch.allclose(whole["wk.weight"], other["wk.weight"], atol=1e-3)


def test_the_best_candidate_stays_and_the_model_is_untouched():
    model = build("deepseek_v32")
    before = digest(model)
    some = [batch(2, 64, s) for s in (0, 1)]
    _, students, plan = setup(model, "1/4", layers=(4,))
    original = reference(model, indexer_sites(model).layout.native, some)
    plain = arm_divergence(model, students, plan, original)
    choices = closed_form(
        model, students, plan, original, Criterion.of(plain, 1.0), plan_config(1e-2)
    )
    scores = choices[0].scores
    assert set(scores) == {"own", "5", "6", "7"}
    assert scores["own"] == pytest.approx(float(plain.mean()), rel=1e-5)
    assert choices[0].chosen == min(scores, key=scores.get)
    after = arm_divergence(model, students, plan, original)
    assert float(after.mean()) == pytest.approx(min(scores.values()), rel=1e-5)
    assert digest(model) == before


@pytest.mark.parametrize("family", ["deepseek_v32", "glm_moe_dsa", "deepseek_v4"])
@pytest.mark.parametrize("lag", [0, 1])
def test_candidates_compare_as_by_whole_forwards_of_the_arm(family, lag):
    """What comes before a layer runs once for all its candidates; nothing else changes."""
    model = build(family)
    where = indexer_sites(model)
    some = [batch(2, 64, s) for s in (0, 1)]
    schedule, students, plan = setup(model, "1/2", lag)
    original = reference(model, where.layout.native, some)
    criterion = Criterion.of(arm_divergence(model, students, plan, original), 1.0)
    seen = []

    def watch(layer, name, found):
        seen.append((layer, name))
        assert torch.allclose(found, arm_divergence(model, students, plan, original), atol=1e-5)

    closed_form(
        model, students, plan, original, criterion, plan_config(1e-2, rounds=2), watch=watch
    )
    assert {layer for layer, _ in seen} == set(schedule.full_layers)
    assert len(seen) > 2 * len(schedule.full_layers)


def plan_config(ridge, **options):
    from distill.config.train import ClosedFormConfig

    return ClosedFormConfig(ridge=ridge, **options)


def test_the_criterion_counts_the_positions_that_hurt():
    plain = torch.tensor([0.0, 5.0, 1.0, 4.0])
    half = Criterion.of(plain, 0.5)
    assert half(torch.tensor([9.0, 1.0, 9.0, 3.0])) == pytest.approx(2.0)
    assert Criterion.of(plain, 1.0)(plain) == pytest.approx(2.5)


def test_off_policy_inputs_come_from_the_original_forward():
    model = build("deepseek_v32")
    some = batch(4, 64)
    _, students, plan = setup(model, "1/4", layers=(4,), train={"states": "off_policy"})
    found = candidates(model, students, plan, [some], 4, 1e-6)["6"]
    seen = calls(model, some, [4, 6])
    own = indexer_sites(model).owners[6].indexer
    exact = torch.linalg.lstsq(seen[4].hidden.flatten(0, 1), own.wk(seen[6].hidden).flatten(0, 1))
    assert torch.allclose(found["wk.weight"], exact.solution.T.detach(), atol=2e-3)
    _, students, plan = setup(model, "1/4", layers=(4,))
    on_policy = calls(model, some, [4], schedule_of(model, "1/4"))[4].hidden
    assert not torch.allclose(on_policy, seen[4].hidden, atol=1e-3)
