"""Every shipped evaluation recipe is read, and its tasks can be built without data or model."""

import pytest

from evalkit.config.run import RunConfig
from evalkit.core.recipe import load
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
