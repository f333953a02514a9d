"""distill search: cached activations are exact, the greedy choice is right, killed runs resume."""

from __future__ import annotations

import json
import tomllib
from itertools import pairwise

import pytest
import torch
from typer.testing import CliRunner

from distill.cli.main import app
from distill.config.search import SearchConfig
from distill.data.batch import Batch
from distill.errors import DistillError
from distill.models.activation_cache import ActivationCache
from distill.search.greedy import GreedySearch
from distill.search.log import SearchLog
from distill.search.neighbors import Neighbors, blocks, evaluations, full_layers_at
from distill.search.output import arm, worth_keeping
from distill.search.recall_ranking import predicted_cost, recalls
from distill.search.schedule_loss import next_token_loss
from evalkit.config.schedule import ScheduleConfig
from evalkit.dsa import ReuseSchedule, ScheduleError, apply_schedule, select
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.overlap import recall
from evalkit.selections.misa import Misa
from evalkit.selections.temporal import Temporal
from tests.checkpoints import save
from tests.distill.helpers import batch, features_of
from tests.dsa.tiny import LAYERS, TOPK, build
from tests.paths import ROOT


def texts(length=32):
    return {
        "calibration": [batch(2, length, 0), batch(1, length, 1)],
        "held_out": [batch(1, length, 2)],
    }


def search(model, tmp_path, name="log", **fields):
    config = SearchConfig.model_validate({"model": "x", "retention": "1/4", **fields})
    log = SearchLog(tmp_path / f"{name}.jsonl", {"recipe": config.model_dump(mode="json")})
    return GreedySearch(model, config, texts(), log)


def plain_loss(model, schedule, some, policy=None):
    """Next-token loss without any of our shortcuts."""
    total, count = 0.0, 0
    for one in some:
        rows = torch.arange(one.ids.shape[1])[None] >= one.valid.sum(1, keepdim=True) // 2
        under = apply_schedule(model, schedule, policy=policy, chunked=True, sparse=True)
        with torch.no_grad(), under as applied:
            applied.decode_rows = rows
            logits = model(one.ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), one.ids[:, 1:].flatten(), reduction="none"
        )
        total, count = total + float(loss.double().sum()), count + len(loss)
    return total / count


# -- the activation cache --------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["deepseek_v32", "glm_moe_dsa", "deepseek_v4"])
def test_a_forward_that_begins_in_the_middle_is_the_whole_one(family):
    model, some = build(family), batch(2, 40)
    where = indexer_sites(model)
    ids = where.layout.layer_ids
    forwards = dict(model.named_modules())
    first = ReuseSchedule.uniform(ids, 1)
    second = Neighbors("pattern", frozenset({0})).apply(first, len(ids) - 1)
    third = Neighbors("pattern", frozenset({0})).apply(second, 1)
    cache = ActivationCache(model, [some], [None])
    for held in (first, second, third):
        cache.commit(held)
        for near in (first, second, third):
            with torch.no_grad(), apply_schedule(model, near, chunked=True, sparse=True):
                whole = model.get_decoder()(some.ids, use_cache=False).last_hidden_state
            assert torch.equal(cache.final_hidden_states(near, 0), whole), (held, near)
    assert all("forward" not in vars(module) for module in forwards.values())


def test_nothing_before_the_changed_layer_runs():
    model, some = build("deepseek_v32"), batch(1, 32)
    ran = []
    for i, layer in enumerate(model.model.layers):
        layer.self_attn.register_forward_hook(lambda *_, i=i: ran.append(i))
    cache = ActivationCache(model, [some], [None])
    full = ReuseSchedule.uniform(LAYERS, 1)
    cache.commit(full)
    assert ran == list(range(LAYERS))
    ran.clear()
    cache.final_hidden_states(Neighbors("pattern", frozenset()).apply(full, 5), 0)
    assert ran == [5, 6, 7]
    assert cache.layer_runs == LAYERS + 3


