"""A selection in a recipe: read, refused by name, part of what a run is, shown in tables."""

from __future__ import annotations

import json

import pytest

from evalkit.config.arm import ArmConfig
from evalkit.config.run import RunConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.core.toml import inline
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.layout import layout
from evalkit.run.plan import _selects, plan
from evalkit.run.shared_prefill import prefill_groups
from evalkit.run.store import RunStore
from evalkit.selections.hisa import Hisa
from evalkit.selections.misa import Misa
from evalkit.selections.temporal import Temporal
from tests.command import evalkit
from tests.dsa.tiny import _MLA, EXTRA, LAYERS

NEEDLE = {
    "kind": "needle",
    "lengths": [160],
    "depths": [50],
    "repeats": 2,
    "haystacks": 2,
    "value_digits": 4,
    "key_adjectives": ["brave", "calm", "eager"],
    "key_nouns": ["apple", "arrow", "badge"],
    "max_new_tokens": 4,
}


def recipe(selection, **more):
    arms = [{"name": "baseline"}, {"name": "cut", "selection": selection}]
    return {"model": "m", "tasks": [NEEDLE], "arms": arms, **more}


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ({"kind": "hisa", "blok": 8, "blocks": 4}, "arms.1.selection.blok; did you mean block"),
        ({"kind": "hissa", "block": 8}, "unknown kind of selection hissa; did you mean hisa?"),
        ({"kind": "hisa", "block": 8}, "arms.1.selection.blocks: missing"),
        ({"kind": "hisa", "block": 8, "blocks": 1}, "arms.1.selection.blocks: Input should be"),
        ({"block": 8}, "kind is missing; known: full, hisa, misa, precision, temporal"),
        ({"kind": "precision", "keys": "fp7"}, "arms.1.selection.keys: "),
        ({"kind": "temporal", "every": 2, "key": "fp8"}, "selection.key; did you mean keys?"),
        ("hisa", "not a section with a kind"),
    ],
)
def test_a_mistake_is_named(selection, said):
    with pytest.raises(EvalkitError, match="recipe: ") as error:
        parse(recipe(selection), RunConfig, "recipe")
    assert said in str(error.value)


def test_an_engine_without_it_refuses_by_name():
    cut = {"kind": "hisa", "block": 8, "blocks": 4}
    with pytest.raises(EvalkitError) as error:
        parse(recipe(cut, engine={"kind": "openai_server"}), RunConfig, "recipe")
    assert str(error.value) == (
        "recipe: arm cut: the engine openai_server has no selection hisa block=8 blocks=4: use hf,"
        " or leave selection out"
    )


def test_a_model_that_cannot_select_so_is_refused_with_the_reason():
    arm = ArmConfig(name="cut", selection=Hisa(block=8, blocks=4))
    small = layout({"model_type": "deepseek_v32", **_MLA, "index_topk": 40})
    with pytest.raises(EvalkitError) as error:
        _selects(arm, small)
    assert str(error.value) == (
        "arm cut: selection hisa block=8 blocks=4: 4 blocks of 8 keys are fewer than index_topk"
        " 40: keep blocks = 5 or more"
    )
    few = ArmConfig(name="few", selection=Misa(heads=1, candidates=30))
    with pytest.raises(EvalkitError, match="30 candidates are fewer than index_topk 40"):
        _selects(few, small)
    pools = {"model_type": "glm5_next_text", **_MLA, **EXTRA["glm5_next_text"]}
    with pytest.raises(EvalkitError, match=r"glm5_next_text cannot select by hisa .* pools of tok"):
        _selects(arm, layout(pools))


def test_records_of_recipes_without_a_selection_stay_as_they_were():
    config = parse(recipe({"kind": "temporal", "every": 4}), RunConfig, "recipe")
    plain, cut = config.model_dump(mode="json")["arms"]
    assert "selection" not in plain
    assert cut["selection"] == {"kind": "temporal", "every": 4, "recent": True}
    assert parse(config.model_dump(mode="json"), RunConfig, "recipe") == config


def test_rounding_is_recorded_where_it_is_done():
    blocks = {"kind": "hisa", "block": 8, "blocks": 4}
    rounding = {"keys": "fp8", "queries": "fp8", "scales": "ue8m0", "rotate": True}
    config = parse(recipe({**blocks, "keys": "fp8", "queries": "fp8"}), RunConfig, "recipe")
    selection = config.arms[1].selection
    assert selection.text == "hisa block=8 blocks=4 keys=fp8 queries=fp8"
    assert selection.section == {**blocks, "keys": "fp8", "queries": "fp8"}
    record = config.model_dump(mode="json")
    assert record["arms"][1]["selection"] == {**blocks, **rounding}
    assert parse(record, RunConfig, "recipe") == config
    plain = parse(recipe({**blocks, "rotate": False}), RunConfig, "recipe")
    assert plain.model_dump(mode="json")["arms"][1]["selection"] == blocks


