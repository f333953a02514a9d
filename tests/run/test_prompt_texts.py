"""Prompts of a recorded run are made again, and shown only if their hash is the answers'."""

from __future__ import annotations

import json

import pytest

from evalkit.config.run import RunConfig
from evalkit.core.recipe import load
from evalkit.run.merge import open_runs
from evalkit.run.plan import plan
from evalkit.run.prompt_texts import RecordedPrompts, renderer_of
from evalkit.run.store import RunStore
from evalkit.tasks.base import samples
from tests.command import evalkit
from tests.run.test_agreement import RECIPE


@pytest.fixture(scope="module")
def out(tmp_path_factory, checkpoint):
    """A run of twelve needles, begun and taken up again."""
    folder = tmp_path_factory.mktemp("prompts")
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(model=checkpoint, arm="one"), encoding="utf-8")
    assert evalkit("run", path, "--out", folder / "run") == 0
    assert evalkit("run", path, "--out", folder / "run") == 0
    return folder / "run"


def test_every_prompt_is_the_one_that_was_asked(out):
    store = RunStore(out)
    prompts, items = RecordedPrompts(store.read_run()), store.read_items()
    rows = store.read_samples("one")
    for sample_id, row in rows.items():
        text = prompts.text(sample_id, row.prompt_sha256)
        assert items[sample_id].references[0] in text
        assert items[sample_id].meta["question"] in text
    assert len(rows) == 12
    assert prompts.missing == ""


def test_prompts_of_a_second_run_are_made_by_its_own_recipe(out, checkpoint, tmp_path):
    path = tmp_path / "recipe.toml"
    other = RECIPE.format(model=checkpoint, arm="two").replace(
        "depths = [0, 50", "depths = [25, 50"
    )
    path.write_text(other.replace('"needle"', '"needle"\nname = "other"'), encoding="utf-8")
    assert evalkit("run", path, "--out", tmp_path / "run") == 0
    merged = open_runs([out, tmp_path / "run"])
    prompts = RecordedPrompts(*merged.read_runs())
    for arm in ("one", "two"):
        for sample_id, row in merged.read_samples(arm).items():
            assert prompts.text(sample_id, row.prompt_sha256)
    assert prompts.missing == ""


def test_excluded_prompts_are_those_that_a_server_is_sent(checkpoint, tmp_path):
    """Servers of the chat form get the answer prefix at the end of the user's turn."""
    path = tmp_path / "recipe.toml"
    recipe = RECIPE.format(model=checkpoint, arm="one").replace(
        'kind = "oracle"',
        'kind = "openai_server"\napi = "chat"\nchat_prefix = "user"\nurls = ["http://localhost:1/v1"]',
    )
    path.write_text(recipe, encoding="utf-8")
    assert evalkit("data", "exclude", path, "--out", tmp_path / "texts.jsonl") == 0
    todo = plan(load(path, RunConfig, ()), tmp_path)
    renderer = renderer_of(todo.config, next(iter(todo.models.values())))
    assert renderer.prefix_in_user_turn
    (sample, *_) = samples(todo.tasks[0], renderer, [0])
    first = json.loads((tmp_path / "texts.jsonl").read_text().splitlines()[0])
    assert first == {"id": sample.id, "text": renderer.render(sample).text}


def test_another_hash_and_no_hash_have_no_prompt(out):
    run = RunStore(out).read_run()
    sample_id = next(iter(RunStore(out).read_items()))
    prompts = RecordedPrompts(run)
    assert prompts.text(sample_id, "0" * 64) is None
    assert f"that of {sample_id} came out otherwise" in prompts.missing
    assert prompts.text(sample_id, None) is None
    assert "imported" in prompts.missing
    assert prompts.text("nobody/0", "0" * 64) is None
    assert "makes no nobody/0" in prompts.missing


def test_what_is_not_there_is_said(out, tmp_path):
    stored = json.loads((out / "run.json").read_text())
    changes = {
        "an earlier version": {"invocations": []},
        "no longer where it was": {
            "arms": [arm | {"model": str(tmp_path / "gone")} for arm in stored["arms"]]
        },
        "the recorded recipe": {"recipe": {"compare": {}}},
    }
    for words, change in changes.items():
        run = RunStore(tmp_path)
        (tmp_path / "run.json").write_text(json.dumps(stored | change))
        prompts = RecordedPrompts(run.read_run())
        assert prompts.text("needle@1200chars/0", "0" * 64) is None
        assert words in prompts.missing


def test_a_run_says_how_it_came_about(out):
    first, second = RunStore(out).read_run().invocations
    assert first.command.startswith("evalkit run ")
    assert first.command.endswith("/run")
    assert second.command == first.command
    assert first.folder == str(out.parent)
    assert first.started <= second.started
    assert first.seconds >= 0


def test_the_page_of_a_run_holds_its_prompts(out):
    assert evalkit("report", out, "--no-plots") == 0
    page = (out / "report.html").read_text()
    assert 'data-missing=""' in page
    assert "evalkit run" in page
