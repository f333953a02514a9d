"""Tasks of one's own: the page's example, templates, what is refused, lengths, identity."""

import csv
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.run.store import RunStore
from evalkit.tasks.records import RecordsConfig, build
from evalkit.tasks.records.template import Template
from tests.command import evalkit
from tests.paths import ROOT
from tests.tasks.fakes import FakeRenderer
from tests.tasks.words import WordTokenizer

PAGE = (ROOT / "docs" / "own_task.md").read_text(encoding="utf-8")
ROWS = [
    {"id": 1, "text": "red fish", "question": "Which?", "gold": ["red", "crimson"]},
    {"id": 2, "text": "blue fish", "question": "Which {text}?", "gold": "blue"},
]


def block(language):
    """The page's one block of a language."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return text


def section(**more):
    keys = {
        "kind": "records",
        "name": "mine",
        "prompt": "{text} {question}",
        "references": "gold",
        "metric": "qa_f1",
        "max_new_tokens": 4,
    }
    return parse(keys | more, RecordsConfig, "recipe.toml")


@pytest.fixture
def written(tmp_path):
    def write(rows, name="rows.jsonl"):
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return name

    return write


def samples(config, folder, renderer=None):
    (task,) = build(config, folder)
    return [task.sample(i, renderer or FakeRenderer()) for i in range(len(task))]


def refusal(config, folder):
    with pytest.raises(EvalkitError) as caught:
        build(config, folder)
    said = str(caught.value)
    assert "\n" not in said
    return said.replace(f"{folder}/", "")


def test_the_example_of_the_page_runs(tmp_path, checkpoint, capsys):
    (tmp_path / "tickets.jsonl").write_text(block("jsonl"), encoding="utf-8")
    recipe = tmp_path / "tickets.toml"
    recipe.write_text(block("toml").replace("your/model", str(checkpoint)), encoding="utf-8")
    assert len(block("toml").splitlines()) == 15
    oracle = ("--set", "engine.kind=oracle", "--set", "engine.corrupt=0.5")
    assert evalkit("run", recipe, "--out", tmp_path / "run", *oracle) == 0
    assert "IndexCache 1/4" in capsys.readouterr().out
    items = RunStore(tmp_path / "run").read_items()
    assert [item.references for item in items.values()] == [
        ("The router", "router"),
        ("4471",),
        ("May 3",),
    ]
    clusters = [item.cluster for item in items.values()]
    assert clusters[1] == clusters[2] != clusters[0]  # two questions about one ticket


def test_every_metric_of_the_page_is_one(tmp_path, written):
    from evalkit.scorers import METRICS

    table = PAGE.partition("## The metric")[2].partition("`scoring.mode")[0]
    assert set(re.findall(r"`([a-z0-9_]+)`", table)) <= set(METRICS)
    assert set(re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE)) <= set(RecordsConfig.model_fields)


def test_three_kinds_of_files_give_the_same_samples(tmp_path, written):
    rows = [{"text": 'a, "b"\nc', "question": "1?", "gold": "x"}, ROWS[1] | {"gold": "blue"}]
    rows = [{key: row[key] for key in ("text", "question", "gold")} for row in rows]
    written(rows)
    with (tmp_path / "rows.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    made = [
        samples(section(path=f"rows.{suffix}"), tmp_path) for suffix in ("jsonl", "csv", "parquet")
    ]
    texts = [[(s.id, s.text, s.references, s.cluster) for s in kind] for kind in made]
    assert texts[0] == texts[1] == texts[2]
    assert texts[0][0][:3] == ("mine/0", 'a, "b"\nc 1?', ("x",))


def test_a_data_set_of_the_library_is_read_without_a_network(tmp_path, written, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "data").mkdir()
    written(ROWS[1:], "data/test.jsonl")
    (sample,) = samples(section(dataset="data", split="test"), tmp_path)
    assert (sample.text, sample.references) == ("blue fish Which {text}?", ("blue",))
    said = refusal(section(dataset="data", split="tset"), tmp_path)
    assert "data[tset]: cannot be loaded: " in said


@given(st.text(), st.text())
def test_what_a_field_holds_is_text_and_nothing_else(one, other):
    """No format syntax, no attribute, no second pass reaches into a value."""
    if any("\ud800" <= c <= "\udfff" for c in one + other):
        return
    template = Template.parse("{{{a}}} {b}{ a }")
    assert template.fill({"a": one, "b": other}) == f"{{{one}}} {other}{one}"


@pytest.mark.parametrize("prompt", ["{a.__class__}", "{a!r}", "{a:>10}", "{0}", "{a[0]}"])
def test_a_place_is_a_name_of_a_field_never_an_expression(prompt, tmp_path, written):
    said = refusal(section(prompt=prompt, path=written([{"a": "x", "gold": "y"}])), tmp_path)
    assert said.startswith(("rows.jsonl: no record has a field ", "rows.jsonl:1: a: text, not an"))


@pytest.mark.parametrize("prompt", ["{", "a } b", "{}", "{ }", "{a{b}}", 'say {"x": {y}}'])
def test_a_brace_that_belongs_to_no_field_is_named(prompt):
    with pytest.raises(EvalkitError, match=r"recipe.toml: prompt: .*twice|recipe.toml: prompt: it"):
        section(prompt=prompt, path="x.jsonl")


def test_a_prompt_without_a_field_and_an_unknown_metric_are_refused():
    with pytest.raises(EvalkitError, match="every prompt would be the same"):
        section(prompt="Hello", path="x.jsonl")
    with pytest.raises(EvalkitError, match=r"unknown metric qa_f2; did you mean qa_f1\?"):
        section(metric="qa_f2", path="x.jsonl")
    with pytest.raises(EvalkitError, match="give path or dataset, one of them"):
        section()


def test_an_unknown_field_is_named_with_its_near_one(tmp_path, written):
    path = written(ROWS)
    said = refusal(section(path=path, prompt="{txet}"), tmp_path)
    assert said == "rows.jsonl: no record has a field txet; did you mean text?"
    said = refusal(section(path=path, cluster="txt"), tmp_path)
    assert said == "rows.jsonl: no record has a field txt; did you mean text?"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([ROWS[0], ROWS[1] | {"id": 1}], "rows.jsonl:2: id: '1' stands in line 1 already"),
        ([ROWS[0], ROWS[1] | {"gold": []}], "rows.jsonl:2: gold: empty"),
        ([ROWS[0] | {"gold": " "}], "rows.jsonl:1: gold: empty"),
        ([ROWS[0] | {"gold": ["x", ""]}], "rows.jsonl:1: gold: empty"),
        ([ROWS[0] | {"gold": None}], "rows.jsonl:1: gold: null"),
        ([ROWS[0] | {"gold": [["x"]]}], "rows.jsonl:1: gold[0]: a list, not text"),
        ([ROWS[0], '{"id": 2, '], "rows.jsonl:2: not JSON ("),
        ([ROWS[0], "", "[1]"], "rows.jsonl:3: a list, not an object"),
        ([ROWS[0], {"id": 2, "gold": "x", "text": "y"}], "rows.jsonl:2: question: missing"),
        ([ROWS[0] | {"text": True}], "rows.jsonl:1: text: true or false, not text"),
        ([], "rows.jsonl: no records"),
    ],
)
def test_a_broken_record_is_named_by_file_and_line(rows, said, tmp_path, written):
    assert refusal(section(path=written(rows), id="id"), tmp_path).startswith(said)


@pytest.mark.parametrize("delimiter", [";", "\t"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_csv_of_a_spreadsheet_is_read(tmp_path, delimiter, mark):
    """Semicolons where a comma is for decimals, a byte order mark, blanks around names."""
    rows = [["text", " question", "gold "], ['a, "b"', "1, 2?", "3,5"], ["c", "d", "e"]]
    with (tmp_path / "rows.csv").open("w", newline="", encoding="utf-8") as stream:
        stream.write(mark)
        csv.writer(stream, delimiter=delimiter).writerows(rows)
    first, second = samples(section(path="rows.csv"), tmp_path)
    assert (first.text, first.references) == ('a, "b" 1, 2?', ("3,5",))
    assert (second.text, second.references) == ("c d", ("e",))


def test_a_broken_csv_is_named_by_its_line(tmp_path):
    (tmp_path / "x.csv").write_text("text,question,gold,gold\na,b,c,d\n")
    assert refusal(section(path="x.csv"), tmp_path) == "x.csv:1: gold: heads two fields"
    head = "text,question,gold\n"
    for body, said in (
        ("a,b,c\nd,e\n", "x.csv:3: 2 fields, and 3 in the header"),
        ('a,b,"c\n', "x.csv:2: not CSV in UTF-8 ("),
    ):
        (tmp_path / "x.csv").write_text(head + body)
        assert refusal(section(path="x.csv"), tmp_path).startswith(said)
    (tmp_path / "x.csv").write_bytes(head.encode() + b"\xff,b,c\n")
    assert "not CSV in UTF-8" in refusal(section(path="x.csv"), tmp_path)
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no")
    assert refusal(section(path="x.parquet"), tmp_path).startswith("x.parquet: not a Parquet file")
    assert "a table is a file .jsonl, .csv, .parquet" in refusal(section(path="x.txt"), tmp_path)
    assert "y.csv: cannot be read: No such file" in refusal(section(path="y.csv"), tmp_path)


def test_gold_that_the_metric_cannot_read_is_refused_before_anything_is_asked(tmp_path, written):
    path = written([ROWS[0] | {"gold": "Paragraph 3"}, ROWS[1]])
    said = refusal(section(path=path, metric="retrieval"), tmp_path)
    assert said.startswith("rows.jsonl:2: gold: retrieval: the gold answer 'blue' names no para")


def test_classification_takes_all_gold_answers_as_classes(tmp_path, written):
    made = samples(section(path=written(ROWS), metric="classification"), tmp_path)
    assert made[0].meta["all_classes"] == ["blue", "crimson", "red"]


def test_a_long_prompt_loses_its_middle_and_fits_exactly(tmp_path, written):
    class Renderer(FakeRenderer):
        def __init__(self):
            super().__init__(WordTokenizer())

    words = " ".join(f"w{i}" for i in range(40))
    rows = [
        {"text": words, "question": "q?", "gold": "w0"},
        {"text": words + " ", "question": "q?", "gold": "w20"},
        {"text": "short", "question": "q?", "gold": "w20"},
    ]
    config, renderer = section(path=written(rows), lengths=[24]), Renderer()
    first, second, third = samples(config, tmp_path, renderer)
    assert first.task == "mine@24"
    assert renderer.count(first) <= 20 < renderer.count(first) + 3
    assert first.text.startswith("w0 w1 ")
    assert first.text.endswith(" w39 q?")
    assert (first.meta["truncated"], first.meta["gold_survived"]) == (True, True)
    assert second.meta["gold_survived"] is False
    assert (third.text, "truncated" in third.meta) == ("short q?", False)
    (task,) = build(section(path="rows.jsonl", lengths=[8]), tmp_path)
    with pytest.raises(EvalkitError, match=r"mine@8: too short for this task: \d tokens are left"):
        task.sample(0, renderer)


def test_a_run_is_bound_to_what_the_file_holds_not_to_where_it_lies(
    tmp_path, written, checkpoint, capsys
):
    recipe = tmp_path / "recipe.toml"

    def run(path):
        keys = section(path=path).model_dump(mode="json", exclude_defaults=True, exclude={"kind"})
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        recipe.write_text(
            f'model = "{checkpoint}"\n[engine]\nkind = "oracle"\n[[arms]]\nname = "a"\n'
            f'[[arms]]\nname = "b"\n[[tasks]]\nkind = "records"\n{lines}'
        )
        return evalkit("run", recipe, "--out", tmp_path / "run")

    assert run(written(ROWS)) == 0
    assert run(written(ROWS, "moved.jsonl")) == 0
    asked = (tmp_path / "run/arms/a/samples.jsonl").read_text().splitlines()
    assert len(asked) == 2  # nothing is asked again
    capsys.readouterr()
    assert run(written([ROWS[0], ROWS[1] | {"gold": "green"}])) == 2
    assert "holds another run; changed: task mine.path was 'sha256 " in capsys.readouterr().err


def test_a_cell_cannot_take_the_name_of_a_benchmark(tmp_path, written):
    from evalkit.tasks.registry import build_all

    with pytest.raises(EvalkitError, match="vt is the name of a cell of ruler: name the section"):
        build_all([section(name="vt", path=written(ROWS))], tmp_path)
