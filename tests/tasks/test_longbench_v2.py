"""LongBench v2 from files of our own, and slices and baselines."""

import json
from pathlib import Path

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.data import cards
from evalkit.scorers import score
from evalkit.tasks.longbench_v2 import LongBenchV2Config, baselines, build, items, slices
from tests.tasks.words import WordRenderer

CHOICES = "$Q$\n(A) $C_A$\n(B) $C_B$\n(C) $C_C$\n(D) $C_D$\n"
PROMPTS = {
    "0shot": f"<$DOC$>\n{CHOICES}Say: The correct answer is (X).",
    "0shot_cot": f"<$DOC$>\n{CHOICES}Think:",
    "0shot_cot_ans": f"No text.\n{CHOICES}Think: $COT$\n\nSo: The correct answer is (X).",
    "0shot_no_context": CHOICES,
    "0shot_rag": f"Pieces: $DOC$\n{CHOICES}",
}


def record(**more):
    """One question in the layout of ``data.json``."""
    return {
        "_id": "a1",
        "domain": "Code",
        "sub_domain": "Lamp",
        "difficulty": "easy",
        "length": "short",
        "question": " Who lit the lamp? ",
        "choice_A": "Mira ",
        "choice_B": "Odo",
        "choice_C": "both",
        "choice_D": "nobody",
        "answer": "B",
        "context": '\n"Odo" lit [the {lamp}] \\ and left. ',
        **more,
    }


@pytest.fixture
def make(tmp_path):
    """Cells over a file of our own; keyword arguments go into the recipe section."""
    folder = tmp_path / "prompts"
    folder.mkdir()
    for name, text in PROMPTS.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")

    def build_cells(data, **more):
        text = data if isinstance(data, str) else json.dumps(data, indent=1)
        (tmp_path / "data.json").write_text(text, encoding="utf-8")
        section = {"max_length": 1000, "data": "data.json", "prompts": "prompts", **more}
        return build(LongBenchV2Config(**section), tmp_path)

    return build_cells


def test_a_sample(make):
    (task,) = make([record(), record(_id="b2", answer="D", difficulty="hard", length="long")])
    assert (task.name, len(task)) == ("longbench-v2/0shot", 2)
    renderer = WordRenderer()
    sample = task.sample(1, renderer)
    assert sample.text == (
        '<"Odo" lit [the {lamp}] \\ and left.>\nWho lit the lamp?\n(A) Mira\n(B) Odo\n(C) both\n'
        "(D) nobody\nSay: The correct answer is (X)."
    )
    assert (sample.references, sample.metric, sample.max_new_tokens) == (("D",), "choice", 128)
    assert sample.followup is None
    assert sample.cluster == task.sample(0, WordRenderer()).cluster
    assert sample.meta == {
        "domain": "Code",
        "sub_domain": "Lamp",
        "difficulty": "hard",
        "length": "long",
        "tokens": len(renderer.tokenizer.encode(sample.text)),
        "truncated": False,
        "_id": "b2",
        "record": 2,
    }


def test_reasoning_takes_two_calls(make):
    (task,) = make([record()], modes=("0shot_cot",), max_reasoning_tokens=7)
    sample = task.sample(0, WordRenderer())
    assert sample.text.endswith("Think:")
    assert sample.max_new_tokens == 7
    assert sample.followup.max_new_tokens == 128
    second = sample.followup.fill("  Odo had $Q$ oil. \n")
    assert second.startswith("No text.\nWho lit the lamp?\n(A) Mira")
    assert "Think: Odo had $Q$ oil.\n\nSo:" in second
    assert task.deviations["max_reasoning_tokens"] == 7


def test_what_looks_like_a_place_in_a_text_is_left_alone(make):
    odd = record(context="costs $Q$ and $C_A$", question="a $DOC$ or $COT$?", choice_A="$C_B$")
    direct, cot = make([odd], modes=("0shot", "0shot_cot"))
    text = direct.sample(0, WordRenderer()).text
    assert text.startswith("<costs $Q$ and $C_A$>\na $DOC$ or $COT$?\n(A) $C_B$\n(B) Odo")
    second = cot.sample(0, WordRenderer()).followup.fill("so")
    assert "a $DOC$ or $COT$?" in second
    assert "Think: so\n" in second