def test_a_lag_reads_selections_from_before_the_cache():
    model, some = build("deepseek_v32"), batch(2, 40)
    rows = torch.arange(40)[None].expand(2, -1) >= 20
    before = ReuseSchedule.uniform(LAYERS, "1/2")
    after = ReuseSchedule.from_pattern(before.pattern, [0] * 6 + [2, 0])
    cache = ActivationCache(model, [some], [rows])
    cache.commit(before)
    assert cache.first_change(after) == 6
    with torch.no_grad(), apply_schedule(model, after, chunked=True, sparse=True) as applied:
        applied.decode_rows = rows
        whole = model.get_decoder()(some.ids, use_cache=False).last_hidden_state
    assert torch.equal(cache.final_hidden_states(after, 0), whole)


# -- neighbours ------------------------------------------------------------------------------------


def test_neighbours_and_their_number():
    neighbors = Neighbors("pattern", frozenset({0}))
    schedule = ReuseSchedule.from_pattern("FFSF")
    assert neighbors.candidates(schedule) == [1, 3]
    assert neighbors.apply(schedule, 3).pattern == "FFSS"
    lags = Neighbors("lag", frozenset({0}), max_lag=2)
    assert lags.candidates(ReuseSchedule.from_pattern("FSFF")) == [
        2,
        3,
    ]  # nothing lies before layer 0
    once = lags.apply(ReuseSchedule.from_pattern("FSFF"), 3)
    assert once.lags == (0, 0, 0, 1)
    assert lags.apply(once, 3).lags == (0, 0, 0, 2)
    assert lags.candidates(lags.apply(once, 3)) == [2]
    # 47 layers to a quarter, 61 and 78: the counts of the IndexCache arithmetic
    assert [evaluations(n, k, 1) for n, k in ((47, 35), (61, 45), (78, 58))] == [1015, 1710, 2813]
    assert evaluations(47, 46, 1) == 1081
    assert (full_layers_at("1/8", 24), full_layers_at("1/4", 47), full_layers_at(1, 8)) == (
        3,
        12,
        8,
    )


def test_stages():
    assert blocks((0, 1, 2, 3), ()) == [[0, 1, 2, 3]]
    assert blocks((2, 4, 6, 8), (0, 5)) == [[0, 1], [2, 3]]
    with pytest.raises(DistillError, match="from 0"):
        blocks((0, 1), (1,))
    with pytest.raises(ScheduleError, match="above 0 and at most 1"):
        full_layers_at("2", 8)


# -- the search ------------------------------------------------------------------------------------


def test_every_step_commits_the_flip_with_the_least_loss(tmp_path):
    model = build("deepseek_v32")
    steps = search(model, tmp_path).run()
    some = texts()["calibration"]
    schedule = ReuseSchedule.uniform(LAYERS, 1)
    neighbors = Neighbors("pattern", frozenset({0}))
    for step in steps[1:]:
        losses = {
            i: plain_loss(model, neighbors.apply(schedule, i), some)
            for i in neighbors.candidates(schedule)
        }
        best = min(losses, key=losses.get)
        assert step.layer == best
        assert step.loss == pytest.approx(losses[best], abs=1e-6)
        assert step.evaluated == len(losses)
        schedule = neighbors.apply(schedule, best)
    assert steps[-1].schedule.retention == full_layers_at("1/4", LAYERS) / LAYERS
    full = [set(step.schedule.full_layers) for step in steps]
    assert all(after < before for before, after in pairwise(full))
    assert steps[0].held_out == pytest.approx(
        plain_loss(model, steps[0].schedule, texts()["held_out"]), abs=1e-6
    )


def test_lazy_finds_the_same_where_losses_only_rise(tmp_path):
    model = build("deepseek_v32")
    whole = search(model, tmp_path).run()
    lazy = search(model, tmp_path, "lazy", proposal="lazy").run()
    assert sum(s.evaluated for s in lazy) <= sum(s.evaluated for s in whole)
    recall = search(model, tmp_path, "recall", proposal="recall", top=2).run()
    assert all(step.evaluated <= 2 for step in recall)
    assert len(recall) == len(whole)
    everything = search(model, tmp_path, "top", proposal="recall", top=LAYERS).run()
    assert [s.layer for s in everything] == [s.layer for s in whole]