def test_arms_that_select_otherwise_read_no_prompt_together():
    full, lag = ReuseSchedule.uniform(LAYERS), ReuseSchedule.uniform(LAYERS, 1, 1)
    cut, other = Hisa(block=8, blocks=4), Hisa(block=8, blocks=5)
    arms = [
        ArmConfig(name="plain"),
        ArmConfig(name="cut", selection=cut),
        ArmConfig(name="other, lag", selection=other),
        ArmConfig(name="cut, lag", selection=cut.model_copy()),
        ArmConfig(name="steps", selection=Temporal(every=2)),
    ]
    schedules = {arm.name: lag if "lag" in arm.name else full for arm in arms}
    groups = [[arm.name for arm in group] for group in prefill_groups(arms, schedules)]
    assert groups == [["plain"], ["cut", "cut, lag"], ["other, lag"], ["steps"]]


@pytest.fixture(scope="module")
def ran(checkpoint, tmp_path_factory):
    """A run of four arms, and its recipe."""
    folder = tmp_path_factory.mktemp("cuts")
    arms = [
        {"name": "baseline"},
        {"name": "blocks", "selection": {"kind": "hisa", "block": 8, "blocks": 4}},
        {"name": "steps", "selection": {"kind": "temporal", "every": 2}},
        {"name": "both", "retention": "1/2", "selection": {"kind": "misa", "heads": 4}},
    ]
    engine = {"kind": "hf", "dtype": "float32", "indexer": "chunked"}
    whole = {"model": str(checkpoint), "engine": engine, "tasks": [NEEDLE], "arms": arms}
    path = folder / "recipe.toml"
    lines = (f"{key} = {inline(value)}" for key, value in whole.items())
    path.write_text("\n".join(lines), encoding="utf-8")
    assert evalkit("run", path, "--out", folder / "out") == 0
    return path, folder / "out"


def test_a_run_keeps_selection_evidence_and_cost(ran):
    _, out = ran
    entries = {arm.name: arm for arm in RunStore(out).read_run().arms}
    assert [entry.selection for entry in entries.values()] == [
        None,
        "hisa block=8 blocks=4",
        "temporal every=2",
        "misa heads=4",
    ]
    for entry in entries.values():
        proof = entry.stored["engagement"]
        assert proof.get("selection") == entry.selection
        assert proof["verdict"] == "engaged"
    plain, steps = (entries[n].stored["engagement"]["indexer_calls"] for n in ("baseline", "steps"))
    assert steps[0] < plain[0], "steps between take what they remember"
    costs = {name: next(iter(entry.index_costs.values())) for name, entry in entries.items()}
    assert costs["baseline"].decode == costs["baseline"].prefill == 1
    assert costs["steps"].decode == 0.5
    count, tokens = -(-costs["blocks"].tokens // 8), costs["blocks"].tokens
    assert costs["blocks"].decode == (count + 24 + tokens - 8 * (count - 1)) / tokens
    assert costs["both"].decode < costs["both"].prefill < 0.5


def test_tables_and_report_show_it(ran, capsys):
    _, out = ran
    assert evalkit("arms", "list", out) == 0
    assert "hisa block=8 blocks=4" in " ".join(capsys.readouterr().out.split())
    assert evalkit("compare", out) == 0
    shown = capsys.readouterr().out
    assert "index cost relative to the full scan" in shown
    assert evalkit("report", out) == 0
    assert list(out.rglob("index-cost.svg"))
    assert "Quality against index cost" in next(out.rglob("report.html")).read_text()


def test_another_selection_is_another_run(ran, capsys):
    path, out = ran
    changed = path.with_name("changed.toml")
    changed.write_text(path.read_text().replace("blocks = 4", "blocks = 5"), encoding="utf-8")
    assert evalkit("run", changed, "--out", out) == 2
    assert "arm blocks.selection.blocks was 4, is 5" in " ".join(capsys.readouterr().err.split())
    config = parse(recipe({"kind": "temporal", "every": 2}), RunConfig, "recipe")
    assert config != parse(recipe({"kind": "temporal", "every": 3}), RunConfig, "recipe")


def test_a_model_without_indexers_is_refused(tmp_path):
    path = tmp_path / "dense"
    path.mkdir()
    dense = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2}
    (path / "config.json").write_text(json.dumps(dense))
    cut = recipe({"kind": "temporal", "every": 2}, model=str(path))
    with pytest.raises(EvalkitError, match=r"arm cut: .* has no lightning indexer"):
        plan(parse(cut, RunConfig, "recipe"), tmp_path)