def test_without_the_text_and_with_pieces_of_it(make):
    pieces = [
        {"content": "third", "c_idx": 9},
        {"content": "first", "c_idx": 2},
        {"content": "left out", "c_idx": 0},
    ]
    plain, rag = make(
        [record(retrieved_context=pieces)], modes=("0shot_no_context", "0shot_rag"), retrieved=2
    )
    assert plain.sample(0, WordRenderer()).text.startswith("Who lit the lamp?")
    assert rag.name == "longbench-v2/0shot_rag_2"
    text = rag.sample(0, WordRenderer()).text
    assert text.startswith("Pieces: Retrieved chunk 1: first\n\nRetrieved chunk 2: third\nWho")


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ("absent", "retrieved_context: missing; 0shot_rag needs"),
        (None, "retrieved_context: null, not a list of pieces"),
        ([], "retrieved_context: an empty list"),
        (["x"], r"retrieved_context\[0\]: text, not an object"),
        ([{"content": "x"}], r"retrieved_context\[0\].c_idx: missing"),
    ],
)
def test_pieces_that_are_not_there_are_named(make, pieces, reason):
    more = {} if pieces == "absent" else {"retrieved_context": pieces}
    (task,) = make([record(**more)], modes=("0shot_rag",), retrieved=2)
    with pytest.raises(EvalkitError, match=rf"data.json:1: {reason}"):
        task.sample(0, WordRenderer())


def test_the_middle_is_cut_out(make):
    words = " ".join(f"w{i}" for i in range(100))
    (task,) = make([record(context=words)], max_length=31)
    sample = task.sample(0, WordRenderer())
    assert sample.meta["truncated"]
    assert sample.text.startswith("<w0 w1")
    assert sample.text.endswith("Say: The correct answer is (X).")
    assert len(WordRenderer().tokenizer.encode(sample.text)) == 31


def test_lengths_and_deviations(make):
    data = [record(), record(length="long"), record(length="medium")]
    (task,) = make(data, lengths=("long", "medium"))
    assert len(task) == 2
    assert task.sample(0, WordRenderer()).meta["record"] == 2
    assert task.deviations["samples"] == "2 of 503"
    assert task.deviations["lengths"] == ["long", "medium"]
    assert task.deviations["data"].startswith("data.json sha256")
    assert task.deviations["prompts"].startswith("0shot ")


BAD = [
    ({"answer": "E"}, "answer: 'E', not one of A, B, C, D"),
    ({"answer": None}, "answer: null"),
    ({"choice_C": 3}, "choice_C: a number, not text"),
    ({"question": " "}, "question: empty"),
    ({"length": "huge"}, "length: 'huge', not one of"),
    ({"context": "x\udfff"}, r"context: a lone surrogate \(U\+DFFF\) at character 1"),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_a_malformed_record_is_refused_or_skipped(make, bad, message):
    data = [record(), record(**bad), record()]
    (task,) = make(data)
    with pytest.raises(EvalkitError, match=f"data.json:2: {message}"):
        len(task)
    (task,) = make(data, malformed="skip")
    assert len(task) == 2
    assert task.deviations["malformed"][0].partition("data.json:2: ")[2]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "null",
        '"[{}]"',
        "[]",
        "[1, 2]",
        "[{}",
        "[{}] x",
        "[{}]]",
        "[{} {}]",
        "[{},, {}]",
        "[x {}]",
        "<html>",
        "[" * 9999,
    ],
)
def test_a_file_that_is_no_list_of_records_is_refused(make, text):
    (task,) = make(text)
    with pytest.raises(EvalkitError) as error:
        len(task)
    assert "data.json" in str(error.value)
    assert "\n" not in str(error.value)


def test_brackets_quotes_and_escapes_do_not_confuse_the_index(make):
    odd = [record(context=text) for text in ('"]}', "\\", '\\"', "[{", "é\u2028", "a\nb")]
    (task,) = make(odd)
    found = items.index(task.data)
    assert [found.context(item) for item in found.items] == [r["context"] for r in odd]


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({}, "max_length is missing"),
        ({"max_length": 9, "modes": ["0shot_rag"]}, "retrieved goes with"),
        ({"max_length": 9, "retrieved": 3}, "retrieved goes with"),
        ({"max_length": 9, "modes": ["0shot", "0shot"]}, "occurs twice"),
        ({"max_length": 9, "modes": ["1shot"]}, "modes"),
        ({"max_length": 9, "mode": "0shot"}, "did you mean modes?"),
    ],
)
def test_sections_that_are_refused(section, reason):
    with pytest.raises(EvalkitError) as error:
        parse({"kind": "longbench_v2", **section}, LongBenchV2Config, "recipe.toml")
    assert reason in str(error.value)


