"""LongBench tasks from files of our own."""

import json
from pathlib import Path

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.scorers import score
from evalkit.tasks.longbench import LongBenchConfig, build, records, tasks
from evalkit.tasks.longbench.prompts import template
from evalkit.tasks.registry import describe
from tests.tasks.words import (
    PROMPTS,
    WordRenderer,
    record,
    write_folder,
    write_prompts,
    write_zip,
)


@pytest.fixture
def make(tmp_path):
    """Cells over files of our own; keyword arguments go into the recipe section."""
    write_prompts(tmp_path / "prompts")

    def build_cells(files, data="data", **more):
        if data.endswith(".zip"):
            write_zip(tmp_path / data, files)
        else:
            write_folder(tmp_path / data, files)
        names = tuple(dict.fromkeys(name.removesuffix("_e") for name in files))
        section = {"tasks": names, "max_length": 1000, "data": data, "prompts": "prompts", **more}
        return build(LongBenchConfig(**section), tmp_path)

    return build_cells


def test_a_sample(make):
    (task,) = make({"qasper": [record(), record(answers=["a", "b"], _id="x", length=7)]})
    assert (task.name, len(task)) == ("longbench/qasper", 2)
    renderer = WordRenderer()
    sample = task.sample(1, renderer)
    assert sample.id == "longbench/qasper/1"
    assert sample.text == PROMPTS["qasper"].format(**record())
    assert (sample.references, sample.metric, sample.max_new_tokens) == (("a", "b"), "qa_f1", 12)
    assert sample.chat
    assert sample.stop == ()
    assert sample.meta == {
        "length": 7,
        "tokens": len(renderer.tokenizer.encode(sample.text)),
        "truncated": False,
        "gold_survived": None,
        "_id": "x",
        "line": 2,
    }
    assert json.dumps(dict(sample.meta))


def test_archive_and_folder_give_the_same_samples(make):
    files = {"qasper": [record(), record(input="Why?")]}
    (one,) = make(files)
    (two,) = make(files, "data.zip")
    (three,) = make(files, "data")
    assert [one.sample(i, WordRenderer()) for i in (0, 1)] == [
        two.sample(i, WordRenderer()) for i in (0, 1)
    ]
    assert three.deviations["data"].startswith("qasper.jsonl sha256 ")
    assert two.deviations["data"].split("sha256")[1] == one.deviations["data"].split("sha256")[1]


def test_the_middle_is_cut_out_once_and_recorded(make):
    renderer = WordRenderer()
    (task,) = make({"qasper": [record(), record(answers=["w39"])]}, max_length=20)
    sample = task.sample(0, renderer)
    assert sample.text.startswith("Read.\n\nw0 w1")
    assert sample.text.endswith("w39\n\nQuestion: Who lit the lamp?\nAnswer:")
    assert len(renderer.tokenizer.encode(sample.text)) <= 20
    assert sample.meta["truncated"]
    whole = PROMPTS["qasper"].format(**record())
    assert sample.meta["tokens"] == len(renderer.tokenizer.encode(whole))
    assert sample.meta["gold_survived"] is False
    assert task.sample(1, renderer).meta["gold_survived"] is True


def test_cluster_is_the_context(make):
    (task,) = make({"qasper": [record(), record(input="Why?"), record(context="other")]})
    clusters = [task.sample(i, WordRenderer()).cluster for i in range(3)]
    assert clusters[0] == clusters[1] != clusters[2]


def test_tasks_without_chat_first_line_rule_and_stop(make):
    cells = make(
        {
            "trec": [record("trec", answers=["Lamp"])],
            "samsum": [record("samsum")],
            "lcc": [record("lcc")],
            "multi_news": [record("multi_news")],
        }
    )
    trec, samsum, lcc, news = (cell.sample(0, WordRenderer()) for cell in cells)
    assert [s.chat for s in (trec, samsum, lcc, news)] == [False, False, False, True]
    assert trec.meta["first_line"]
    assert trec.meta["all_classes"] == ["Tide", "Lamp"]
    assert samsum.stop == ("\n",)
    assert samsum.meta["min_new_tokens"] == 1
    assert "first_line" not in lcc.meta
    assert score("classification", "\nLamp\nTide", trec.references, meta=trec.meta) == 1


def test_the_six_tasks_without_chat_are_the_official_ones():
    exempt = {name for name, facts in tasks().items() if not facts.chat}
    assert exempt == {"trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"}
    first = {name for name, facts in tasks().items() if facts.first_line}
    assert first == {"trec", "triviaqa", "samsum", "lsht"}


