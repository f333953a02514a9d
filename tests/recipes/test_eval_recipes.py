"""Every shipped evaluation recipe is read, and its tasks can be built without data or model."""

from fractions import Fraction

import pytest

from evalkit.config.run import RunConfig
from evalkit.core.model_info import model_layout
from evalkit.core.recipe import load
from evalkit.dsa.index_cost import index_cost
from evalkit.tasks.registry import build_all
from tests.paths import ROOT

RECIPES = sorted((ROOT / "recipes" / "eval").glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_read_and_its_tasks_are_built(path):
    config = load(path, RunConfig)
    tasks = build_all(config.tasks, path.parent)
    assert tasks
    # how many questions a downloaded benchmark has is read from its data
    assert all(len(task) > 0 for task in tasks if not task.name.startswith("longbench"))


def test_the_presets_are_what_they_say():
    folder = RECIPES[0].parent
    cells = {}
    for name in ("needle-kamradt", "needle-kamradt-sigmoid", "needle-characters"):
        config = load(folder / f"{name}.toml", RunConfig)
        cells[name] = build_all(config.tasks, folder)
    assert [len(cells[name]) for name in cells] == [35, 35, 5]
    assert sum(map(len, cells["needle-kamradt"])) == 35 * 35
    assert cells["needle-characters"][0].name == "needle@32000chars"
    assert cells["needle-characters"][-1].name == "needle@520000chars"
    changed = load(
        folder / "needle-kamradt-sigmoid.toml",
        RunConfig,
        ["tasks.needle_kamradt.lengths.last=200000"],
    )
    assert build_all(changed.tasks, folder)[-1].length == 200_000


def test_shortcuts_cost_what_their_names_say():
    config = load(ROOT / "recipes" / "eval" / "shortcuts.toml", RunConfig)
    layout = model_layout(str(ROOT / "recipes" / "tiny" / "model"))
    named = {"FP8 keys and queries": "1/2", "FP4 keys and queries": "1/4", "baseline": "1"}
    named |= {"IndexCache 1/2, FP8": "1/4", "IndexCache 1/2, HISA 1/2": "1/4"}
    named |= {"IndexCache 1/2, HISA 1/4": "1/8", "MISA, two stages 1/4": "1/4"}
    named |= {f"every {n} step": share for n, share in (("2nd", "1/2"), ("4th", "1/4"))}
    named |= {"every 8th step": "1/8", "HISA 1/2, FP8": "1/4", "HISA 1/2, FP4": "1/8"}
    named["IndexCache 1/2, HISA 1/2, FP4"] = "1/16"
    for arm in config.arms:
        assert arm.selection is None or not arm.selection.problem(layout.topk)
        schedule = arm.schedule(layout.native)
        cost = index_cost(arm.selection, schedule, heads=layout.heads, tokens=512).weighted
        share = Fraction(named.get(arm.name, arm.name.rpartition(" ")[2]))
        assert cost == pytest.approx(float(share), rel=0.2), arm.name
