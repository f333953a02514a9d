"""`evalkit run` on a real vLLM: the three forms of a prompt, streams, stop strings, counts."""

from __future__ import annotations

import json

import pytest

from evalkit.engagement.server_info import JsonClient, read_server
from evalkit.engines.openai.api_keys import Key
from evalkit.prompts.tokenizers import load_tokenizer
from evalkit.run.store import RunStore
from tests.command import evalkit
from tests.vllm_client.conftest import answered, rows, run, totals

pytestmark = pytest.mark.vllm

RECORDS = """
[[tasks]]
kind = "records"
name = "own"
path = "asked.jsonl"
prompt = "{text}"
references = "answer"
metric = "qa_f1"
max_new_tokens = 24
"""


@pytest.fixture(scope="module")
def by_ids(vllm, tmp_path_factory):
    """Directory of a run with token ids and whole replies."""
    folder = tmp_path_factory.mktemp("ids")
    assert run(vllm.recipe(folder / "recipe.toml", "lagging"), folder / "run") == 0
    return folder / "run"


def test_answers_are_right_and_counted_as_the_tokenizer_counts(vllm, by_ids):
    """The end token is counted by the server and not part of the text."""
    encode = load_tokenizer(str(vllm.model)).encode
    assert {score.score for score in RunStore(by_ids).read_scores("lagging").values()} == {1.0}
    for row in rows(by_ids).values():
        assert row.finish_reason == "stop"
        assert row.completion_tokens == len(encode(row.completion, add_special_tokens=False)) + 1


def test_what_is_recorded_as_counted_is_what_the_server_counted(vllm, tmp_path):
    before = totals(vllm.servers["lagging"])
    recipe = vllm.recipe(tmp_path / "recipe.toml", "lagging")
    assert run(recipe, tmp_path / "run", "engine.probe_prompts=0", "engine.stream=true") == 0
    told = [
        after - earlier
        for after, earlier in zip(totals(vllm.servers["lagging"]), before, strict=True)
    ]
    recorded = rows(tmp_path / "run").values()
    assert told[0] == sum(row.prompt_tokens for row in recorded)
    assert told[1] == sum(row.completion_tokens for row in recorded)
    assert told[2] == len(recorded)


@pytest.mark.parametrize("stream", ["false", "true"])
@pytest.mark.parametrize("api", ["ids", "text", "chat"])
def test_every_form_of_a_prompt_gives_the_same_answers(vllm, by_ids, tmp_path, api, stream):
    recipe = vllm.recipe(tmp_path / "recipe.toml", "lagging")
    settings = [f'engine.api="{api}"', f"engine.stream={stream}", "engine.probe_prompts=0"]
    assert run(recipe, tmp_path / "run", *settings) == 0
    assert answered(tmp_path / "run") == answered(by_ids)


def test_the_schedule_is_engaged_by_proof_and_another_is_not(vllm, by_ids, tmp_path, capsys):
    entry = RunStore(by_ids).read_run().arms[0]
    assert entry.stored["engagement"] == {"verdict": "engaged"}
    text = vllm.recipe(tmp_path / "recipe.toml", "lagging").read_text()
    (tmp_path / "wrong.toml").write_text(text.replace("lag = 1", "lag = 0"))
    assert run(tmp_path / "wrong.toml", tmp_path / "run") == 2
    assert "arm lagging: not engaged" in capsys.readouterr().err
    url = vllm.servers["lagging"].url
    assert evalkit("check", url, "--recipe", tmp_path / "recipe.toml", "--arm", "lagging") == 0
    assert evalkit("check", url, "--recipe", tmp_path / "wrong.toml", "--arm", "lagging") == 2


def test_what_the_server_tells_of_itself(vllm):
    told = read_server(vllm.servers["lagging"].url, Key(""))
    assert (told.kind, told.version, told.positions) == ("vllm", "0.32.0", 1024)
    assert str(vllm.model) in told.models
    assert told.overrides["evalkit_schedule"] == "FSSS" * 6 + " lag=1"
    assert told.settings["tensor_parallel_size"] == 1