def test_prompts_and_data_that_are_not_there(make, tmp_path):
    (task,) = make([record()])
    (tmp_path / "prompts" / "0shot.txt").unlink()
    with pytest.raises(EvalkitError, match=r"has no 0shot.txt"):
        task.sample(0, WordRenderer())
    (tmp_path / "prompts" / "0shot.txt").write_text("$DOC$ $Q$")
    with pytest.raises(EvalkitError, match=r"without \$C_A\$ and"):
        task.sample(0, WordRenderer())
    with pytest.raises(EvalkitError, match=r"has no data.json"):
        build(LongBenchV2Config(max_length=9, data="prompts"), tmp_path)


def test_slices_and_baselines():
    meta = [
        {"difficulty": "hard", "length": "long", "domain": "Z"},
        {"difficulty": "easy", "length": "short", "domain": "A"},
        {"difficulty": "easy", "length": "medium", "domain": "A"},
    ]
    meta_by_id = {f"s/{i}": m for i, m in enumerate(meta)}
    rows = slices({"s/0": 1.0, "s/1": 0.0, "s/2": 1.0}, meta_by_id)
    assert [(r.facet, r.value, r.n, round(r.score, 2)) for r in rows] == [
        ("overall", "", 3, 0.67),
        ("difficulty", "easy", 2, 0.5),
        ("difficulty", "hard", 1, 1),
        ("length", "short", 1, 0),
        ("length", "medium", 1, 1),
        ("length", "long", 1, 1),
        ("domain", "A", 2, 0.5),
        ("domain", "Z", 1, 1),
    ]
    assert slices({}, {}) == []
    assert [(b.name, b.score) for b in baselines("CABC")] == [
        ("always C", 0.5),
        ("always A", 0.25),
        ("always B", 0.25),
        ("always D", 0.0),
        ("chance", 0.25),
    ]
    assert [b.name for b in baselines([])] == ["chance"]


def test_the_constant_letter_of_the_whole_benchmark_scores_what_the_card_says():
    counts = cards.load("longbench_v2").counts
    gold = [letter for letter in "ABCD" for _ in range(counts[f"answer_{letter.lower()}"])]
    best = baselines(gold)[0]
    assert (best.name, round(100 * best.score, 1)) == ("always C", 29.4)


@pytest.mark.shared
def test_real_questions_and_official_prompts(tiny_renderer, shared):
    data = shared / "data"
    config = LongBenchV2Config(
        modes=("0shot", "0shot_cot", "0shot_no_context"),
        max_length=4001,
        data=str(data / "longbench_v2"),
        prompts=str(data / "prompts"),
    )
    direct, cot, bare = build(config, Path())
    assert [len(task) for task in (direct, cot, bare)] == [36, 36, 36]
    assert set(direct.deviations) == {"data", "samples"}
    raw = json.loads((data / "longbench_v2" / "data.json").read_text(encoding="utf-8"))[5]
    # The official way, step by step.
    prompt = (data / "prompts" / "longbench_v2_0shot.txt").read_text(encoding="utf-8")
    prompt = prompt.replace("$DOC$", raw["context"].strip()).replace("$Q$", raw["question"].strip())
    for letter in "ABCD":
        prompt = prompt.replace(f"$C_{letter}$", raw[f"choice_{letter}"].strip())
    tokenizer = tiny_renderer.tokenizer
    ids = tokenizer.encode(prompt)
    kept = ids[: 4001 // 2] + ids[-4001 // 2 :]
    sample = direct.sample(5, tiny_renderer)
    assert sample.text == tokenizer.decode(kept, skip_special_tokens=True)
    assert sample.meta["tokens"] == len(ids)
    assert "is the single, most likely" in cot.sample(5, tiny_renderer).followup.text
    assert raw["context"][:50] not in bare.sample(5, tiny_renderer).text


@pytest.mark.shared
def test_slices_of_published_answers_are_the_official_ones(shared):
    path = shared / "data" / "longbench_v2" / "predictions_exaone-3.5-32b.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    meta = {row["_id"]: row for row in rows}
    scores = {row["_id"]: score("choice", row["response"], (row["answer"],)) for row in rows}
    found = {s.value or s.facet: round(100 * s.score, 1) for s in slices(scores, meta)}

    def official(key, value):
        judged = [row["judge"] for row in rows if row[key] == value]
        return round(100 * sum(judged) / len(judged), 1)

    assert found["overall"] == 29.5
    for key, values in (("difficulty", ("easy", "hard")), ("length", ("short", "medium", "long"))):
        for value in values:
            assert found[value] == official(key, value)