def test_longbench_e_has_three_cells_per_task(make):
    lengths = [0, 3999, 4000, 7999, 8000, 90000]
    cells = make({"qasper_e": [record(length=n, dataset="qasper_e") for n in lengths]}, e=True)
    assert [cell.name for cell in cells] == [
        "longbench-e/qasper@0-4k",
        "longbench-e/qasper@4-8k",
        "longbench-e/qasper@8k+",
    ]
    found = [[c.sample(i, WordRenderer()).meta["length"] for i in range(len(c))] for c in cells]
    assert found == [[0, 3999], [4000, 7999], [8000, 90000]]
    assert cells[1].sample(0, WordRenderer()).id == "longbench-e/qasper@4-8k/0"
    assert cells[1].deviations["samples"] == "2 of 100"


def test_braces_in_the_data_and_in_templates(make, tmp_path):
    odd = record(context="{input} {0} }{", input="{context}")
    (task,) = make({"qasper": [odd]})
    assert task.sample(0, WordRenderer()).text == PROMPTS["qasper"].format(**odd)
    for text, reason in [
        ("{context} {secret}", "unexpected field {secret}"),
        ("{context.__class__}", "unexpected field"),
        ("{context!r}", "unexpected field"),
        ("{context:>9}", "unexpected field"),
        ("{context} {context}", "unexpected field"),
        ("{input}", "without {context}"),
        ("{context} }", "not a template"),
        (7, "must be text"),
    ]:
        with pytest.raises(EvalkitError, match=reason):
            template(text, "prompts.json: qasper")
    assert template("{{x}}{context}", "p").around("") == ("{x}", "")


def test_what_differs_from_the_official_task_is_said(make):
    (task,) = make({"qasper": [record()]}, max_new_tokens=99)
    assert task.sample(0, WordRenderer()).max_new_tokens == 99
    found = task.deviations
    assert found["samples"] == "1 of 200"
    assert found["max_new_tokens"] == 99
    assert "dataset2prompt.json" in found["prompts"]


BAD = [
    ('{"input": ', ":2: not JSON"),
    ({"answers": None}, ":2: answers: null"),
    ({"answers": []}, ":2: answers: an empty list"),
    ({"answers": [" "]}, ":2: answers: all empty"),
    ({"context": ""}, ":2: context: empty"),
    ({"context": "a\ud834"}, r":2: context: a lone surrogate \(U\+D834\) at character 1"),
    ({"length": "9"}, ":2: length: text, not a whole number"),
    ({"dataset": "qasper"}, ":2: dataset: 'qasper', not trec"),
    ({"all_classes": None}, ":2: all_classes: null, but trec is scored by its classes"),
    ({"all_classes": ["a", 1]}, r":2: all_classes\[1\]: a number, not text"),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
@pytest.mark.parametrize("data", ["data", "data.zip"])
def test_a_malformed_record_is_refused_by_file_line_and_field(make, bad, message, data):
    bad = bad if isinstance(bad, str) else record("trec", **bad)
    files = {"trec": [record("trec"), bad, record("trec")], "qasper": [record()]}
    trec, qasper = make(files, data)
    with pytest.raises(EvalkitError, match=message) as error:
        len(trec)
    assert "trec.jsonl" in str(error.value)
    assert "\n" not in str(error.value)
    assert len(qasper) == 1


def test_or_skipped_and_said(make):
    good = record("trec")
    (task,) = make({"trec": [good, record("trec", answers=None), good]}, malformed="skip")
    assert [task.sample(i, WordRenderer()).meta["line"] for i in range(len(task))] == [1, 3]
    assert task.deviations["malformed"] == [
        f"{Path(task.data) / 'trec.jsonl'}:2: answers: null",
    ]


def test_files_that_are_not_what_they_say(make, tmp_path):
    (task,) = make({"qasper": [record()]})
    (tmp_path / "data" / "qasper.jsonl").unlink()
    with pytest.raises(EvalkitError, match=r"has no qasper.jsonl"):
        len(task)
    (tmp_path / "data" / "qasper.jsonl").write_text("\n")
    with pytest.raises(EvalkitError, match="no records"):
        len(task)
    (task,) = make({"hotpotqa": [record("hotpotqa")]}, "data.zip")
    (tmp_path / "data.zip").write_bytes(b"<html>")
    with pytest.raises(EvalkitError, match="cannot be read"):
        len(task)
    write_zip(tmp_path / "data.zip", {"qasper": [record()]})
    with pytest.raises(EvalkitError, match=r"has no member data/hotpotqa.jsonl"):
        len(task)
    whole = write_zip(tmp_path / "data.zip", {"hotpotqa": [record("hotpotqa")] * 50}).read_bytes()
    broken = bytearray(whole)
    broken[60:90] = b"\0" * 30
    (tmp_path / "data.zip").write_bytes(broken)
    with pytest.raises(EvalkitError, match=r"cannot be read|not UTF-8|not JSON"):
        len(task)


def test_prompts_that_cannot_be_used(make, tmp_path):
    (task,) = make({"qasper": [record()]})
    for prompts, lengths, reason in [
        ({"hotpotqa": "{context}"}, {"qasper": 3}, "no prompt template for qasper"),
        ({"qasper": "{context}"}, {"hotpotqa": 3}, "no answer budget for qasper"),
        ({"qasper": "{context}"}, {"qasper": "3"}, "not a number of tokens"),
        ([], {"qasper": 3}, "one entry per task"),
    ]:
        write_prompts(tmp_path / "prompts", prompts, lengths)
        from evalkit.tasks.longbench import prompts as module

        module.load.cache_clear()
        with pytest.raises(EvalkitError, match=reason):
            task.sample(0, WordRenderer())


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"tasks": ["qasper"]}, "max_length is missing"),
        ({"max_length": 9}, "give suite or tasks"),
        ({"suite": "longbench", "tasks": ["qasper"], "max_length": 9}, "give suite or tasks"),
        ({"suite": "longbench-12", "max_length": 9}, "did you mean longbench-1?"),
        ({"tasks": ["qaspr"], "max_length": 9}, "did you mean qasper?"),
        ({"tasks": ["lcc", "lcc"], "max_length": 9}, "occurs twice"),
        ({"tasks": [], "max_length": 9}, "no task"),
        ({"tasks": ["lsht"], "e": True, "max_length": 9}, "LongBench-E has no lsht"),
        ({"tasks": ["lcc"], "max_length": 1}, "max_length"),
        ({"tasks": ["lcc"], "max_lenght": 9}, "did you mean max_length?"),
    ],
)
def test_sections_that_are_refused(section, reason):
    with pytest.raises(EvalkitError) as error:
        parse({"kind": "longbench", **section}, LongBenchConfig, "recipe.toml")
    assert reason.rstrip("?").removesuffix("1") in str(error.value)