@pytest.mark.parametrize("stream", ["false", "true"])
def test_stop_strings_end_answers_where_they_stand(vllm, tmp_path, stream):
    """A question of one's own, once without stop strings and once with one of its answer's."""
    (tmp_path / "asked.jsonl").write_text(
        "".join(
            json.dumps({"text": f"The grass is green. The sky is {word}.", "answer": "x"}) + "\n"
            for word in ("blue", "green", "far")
        )
    )
    recipe = vllm.recipe(tmp_path / "recipe.toml", "lagging", repeats=1, more=RECORDS)
    settings = [f"engine.stream={stream}", "engine.probe_prompts=0"]
    assert run(recipe, tmp_path / "free", *settings) == 0
    free = {k: row for k, row in rows(tmp_path / "free").items() if k.startswith("own")}
    longest = max(free.values(), key=lambda row: len(row.completion)).completion
    word = longest[len(longest) // 2 :][:3]  # within words and across tokens
    recipe.write_text(recipe.read_text().replace("= 24\n", f"= 24\nstop = [{json.dumps(word)}]\n"))
    assert run(recipe, tmp_path / "stopped", *settings) == 0
    stopped = {k: row for k, row in rows(tmp_path / "stopped").items() if k.startswith("own")}
    assert len(stopped) == len(free) == 3
    assert any(word in row.completion for row in free.values())
    for key, row in stopped.items():
        before, cut, _ = free[key].completion.partition(word)
        assert row.completion == before
        assert row.finish_reason == ("stop" if cut else free[key].finish_reason)
        assert (row.completion_tokens < free[key].completion_tokens) == bool(cut)


def test_chats_that_vllm_renders_itself_are_refused_where_it_closes_the_turn(
    vllm, tmp_path, capsys
):
    recipe = vllm.recipe(tmp_path / "recipe.toml", "full")
    settings = ['engine.api="chat"', "engine.probe_prompts=0"]
    assert run(recipe, tmp_path / "run", *settings) == 2
    assert "closes the assistant's turn behind the answer prefix" in capsys.readouterr().err
    assert rows(tmp_path / "run", "full") == {}


def test_a_prompt_beyond_the_window_is_said_before_the_first_answer(vllm, tmp_path, capsys):
    recipe = vllm.recipe(tmp_path / "recipe.toml", "lagging", repeats=1)
    recipe.write_text(recipe.read_text().replace("lengths = [512]", "lengths = [1500]"))
    assert run(recipe, tmp_path / "run", "engine.probe_prompts=0") == 2
    assert "1024" in capsys.readouterr().err


def test_a_prompt_may_fill_the_window_to_its_last_token(vllm, tmp_path, capsys):
    """A prompt and its budget of 1,024 tokens are answered; one token more is refused at once."""
    encode = load_tokenizer(str(vllm.model)).encode
    for size, code in ((1000, 0), (1001, 2)):
        text = "The grass is" + " green" * (size - len(encode("The grass is")))
        assert len(encode(text)) == size
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / "asked.jsonl").write_text(json.dumps({"text": text, "answer": "x"}) + "\n")
        recipe = vllm.recipe(folder / "recipe.toml", "lagging", repeats=1, more=RECORDS)
        settings = ["engine.probe_prompts=0", "engine.extra_body={logprobs=3}"]
        assert run(recipe, folder / "run", *settings) == code
    whole = {k: r for k, r in rows(tmp_path / "1000" / "run").items() if k.startswith("own")}
    assert [(r.prompt_tokens, r.completion_tokens <= 24) for r in whole.values()] == [(1000, True)]
    assert rows(tmp_path / "1001" / "run") == {}
    assert "1024" in capsys.readouterr().err


def test_counters_are_read(vllm, by_ids):
    from evalkit.bench.server_metrics import read_counters

    with JsonClient(vllm.servers["lagging"].url, Key("")) as client:
        counters = read_counters(client)
    assert counters["cache_queries"] > counters["cache_hits"] > 0
    assert "verifications" not in counters  # nothing is drafted here