def test_a_killed_search_goes_on(tmp_path):
    model = build("deepseek_v32")
    whole = search(model, tmp_path, "whole")
    expected = whole.run()
    lines = (tmp_path / "whole.jsonl").read_text().splitlines()
    cut = "\n".join(lines[: len(lines) // 2]) + '\n{"kind": "loss", "sched'
    (tmp_path / "cut.jsonl").write_text(cut)
    again = search(model, tmp_path, "cut")
    found = again.run()
    assert [(s.layer, s.loss, s.held_out) for s in found] == [
        (s.layer, s.loss, s.held_out) for s in expected
    ]
    assert again.layer_runs < whole.layer_runs
    assert (tmp_path / "cut.jsonl").read_text().splitlines() == lines
    with pytest.raises(DistillError, match="belongs to another search"):
        search(model, tmp_path, "cut", criterion="logit_kl")


def test_stage_heads_stay_full(tmp_path):
    model = build("deepseek_v32")
    steps = search(model, tmp_path, stages=[0, 4], retention="1/8").run()
    assert steps[-1].schedule.full_layers == (0, 4)
    fewer = search(model, tmp_path, "blocks", stages=[0, 4], retention="1/8", blockwise=True)
    found = fewer.run()
    assert found[-1].schedule.full_layers == (0, 4)
    assert sum(s.evaluated for s in found) < sum(s.evaluated for s in steps)
    turns = [s.layer < 4 for s in found[1:]]
    assert turns == [True, False] * 3
    with pytest.raises(DistillError, match="stage head 4 is shared"):
        search(model, tmp_path, "bad", stages=[0, 4], begin=ScheduleConfig(pattern="FFFFSFFF"))


def test_lags_are_searched_layer_by_layer(tmp_path):
    model = build("deepseek_v32")
    begin = ScheduleConfig(retention="1/2")
    run = search(model, tmp_path, kind="lag", begin=begin, max_lag=1, criterion="logit_kl")
    assert run.flips == 6  # all layers but the first full one and its segment
    steps = run.run()
    assert [sum(s.schedule.lags) for s in steps] == list(range(7))
    assert steps[-1].schedule == ReuseSchedule.uniform(LAYERS, "1/2", 1)
    assert run.most_evaluations == sum(step.evaluated for step in steps) == 21
    kept = worth_keeping(steps)
    assert kept[-1] is steps[-1]
    parsed = tomllib.loads("\n".join(arm(kept[0])))["arms"][0]
    assert parsed["lag"] == list(kept[0].schedule.lags)


def test_logit_kl_begins_at_nothing(tmp_path):
    steps = search(build("deepseek_v32"), tmp_path, criterion="logit_kl").run()
    assert steps[0].loss == pytest.approx(0.0, abs=1e-9)
    assert steps[-1].loss > 0


def test_the_loss_of_padded_text_counts_real_tokens_only():
    model = build("deepseek_v32")
    ids = batch(2, 20).ids
    valid = torch.arange(20)[None] < torch.tensor([[20], [12]])
    with torch.no_grad():
        hidden = model.get_decoder()(ids, use_cache=False).last_hidden_state
    loss = next_token_loss(model, hidden, Batch(ids, valid))
    assert len(loss) == 19 + 11
    logits = model.lm_head(hidden[1, :11]).log_softmax(-1)
    assert torch.allclose(loss[19:], -logits.gather(1, ids[1, 1:12, None])[:, 0], atol=1e-5)


# -- the proposal ----------------------------------------------------------------------------------


def test_recalls_by_hand():
    model, some = build("deepseek_v32"), batch(1, 24)
    found = recalls(model, [some], every=1)
    assert torch.allclose(found.diagonal(), torch.ones(LAYERS, dtype=found.dtype))
    rows = torch.arange(TOPK, 24)
    sets = [
        [set(row.tolist()) for row in select(features_of(model, some, i, rows), TOPK)[0]]
        for i in (2, 5)
    ]
    by_hand = sum(len(a & b) / TOPK for a, b in zip(*sets, strict=True)) / len(rows)
    assert float(found[2, 5]) == pytest.approx(by_hand, abs=1e-6)


def test_predicted_cost_is_what_readers_lose():
    recall = torch.tensor([[1.0, 0.5, 0.25], [0.5, 1.0, 0.75], [0.25, 0.75, 1.0]])
    full = ReuseSchedule.uniform(3, 1)
    assert predicted_cost(recall, full, ReuseSchedule.from_pattern("FSF")) == 0.5
    assert predicted_cost(
        recall, ReuseSchedule.from_pattern("FFS"), ReuseSchedule.from_pattern("FSS")
    ) == pytest.approx(0.5 + 0.75 - 0.25)


# -- a policy --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [Misa(heads=2, block=8), Temporal(every=3), Misa(heads=2, block=8, keys="fp4")],
    ids=lambda p: p.text,
)
def test_under_a_policy_the_loss_is_that_of_a_plain_forward(tmp_path, policy):
    model = build("deepseek_v32", num_hidden_layers=4, mlp_layer_types=["dense"] * 4)
    begin = {"selection": policy.section}
    (*_, first, last) = search(model, tmp_path, retention="1/2", begin=begin).run()
    for step in (first, last):
        expected = plain_loss(model, step.schedule, texts()["calibration"], policy)
        assert step.loss == pytest.approx(expected, abs=1e-6)
        assert step.loss != plain_loss(model, step.schedule, texts()["calibration"])
    assert tomllib.loads("\n".join(arm(last, policy)))["arms"][0]["selection"] == policy.section
    free = search(model, tmp_path, "kl", criterion="logit_kl", retention="1", begin=begin)
    assert free.run()[0].loss > 1e-3  # to the original, which knows of no policy


def test_a_policy_s_recall_of_what_layers_would_select_as_trained():
    model, some, policy = build("deepseek_v32"), batch(1, 24), Misa(heads=2, block=8)
    found = recalls(model, [some], every=1, policy=policy)
    rows = torch.arange(TOPK, 24)
    given = select(features_of(model, some, 2, rows), TOPK, policy=policy)
    wanted = select(features_of(model, some, 5, rows), TOPK)
    assert float(found[2, 5]) == pytest.approx(float(recall(given, wanted, 24).mean()), abs=1e-6)
    assert found.diagonal().max() < 1


# -- the command -----------------------------------------------------------------------------------


def test_the_command(tmp_path):
    model = save(tmp_path / "model", num_hidden_layers=4, mlp_layer_types=["dense"] * 4)
    recipe = tmp_path / "search.toml"
    recipe.write_text(
        f'model = "{model}"\nretention = "1/4"\n[data]\n'
        "length = 48\ncalibration = 2\nheld_out = 1\ntrain = 1\nshortest = 16\n"
    )
    command = ["search", str(recipe), "--out", str(tmp_path / "out")]
    cost = CliRunner().invoke(app, [*command, "--cost"])
    assert cost.exit_code == 0, cost.output
    assert "3 changes, at most 6 evaluations" in cost.output
    assert not (tmp_path / "out" / "arms.toml").exists()
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "out" / "search.json").read_text())
    assert [s["retention"] for s in record["steps"]] == ["1", "3/4", "1/2", "1/4"]
    assert record["base"]["fingerprint"]
    arms = tomllib.loads((tmp_path / "out" / "arms.toml").read_text())["arms"]
    assert [a["name"] for a in arms] == ["searched 1/2", "searched 1/4"]
    assert arms[-1]["pattern"].count("F") == 1
    from evalkit.config.arm import ArmConfig as EvalArm

    assert EvalArm.model_validate(arms[0]).pattern == arms[0]["pattern"]


def test_the_shipped_recipe_is_valid():

    from evalkit.core.recipe import load

    load(ROOT / "recipes" / "search" / "tiny.toml", SearchConfig)
