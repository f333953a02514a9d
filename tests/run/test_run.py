"""The whole path on a random checkpoint: resume, refusal, kill -9, comparison, the command line."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from evalkit.analysis.compare import compare_run, comparison_rows
from evalkit.core.errors import EvalkitError
from evalkit.core.files import read_jsonl
from evalkit.core.records import SampleRow
from evalkit.core.types import Completion, Followup, Sample
from evalkit.run.store import RunStore
from tests.command import evalkit

RECIPE = """
model = "{model}"
[engine]
{engine}
[[tasks]]
kind = "needle"
lengths = [256]
depths = [0, 50, 100]
repeats = 4
haystacks = 4
value_digits = 4
key_adjectives = ["brave", "calm", "eager", "fancy", "giant", "happy"]
key_nouns = ["apple", "arrow", "badge", "banjo", "barrel", "basket"]
max_new_tokens = 6
[[arms]]
name = "baseline"
[[arms]]
name = "again"
[[arms]]
name = "IndexCache 1/4"
retention = "1/4"
[[arms]]
name = "MLI k=1"
lag = 1
[compare]
repeat_of_baseline = "again"
"""
HF = 'kind = "hf"\ndtype = "float32"\nmax_batch = 3'
ORACLE = 'kind = "oracle"\ncorrupt = {"IndexCache 1/4" = 0.5, "MLI k=1" = 0.1}'


@pytest.fixture
def recipe(tmp_path, checkpoint):
    def write(engine=ORACLE, text=RECIPE, name="recipe.toml"):
        path = tmp_path / name
        path.write_text(text.format(model=checkpoint, engine=engine), encoding="utf-8")
        return path

    return write


def scores(run):
    return {p.parent.name: p.read_bytes() for p in sorted(Path(run).glob("arms/*/scores.jsonl"))}


def test_oracle_run_end_to_end(recipe, tmp_path, capsys):
    out = tmp_path / "run"
    assert evalkit("run", recipe(), "--out", out) == 0
    printed = capsys.readouterr().out
    said = "needle@256: 4 shared haystacks decide no margin below 60 points"
    assert said in printed.splitlines()[0]  # before anything is spent
    assert "IndexCache 1/4" in printed
    run = json.loads((out / "run.json").read_text())
    assert [arm["name"] for arm in run["arms"]] == [
        "baseline",
        "again",
        "IndexCache 1/4",
        "MLI k=1",
    ]
    arm = run["arms"][2]
    assert arm["schedule"]["pattern"] == "FSSSFSSS"
    assert arm["schedule"]["source"] == [0, 0, 0, 0, 4, 4, 4, 4]
    assert run["environment"]["packages"]["torch"]
    rows = json.loads((out / "compare.json").read_text())["rows"]
    keys = ["arm", "task", "metric", "n", "n_errors", "score", "baseline_score", "delta"]
    keys += ["ci_low", "ci_high", "method", "n_differing", "p_value"]
    keys += ["bound_low", "bound_high", "p_no_worse", "p_worse"]
    keys += ["verdict", "reasons", "equivalent", "notes"]
    assert list(rows[0]) == keys
    by_arm = {row["arm"]: row for row in rows if row["task"] == "needle@256"}
    assert by_arm["baseline"]["score"] == 1.0
    assert by_arm["again"]["delta"] == 0.0
    # Twelve equal answers are no proof of equality.
    assert by_arm["again"]["ci_low"] < 0.0 < by_arm["again"]["ci_high"]
    assert (by_arm["again"]["method"], by_arm["again"]["n_differing"]) == ("gaffke", 0)
    assert by_arm["IndexCache 1/4"]["score"] < 1.0
    assert by_arm["IndexCache 1/4"]["n"] == 12
    assert (out / "report.md").read_text().startswith("# Comparison")


def test_the_same_command_again_changes_nothing(recipe, tmp_path):
    out, path = tmp_path / "run", recipe()
    evalkit("run", path, "--out", out)
    before = {p: p.read_bytes() for p in out.rglob("*.jsonl")}
    evalkit("run", path, "--out", out)
    assert {p: p.read_bytes() for p in out.rglob("*.jsonl")} == before


def test_scoring_repeats_without_a_model(recipe, tmp_path):
    out = tmp_path / "run"
    evalkit("run", recipe(), "--out", out)
    before = scores(out)
    for path in out.glob("arms/*/scores.jsonl"):
        path.unlink()
    assert evalkit("score", out) == 0
    assert scores(out) == before


def test_failed_answers_stay_in_the_denominator_and_are_tried_again(recipe, tmp_path):
    out, path = tmp_path / "run", recipe()
    evalkit("run", path, "--out", out)
    samples = out / "arms" / "baseline" / "samples.jsonl"
    rows = read_jsonl(samples, dict)
    rows[0] |= {"finish_reason": "error", "error": "server gone", "completion": ""}
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    evalkit("score", out)
    rows = comparison_rows(compare_run(RunStore(out), "again"))
    baseline = next(row for row in rows if (row.arm, row.task) == ("baseline", "needle@256"))
    assert (baseline.n, baseline.n_errors, baseline.score) == (12, 1, pytest.approx(11 / 12))
    evalkit("run", path, "--out", out)
    first = comparison_rows(compare_run(RunStore(out)))[0]
    assert first.score == 1.0
    assert first.n_errors == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("value_digits = 4", "value_digits = 5"), "task needle@256.value_digits was 4, is 5"),
        (("lag = 1", "lag = 2"), "arm MLI k=1.lag was 1, is 2"),
        (('"again"\n[[', '"other"\n[['), "arm again is gone"),
    ],
)
def test_a_changed_recipe_in_the_same_directory_is_refused(recipe, tmp_path, capsys, change, words):
    out = tmp_path / "run"
    evalkit("run", recipe(), "--out", out)
    changed = RECIPE.replace(*change).replace('baseline = "again"', 'baseline = "baseline"')
    assert evalkit("run", recipe(text=changed), "--out", out) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_run_without_an_answer_binds_nobody(recipe, tmp_path, checkpoint, capsys):
    out, path = tmp_path / "run", recipe()
    broken = shutil.copytree(checkpoint, tmp_path / "broken")
    (broken / "tokenizer.json").write_text("{", encoding="utf-8")
    assert evalkit("run", path, "--out", out, "--set", f"model={broken}") == 2
    error = capsys.readouterr().err
    assert "no usable tokenizer" in error
    assert error.count("\n") == 1
    assert evalkit("run", path, "--out", out) == 0
    other = recipe(text=RECIPE.replace("value_digits = 4", "value_digits = 5"))
    assert evalkit("run", other, "--out", out) == 2
    assert "task needle@256.value_digits was 4, is 5" in capsys.readouterr().err


def _cut_weights(model):
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])


def _other_width(model):
    _change_config(model, hidden_size=64)


def _other_depth(model):
    _change_config(model, num_hidden_layers=10)


def _change_config(model, **values):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | values))


@pytest.mark.parametrize("damage", [_cut_weights, _other_width, _other_depth])
def test_a_damaged_checkpoint_is_one_line(recipe, tmp_path, checkpoint, capsys, damage):
    broken = shutil.copytree(checkpoint, tmp_path / "broken")
    damage(broken)
    settings = ("--set", f"model={broken}", "--limit", 1)
    assert evalkit("run", recipe(engine=HF), "--out", tmp_path / "run", *settings) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"evalkit: model {broken}: ")


def test_a_run_directory_that_is_a_file_is_one_line(recipe, tmp_path, capsys):
    (tmp_path / "run").write_text("in the way", encoding="utf-8")
    assert evalkit("run", recipe(), "--out", tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert "cannot be written" in error
    assert error.count("\n") == 1


def test_arms_can_be_added_and_throughput_settings_changed(recipe, tmp_path):
    out = tmp_path / "run"
    evalkit("run", recipe(), "--out", out)
    before = scores(out)
    text = RECIPE.replace("[compare]", '[[arms]]\nname = "1/8"\nretention = "1/8"\n[compare]')
    assert evalkit("run", recipe(text=text), "--out", out, "--set", "compare.margin=0.05") == 0
    after = scores(out)
    assert {k: v for k, v in after.items() if k in before} == before
    assert len(after) == 5


def test_arms_that_read_different_prompts_are_not_compared(recipe, tmp_path):
    out = tmp_path / "run"
    evalkit("run", recipe(), "--out", out)
    samples = out / "arms" / "again" / "samples.jsonl"
    text = samples.read_text().replace('"prompt_sha256":"', '"prompt_sha256":"0', 1)
    samples.write_text(text)
    with pytest.raises(EvalkitError, match="read different prompts for needle@256/0"):
        compare_run(RunStore(out))


def test_an_unfinished_arm_is_said_to_be_unfinished(recipe, tmp_path, capsys):
    out = tmp_path / "run"
    evalkit("run", recipe(), "--out", out)
    path = out / "arms" / "again" / "samples.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:5]))
    evalkit("score", out)
    assert evalkit("compare", out) == 0
    assert "unfinished: again has 5 of 12" in capsys.readouterr().out


def test_limit_takes_the_first_samples(recipe, tmp_path):
    out = tmp_path / "run"
    assert evalkit("run", recipe(), "--out", out, "--limit", 3) == 0
    ids = list(RunStore(out).read_samples("baseline"))
    assert ids == ["needle@256/0", "needle@256/1", "needle@256/2"]
    assert evalkit("run", recipe(), "--out", out) == 0
    assert len(RunStore(out).read_samples("baseline")) == 12


def test_prompts_that_no_schedule_can_change_are_counted(recipe, tmp_path, checkpoint, capsys):
    model = shutil.copytree(checkpoint, tmp_path / "model")
    _change_config(model, index_topk=2048)
    settings = ("--set", f"model={model}")
    assert evalkit("run", recipe(), "--out", tmp_path / "run", *settings) == 0
    assert "12 within index_topk" in capsys.readouterr().out
    rows = RunStore(tmp_path / "run").read_scores("MLI k=1").values()
    assert all("dense" in row.flags for row in rows)


def test_what_is_odd_about_an_arm_is_said(recipe, tmp_path, checkpoint, capsys):
    model = shutil.copytree(checkpoint, tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    weights["model.norm.weight"].fill_(math.nan)
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    text = RECIPE.replace("lag = 1", 'lag = 1\nretention = "1/8"')
    path, out = recipe(HF, text), tmp_path / "run"
    assert evalkit("run", path, "--out", out, "--set", f"model={model}") == 3
    said = capsys.readouterr()
    printed = said.out.replace("\n", " ")
    assert "failed because: the model returned non-finite logits" in printed
    # S6: nothing worked in either arm, which is no equality
    assert "not one usable answer of baseline, again, IndexCache 1/4, MLI k=1" in said.err
    row = json.loads((out / "compare.json").read_text())["rows"][-1]
    assert (row["verdict"], row["reasons"][0]["kind"]) == ("withheld", "unusable")
    assert "12 answers of the baseline and 12 answers of the arm failed or are missing" in printed
    assert "MLI k=1: a lag of 1 changes nothing here: 1 full layers are too few" in printed
    scores = next(out.glob("arms/baseline*/scores.jsonl"))
    scores.write_text(scores.read_text().replace("needle@256/0", "needle@256/99"))
    assert evalkit("compare", out) == 2
    assert "which items.jsonl does not hold" in capsys.readouterr().err


def test_one_arm_gets_a_table_of_its_scores(recipe, tmp_path, capsys):
    text = RECIPE[: RECIPE.index('[[arms]]\nname = "again"')]
    path = recipe('kind = "oracle"\ncorrupt = 0.0', text.replace("[256]", "[256, 300]"))
    assert evalkit("run", path, "--out", tmp_path / "run") == 0
    printed = capsys.readouterr().out
    assert [line.split() for line in printed.splitlines() if line.startswith(" needle@")] == [
        ["needle@256", "12", "1.000"],
        ["needle@300", "12", "1.000"],
    ]


def start(path, out):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "evalkit.cli", "run", str(path), "--out", str(out)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def wait_for_answers(run, count, process):
    """Until that many answers are on disk; fails when the process ends first."""
    while sum(p.read_bytes().count(b"\n") for p in run.glob("arms/*/samples.jsonl")) < count:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_killed_and_resumed_equals_uninterrupted(recipe, tmp_path, how):
    path = recipe(engine=HF)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert evalkit("run", path, "--out", whole) == 0
    for count in (4, 20):
        process = start(path, cut)
        wait_for_answers(cut, count, process)
        process.send_signal(how)
        process.wait()
        if how == signal.SIGINT and process.returncode:
            assert process.returncode == 130
            assert b"the same command goes on" in process.stderr.read()
    torn = cut / "arms" / "baseline" / "samples.jsonl"
    torn.write_bytes(torn.read_bytes()[:-7])  # the power went off while a line was written
    assert evalkit("run", path, "--out", cut) == 0
    assert scores(cut) == scores(whole)
    assert len(scores(cut)) == 4
    for samples in cut.glob("arms/*/samples.jsonl"):
        ids = [row.sample_id for row in read_jsonl(samples, SampleRow.parse)]
        assert len(ids) == len(set(ids)) == 12


def test_a_changed_checkpoint_is_refused(recipe, tmp_path, checkpoint, capsys):
    model = shutil.copytree(checkpoint, tmp_path / "model")
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(model=model, engine=HF), encoding="utf-8")
    out = tmp_path / "run"
    assert evalkit("run", path, "--out", out, "--limit", 1) == 0
    config = json.loads((model / "config.json").read_text())
    config["rms_norm_eps"] = 0.1
    (model / "config.json").write_text(json.dumps(config))
    assert evalkit("run", path, "--out", out, "--limit", 1) == 2
    assert "weights_sha256 changed" in capsys.readouterr().err


def test_a_checkpoint_may_move_between_two_starts(recipe, tmp_path, checkpoint):
    path, out = recipe(), tmp_path / "run"
    assert evalkit("run", path, "--out", out, "--limit", 1) == 0
    moved = shutil.copytree(checkpoint, tmp_path / "elsewhere")
    assert evalkit("run", path, "--out", out, "--limit", 1, "--set", f'model="{moved}"') == 0


def test_an_interrupt_anywhere_is_one_line(recipe, tmp_path, capsys, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("evalkit.run.plan.plan", stop)
    assert evalkit("run", recipe(), "--out", tmp_path / "run") == 130
    assert capsys.readouterr().err == "evalkit: interrupted; the same command goes on\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("run", "nowhere.toml"), "nowhere.toml: no such recipe"),
        (("compare", "nowhere"), "no run here"),
        (("score", "nowhere"), "no run here"),
        (("schedule", "8", "--retention", "2/3"), "is not 1/n"),
        (("schedule", "8", "--pattern", "FSS"), "too short, nothing for layer 3"),
        (("schedule", "8", "--retention", "1/2", "--pattern", "FF"), "not both"),
        (("schedule", "./nothing"), "no such directory"),
        (("data", "prepare", "rulr"), "did you mean ruler?"),
    ],
)
def test_user_errors_are_one_line_and_exit_code_two(capsys, args, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert evalkit(*args) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.startswith("evalkit: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("engin.kind=hf", "unknown key engin; did you mean engine?"),
        ("engine.batch=3", "known keys: corrupt, kind, seed"),
        ("tasks.0.lenghts=[300]", "did you mean lengths?"),
        ("compare.margin=lots", "compare.margin"),
        ("compare.baseline=none", "compare.baseline none is not an arm"),
        ("arms.0.retention=1/3x", "arm baseline: retention '1/3x'"),
        ("arms.0.pattern=FSF", "arm baseline: pattern has 3 letters for 8"),
        ("tasks.needle.lengths=[16]", "needle@16"),
        ("model=./gone", "model ./gone: no such directory"),
        ("nonsense", "write it as a.b=value"),
        ("compare.margin=0.1\nx = 2", "compare.margin"),
        ("tasks.0.lengths=[99999999999999999999]", "less than or equal to 16777216"),
        ("arms.0.name='  '", "arms.0.name"),
        ("compare.seed=-1", "compare.seed"),
        ("compare.resamples=99999999999", "compare.resamples"),
        ('engine.corrupt={"baselin"=0.5}', "engine.corrupt baselin is not an arm"),
    ],
)
def test_bad_settings_are_named(recipe, tmp_path, capsys, setting, words):
    assert evalkit("run", recipe(), "--out", tmp_path / "run", "--set", setting) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_help_imports_nothing_heavy():
    code = (
        "import sys, evalkit.cli.main\n"
        "heavy = {'torch', 'transformers', 'numpy', 'scipy', 'datasets', 'pydantic'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_schedule_of_a_deepseek_v4_configuration(tmp_path, capsys):
    import transformers

    from tests.dsa.tiny import v4_options

    options = v4_options(8) | {"num_hidden_layers": 43, "layer_types": None}
    options["compress_ratios"] = [0, 0] + [4, 128] * 20 + [4]
    transformers.DeepseekV4Config(**options).save_pretrained(tmp_path)
    assert evalkit("schedule", tmp_path, "--retention", "1/2") == 0
    out = capsys.readouterr().out
    assert "retention  11/21 (11 full, 10 shared)" in out
    assert "shared ids 4, 8, 12, 16, 20, 24, 28, 32, 36, 40" in out


class TwoCalls:
    """A task whose samples are asked twice."""

    name, deviations = "twice", {}

    def __len__(self):
        return 3

    def sample(self, index, renderer):
        followup = Followup("You said: $COT$. So what is it?", 4)
        gold = (str(index),)
        name = f"twice/{index}"
        return Sample(name, "twice", f"Think {index}.", gold, "needle_exact", 8, followup=followup)


class Echo:
    """Answers every first call with a thought, and records what it was asked."""

    def __init__(self):
        self.asked = []

    def load(self, model):
        return {"weights_sha256": "echo"}

    def native(self):
        return None

    def engagement(self):
        return {"verdict": "not applicable"}

    def answer(self, arm, schedule, prompts, done):
        for prompt in prompts:
            if prompt.sample.id in done:
                continue
            self.asked.append(prompt.sample.text)
            first = prompt.sample.followup is not None
            text = "<think>x</think>a thought" if first else prompt.sample.id[-1]
            failed = first and prompt.sample.id.endswith("1") and len(self.asked) < 4
            ending = ("", "error", 1, 1, 0.0, "lost") if failed else (text, "stop", 1, 1, 0.0)
            yield [Completion(prompt.sample.id, *ending)]


def test_samples_that_are_asked_twice(tmp_path, checkpoint, monkeypatch):
    from evalkit.config.run import RunConfig
    from evalkit.run import runner
    from evalkit.run.plan import RunPlan
    from evalkit.run.scoring import score_run

    engine = Echo()
    monkeypatch.setattr(runner, "open_engine", lambda _config: engine)
    config = RunConfig.model_validate(
        {
            "model": str(checkpoint),
            "tasks": [{"kind": "needle", "lengths": [256]}],
            "arms": [{"name": "a"}],
        }
    )
    todo = RunPlan(config, (TwoCalls(),), {"a": str(checkpoint)}, None)
    store = RunStore(tmp_path)
    runner.run(todo, store)
    assert engine.asked[:3] == ["Think 0.", "Think 1.", "Think 2."]
    assert engine.asked[3:] == ["You said: a thought. So what is it?"] * 2
    rows = store.read_samples("a")
    assert [rows[f"twice/{i}"].finish_reason for i in range(3)] == ["stop", "error", "stop"]
    runner.run(todo, store)  # only what failed is asked again, from its first call
    assert engine.asked[5:] == ["Think 1.", "You said: a thought. So what is it?"]
    assert score_run(store) == {"a": 3}
    assert [row.score for row in store.read_scores("a").values()] == [1.0, 1.0, 1.0]
    first = store.read_samples("a", "first")
    assert store.read_samples("a")["twice/0"].prompt_sha256 == first["twice/0"].prompt_sha256
