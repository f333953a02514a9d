"""Answers that runs share: by all that moves one, safe with two processes, never a repeat."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.config.run import RunConfig
from evalkit.core.model_info import model_layout
from evalkit.core.recipe import load
from evalkit.core.records import RunRecord, digest
from evalkit.core.types import Completion, Followup, Prompt, Sample
from evalkit.run.answer_cache import AnswerCache, ArmAnswers, Kept
from evalkit.run.cached_arms import cached_arms
from evalkit.run.plan import plan
from evalkit.run.store import RunStore
from tests.command import evalkit
from tests.run.test_run import HF, RECIPE
from tests.servers.fake import FakeServer

SAMPLE = Sample("t/0", "t", "Why?", ("x",), "none", 4)
PROMPT = Prompt(SAMPLE, (1, 2), "Why?", "hash")
ANSWER = Completion("t/0", "so \u2028 \U0001f600", "stop", 2, 3, 0.5)


def arm(tmp_path, settings="s"):
    return ArmAnswers(AnswerCache(tmp_path), settings)


def kept(tmp_path, prompt=PROMPT, completion=ANSWER, verdict="engaged"):
    answers = arm(tmp_path)
    answers.note(prompt, completion)
    answers.keep(verdict)


# -- the file --------------------------------------------------------------------------------------


def test_an_answer_comes_back_as_it_was(tmp_path):
    kept(tmp_path)
    (found,) = arm(tmp_path).find([PROMPT]).values()
    assert replace(found.completion, sample_id="t/0") == ANSWER
    assert found.verdict == "engaged"
    assert arm(tmp_path, "other settings").find([PROMPT]) == {}


def test_the_first_answer_stays(tmp_path):
    kept(tmp_path)
    kept(tmp_path, completion=replace(ANSWER, text="another"))
    assert arm(tmp_path).find([PROMPT])["t/0"].completion.text == ANSWER.text


OTHERS = {
    "tokens": replace(PROMPT, sha256="other"),
    "text": replace(PROMPT, sample=replace(SAMPLE, text="Why not?")),
    "prefix": replace(PROMPT, sample=replace(SAMPLE, answer_prefix=" So")),
    "chat": replace(PROMPT, sample=replace(SAMPLE, chat=False)),
    "stop": replace(PROMPT, sample=replace(SAMPLE, stop=("\n",))),
    "budget": replace(PROMPT, sample=replace(SAMPLE, max_new_tokens=5)),
    "reasoning": replace(PROMPT, reasoning_tokens=9),
    "opened": replace(PROMPT, reasoning_opened=True),
    "arguments": replace(PROMPT, template_arguments={"enable_thinking": False}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_moves_an_answer_is_part_of_its_key(tmp_path, name):
    kept(tmp_path)
    assert arm(tmp_path).find([OTHERS[name]]) == {}


def test_gold_and_name_of_a_sample_move_nothing(tmp_path):
    kept(tmp_path)
    renamed = replace(PROMPT, sample=replace(SAMPLE, id="u/7", task="u", references=("y",)))
    assert list(arm(tmp_path).find([renamed])) == ["u/7"]


@pytest.mark.parametrize(
    ("prompt", "completion", "verdict"),
    [
        (PROMPT, replace(ANSWER, finish_reason="error", error="503"), "engaged"),
        (PROMPT, replace(ANSWER, finish_reason="cut_early"), "engaged"),
        (PROMPT, ANSWER, "not engaged"),
        (replace(PROMPT, sample=replace(SAMPLE, followup=Followup("{}", 3))), ANSWER, "engaged"),
        (replace(PROMPT, sample=replace(SAMPLE, scored_from=1)), ANSWER, "engaged"),
    ],
)
def test_what_is_not_kept(tmp_path, prompt, completion, verdict):
    kept(tmp_path, prompt, completion, verdict)
    assert AnswerCache(tmp_path).size()[0] == 0


@pytest.mark.parametrize("text", ["{", "null", '{"text": "edited"}', ""])
def test_torn_and_edited_entries_are_asked_again(tmp_path, text):
    kept(tmp_path)
    with sqlite3.connect(tmp_path / "answers.sqlite") as file:
        file.execute("update answers set answer = ?", (text,))
    assert arm(tmp_path).find([PROMPT]) == {}
    kept(tmp_path)
    assert arm(tmp_path).find([PROMPT])["t/0"].completion.text == ANSWER.text


def test_entries_of_another_form_are_asked_again(tmp_path):
    kept(tmp_path)
    text = json.dumps({"verdict": "engaged", "words": "of a later version"})
    with sqlite3.connect(tmp_path / "answers.sqlite") as file:
        file.execute("update answers set answer = ?, checksum = ?", (text, digest(text)))
    assert arm(tmp_path).find([PROMPT]) == {}


WRITER = """
import sys
from pathlib import Path
from evalkit.config.run import RunConfig
from evalkit.core.model_info import model_layout
from evalkit.core.recipe import load
from evalkit.core.records import RunRecord, digest
from evalkit.core.types import Completion
from evalkit.run.answer_cache import AnswerCache, Kept
cache, name = AnswerCache(Path(sys.argv[1])), sys.argv[2]
for start in range(0, 200, 10):
    answer = Kept(Completion("", name, "stop", 1, 1, 0.0), "engaged")
    cache.add({f"{k}": answer for k in range(start, start + 15)})
    cache.find(f"{k}" for k in range(1200))