def test_paths_that_are_not_there_are_named(tmp_path):
    for key in ("data", "prompts"):
        config = LongBenchConfig(tasks=("lcc",), max_length=9, **{key: "nowhere"})
        with pytest.raises(EvalkitError, match=f"{key} = nowhere: no such file or folder"):
            build(config, tmp_path)


def test_suites_build_their_cells():
    cells = build(LongBenchConfig(suite="longbench", max_length=9), Path())
    assert len(cells) == 21
    cells = build(LongBenchConfig(suite="longbench-e", max_length=9), Path())
    assert len(cells) == 39


def test_every_task_is_described():
    named = {(row.kind, row.task) for row in describe()}
    assert {("longbench", name) for name in tasks()} <= named
    assert ("longbench_v2", "0shot_cot") in named


@pytest.mark.shared
def test_real_records_and_official_prompts(tiny_renderer, shared):
    data = shared / "data"
    names = ("multi_news", "multifieldqa_zh", "passage_retrieval_zh")
    config = LongBenchConfig(
        tasks=names,
        max_length=1000,
        data=str(data / "longbench"),
        prompts=str(data / "prompts"),
    )
    cells = build(config, Path())
    assert [len(cell) for cell in cells] == [200, 200, 200]
    assert all(set(cell.deviations) == {"data"} for cell in cells)
    table = json.loads((data / "prompts" / "dataset2prompt.json").read_text(encoding="utf-8"))
    for cell in cells:
        sample = cell.sample(3, tiny_renderer)
        raw = json.loads((data / "longbench" / f"{cell.task}.jsonl").open("rb").readlines()[3])
        assert sample.meta["truncated"]
        assert sample.references == tuple(raw["answers"])
        # The official way, step by step.
        tokenizer = tiny_renderer.tokenizer
        ids = tokenizer.encode(table[cell.task].format(**raw))
        first, last = ids[:500], ids[-500:]
        official = tokenizer.decode(first, skip_special_tokens=True)
        official += tokenizer.decode(last, skip_special_tokens=True)
        assert sample.text == official
    retrieval = [cells[2].sample(i, tiny_renderer).meta["gold_survived"] for i in range(20)]
    assert {True, False} >= set(retrieval)


def test_an_archive_of_another_checksum_is_not_taken_for_the_pinned_one(tmp_path):
    assert not records.is_pinned(write_zip(tmp_path / "data.zip", {"lcc": [record("lcc")]}))
