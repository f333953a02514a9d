"""LongBench, LongBench v2, RULER and needles from the shipped recipe, end to end."""

import json

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.data import sources
from tests.paths import ROOT, SHARED
from tests.tasks import test_longbench_v2 as v2
from tests.tasks.words import record, write_folder, write_prompts

RECIPE = ROOT / "recipes" / "eval" / "four-benchmarks.toml"
DATA = SHARED / "data"


def run(recipe, out, *settings):
    from typer.testing import CliRunner

    from evalkit.cli.main import app

    try:
        sources.locate(sources.LONG_CONTEXT_EVAL)
    except EvalkitError:
        pytest.skip(f"needs {sources.LONG_CONTEXT_EVAL.file}: neither cached nor to be fetched")
    more = [word for setting in settings for word in ("--set", setting)]
    arguments = ["run", str(recipe), "--out", str(out), "--limit", "1", *more]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout, json.loads((out / "compare.json").read_text(encoding="utf-8"))


def check(printed, compared):
    tasks = {row["task"] for row in compared["rows"]} - {"macro"}
    assert len(tasks) == 10
    assert {task.partition("/")[0] for task in tasks if "/" in task} == {
        "longbench",
        "longbench-v2",
    }
    assert {"ruler", "longbench-v2/0shot"} <= set(compared["summaries"])
    for text in ("RULER by length", "by slice", "chance"):
        assert text in printed


def test_the_recipe_runs_without_a_model_on_data_of_our_own(tmp_path):
    names = ["multi_news", "multifieldqa_zh", "passage_retrieval_zh"]
    records = {name: [record(name)] for name in names}
    records["passage_retrieval_zh"] = [record("passage_retrieval_zh", answers=["段落1"])]
    write_folder(tmp_path / "data", records)
    folder = write_prompts(
        tmp_path / "prompts",
        dict.fromkeys(names, "{context}\n{input}"),
        dict.fromkeys(names, 8),
    )
    (folder / "0shot.txt").write_text(v2.PROMPTS["0shot"], encoding="utf-8")
    (tmp_path / "data.json").write_text(json.dumps([v2.record()]), encoding="utf-8")
    text = RECIPE.read_text(encoding="utf-8").replace("../../", f"{ROOT}/")
    text = text.replace("../tiny", str(ROOT / "recipes" / "tiny"))
    engine, rest = text[: text.index("[engine]")], text[text.index("[[tasks]]") :]
    recipe = tmp_path / "four.toml"
    recipe.write_text(f'{engine}[engine]\nkind = "oracle"\n\n{rest}', encoding="utf-8")
    settings = [f"tasks.{kind}.prompts=prompts" for kind in ("longbench", "longbench_v2")]
    settings += ["tasks.longbench.data=data", "tasks.longbench_v2.data=data.json"]
    check(*run(recipe, tmp_path / "run", *settings))


@pytest.mark.slow
@pytest.mark.shared
def test_the_recipe_runs_on_the_small_model_and_real_data(tmp_path):
    if not (DATA / "longbench").is_dir():
        pytest.skip("needs ../shared, which is not beside this checkout")
    settings = [
        f"tasks.longbench.data={DATA}/longbench",
        f"tasks.longbench_v2.data={DATA}/longbench_v2/data.json",
        f"tasks.longbench.prompts={DATA}/prompts",
        f"tasks.longbench_v2.prompts={DATA}/prompts",
    ]
    printed, compared = run(RECIPE, tmp_path / "run", *settings)
    check(printed, compared)
    scores = {(row["arm"], row["task"]): row["score"] for row in compared["rows"]}
    assert scores["baseline", "niah_single_1@512"] == 1