"""


def test_two_processes_write_at_once(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen([*command, name]) for name in ("one", "two")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    answers = AnswerCache(tmp_path).find(map(str, range(205)))
    assert len(answers) == 205
    assert {answer.completion.text for answer in answers.values()} <= {"one", "two"}


def test_size_and_clear(tmp_path, capsys):
    assert evalkit("cache", tmp_path) == 0
    assert capsys.readouterr().out == f"{tmp_path}: 0 answers, 0.0 MB\n"
    AnswerCache(tmp_path).add({str(k): Kept(ANSWER, "engaged") for k in range(1200)})
    assert evalkit("cache", tmp_path) == 0
    assert ": 1,200 answers, 0." in capsys.readouterr().out
    assert evalkit("cache", tmp_path, "--clear") == 0
    assert capsys.readouterr().out == f"{tmp_path}: 1,200 answers dropped\n"
    assert AnswerCache(tmp_path).size()[0] == 0
    assert evalkit("cache", tmp_path / "gone") == 2
    assert capsys.readouterr().err == f"evalkit: {tmp_path / 'gone'}: no such folder\n"


def test_a_file_that_is_no_cache_is_one_line(tmp_path, capsys):
    (tmp_path / "answers.sqlite").write_text("no database " * 1000)
    assert evalkit("cache", tmp_path) == 2
    said = capsys.readouterr().err
    assert "answers.sqlite: the cache cannot be used: file is not a database; run without" in said
    assert said.count("\n") == 1


# -- runs ------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, checkpoint):
    """Run two samples of every arm into a directory; which arms were answered from the cache."""

    def go(out, text=RECIPE):
        path = tmp_path / "recipe.toml"
        path.write_text(text.format(model=checkpoint, engine=HF), encoding="utf-8")
        flags = ("--limit", 2, "--cache", tmp_path / "cache")
        assert evalkit("run", path, "--out", tmp_path / out, *flags) == 0
        return cached(RunStore(tmp_path / out))

    return go


def cached(store):
    rows = {name: store.read_samples(name).values() for name in store.read_run().names}
    return {name for name, answers in rows.items() if any(row.cached for row in answers)}


UNDER_TEST = {"baseline", "IndexCache 1/4", "MLI k=1"}


def test_a_second_run_asks_for_what_is_new_and_for_the_repeat(run, tmp_path, capsys):
    assert run("one") == set()
    assert "cache" not in capsys.readouterr().out
    assert AnswerCache(tmp_path / "cache").size()[0] == 2 * len(UNDER_TEST)  # not the repeat's
    assert run("two", text=RECIPE.replace("lag = 1", "lag = 2")) == UNDER_TEST - {"MLI k=1"}
    assert "taken from a cache (--cache): baseline (2), IndexCache 1/4 (2)" in " ".join(
        capsys.readouterr().out.split()
    )
    one, two = (RunStore(tmp_path / name) for name in ("one", "two"))
    for name in ("baseline", "again", "IndexCache 1/4"):
        assert one.read_scores(name) == two.read_scores(name)
        assert one.read_run().arm(name).engagement == two.read_run().arm(name).engagement
    rows = compare_run(two).result.rows
    assert [r for r in rows if r.arm != "MLI k=1"] == [
        r for r in compare_run(one).result.rows if r.arm != "MLI k=1"
    ]


FACTS = {"weights_sha256": "w", "revision": None, "dtype": "float32", "device": "cpu"}


@pytest.fixture
def settings(tmp_path, checkpoint):
    """What the answers of every arm are known by, without a model."""

    def known(*changes, text=RECIPE, engine=HF, **facts):
        path = tmp_path / "recipe.toml"
        path.write_text(text.format(model=checkpoint, engine=engine), encoding="utf-8")
        todo = plan(load(path, RunConfig, changes), tmp_path)
        native = model_layout(str(checkpoint)).native
        arms = todo.config.arms
        entries = [{"name": arm.name} for arm in arms]
        record = RunRecord.parse({"arms": entries, "tasks": [], "recipe": {}})
        schedules = {arm.name: arm.schedule(native) for arm in arms}
        cache = AnswerCache(tmp_path)
        answers = cached_arms(cache, todo, record, arms, FACTS | facts, schedules)
        return {name: arm.settings for name, arm in answers.items()}

    return known


def test_what_answers_are_known_by(settings, monkeypatch):
    before = settings()
    assert set(before) == UNDER_TEST
    assert len(set(before.values())) == 3
    assert settings("tasks.needle.repeats=5", "compare.margin=0.2") == before
    lag = settings(text=RECIPE.replace("lag = 1", "lag = 2"))
    assert {name for name in before if lag[name] != before[name]} == {"MLI k=1"}
    misa = 'lag = 1\nselection = {{ kind = "misa", heads = 1 }}'
    chosen = settings(text=RECIPE.replace("lag = 1", misa))
    assert {name for name in before if chosen[name] != before[name]} == {"MLI k=1"}
    others = [
        settings('engine.dtype="bfloat16"'),
        settings("engine.max_batch=4"),
        settings(weights_sha256="v"),
        settings(device="cuda:0"),
    ]
    monkeypatch.setattr(
        "evalkit.run.cached_arms.environment", lambda: {"packages": {"torch": "9"}, "commit": "c"}
    )
    others.append(settings())
    for other in others:
        assert not set(other.values()) & set(before.values())


def test_arms_that_repeat_another_have_no_cached_answers(settings):
    swapped = RECIPE.replace('repeat_of_baseline = "again"', 'baseline = "again"')
    assert set(settings(text=swapped)) == UNDER_TEST  # "again" does what the one before it does


def test_a_checkpoint_must_be_known(settings, caplog):
    assert settings(weights_sha256=None) == {}
    assert "arm baseline is not served from it: its checkpoint is not known" in caplog.text
    assert set(settings(weights_sha256=None, revision="r")) == UNDER_TEST


def test_an_oracle_is_no_model(settings, caplog):
    assert settings(engine='kind = "oracle"') == {}
    assert "oracle does not give the same answer twice: not used" in caplog.text


# -- servers ---------------------------------------------------------------------------------------

SERVED = RECIPE.partition("[[arms]]")[0] + (
    '[[arms]]\nname = "baseline"\n[[arms]]\nname = "again"\n'
    '[compare]\nrepeat_of_baseline = "again"\n'
)


def words(_prompt, max_tokens):
    return [" word"] * max_tokens


@pytest.fixture
def served(tmp_path, paper_checkpoint, caplog):
    def go(out, server, *settings):
        engine = 'kind = "openai_server"\nserved_model = "tiny"\nprobe_tokens = 3\n'
        engine += f'urls = ["{server.url}"]'
        path = tmp_path / "recipe.toml"
        path.write_text(SERVED.format(model=paper_checkpoint, engine=engine), encoding="utf-8")
        flags = [word for setting in settings for word in ("--set", setting)]
        caplog.clear()
        command = ("run", path, "--limit", 2, "--out", tmp_path / out, *flags)
        assert evalkit(*command, "--cache", tmp_path / "cache") == 0
        return cached(RunStore(tmp_path / out))

    return go


def test_a_server_is_known_by_how_it_answers_the_probe(served):
    with FakeServer() as server:
        assert served("one", server) == set()
        before = len(server.seen)
        assert served("two", server) == {"baseline"}
        assert len(server.seen) == before + before - 2
    with FakeServer(answer=words) as other:
        assert served("three", other) == set()


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("engine.probe_prompts=0", "arm baseline is not served from it: its checkpoint is not"),
        ("engine.temperature=0.7", "openai_server does not give the same answer twice: not used"),
    ],
)
def test_servers_that_are_not_known_or_draw_their_answers(served, tmp_path, caplog, setting, says):
    with FakeServer() as server:
        assert served("one", server, setting) == set()
        assert says in caplog.text
    assert AnswerCache(tmp_path / "cache").size()[0] == 0
