"""Every data card against what the loader yields."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.data import cards, sources
from tests.paths import ROOT, SHARED

DATA = SHARED / "data"
CARDS = cards.load_all()
NEEDED = "needs ../shared, which is not beside this checkout"


@pytest.mark.parametrize("name", CARDS)
def test_every_card_has_prose_and_a_licence(name):
    text = (cards.folder() / f"{name}.md").read_text(encoding="utf-8")
    card = CARDS[name]
    assert card.name == name
    assert card.license
    assert f"# {card.pretty_name}" in text or text.count("\n# ") == 1
    assert len(text.partition("\n---\n")[2].split()) > 100
    assert card.generated or card.sources


@pytest.mark.parametrize("name", CARDS)
def test_what_a_card_names_is_what_would_be_fetched(name):
    rows = [row for row in sources.show() if row.name == name]
    assert len(rows) == len(CARDS[name].sources)
    for row, source in zip(rows, CARDS[name].sources, strict=True):
        assert row.sha256 == source.sha256
        assert row.license == CARDS[name].license
        if row.state == "present" and source.bytes is not None:
            assert row.bytes == source.bytes


def test_every_card_has_front_matter():
    assert set(CARDS) == {path.stem for path in cards.folder().glob("*.md")}


def test_ruler_corpora_have_the_counts_of_the_card():
    from evalkit.data.documents import pool
    from evalkit.data.essays import essays
    from evalkit.tasks.common.word_streams import wordlist
    from evalkit.tasks.ruler.templates import specs

    counts = CARDS["ruler"].counts
    assert len(wordlist("adjective")) == counts["adjectives"]
    assert len(wordlist("noun")) == counts["nouns"]
    try:
        sources.locate(sources.LONG_CONTEXT_EVAL)
    except EvalkitError:
        pytest.skip(f"needs {sources.LONG_CONTEXT_EVAL.file}: neither cached nor to be fetched")
    assert len(specs()) == counts["tasks"]
    assert len(essays().word_ends) == counts["essay_words"]
    for name in ("squad", "hotpotqa"):
        assert len(pool(name).questions) == counts[f"{name}_questions"]
        assert len(pool(name).documents) == counts[f"{name}_documents"]


def test_generated_sets_have_the_counts_of_their_cards():
    from evalkit.tasks.coreference import CoreferenceConfig, text
    from evalkit.tasks.graphwalk import GraphWalkConfig
    from evalkit.tasks.needle import KamradtConfig, NeedleConfig
    from evalkit.tasks.needle.haystacks import FILLER
    from evalkit.tasks.registry import build_all
    from evalkit.tasks.ruler import RulerConfig

    for name, section in {
        "graphwalk": GraphWalkConfig(lengths=(4096,)),
        "coreference": CoreferenceConfig(lengths=(4096,)),
        "ruler": RulerConfig(tasks=("vt", "qa_1"), lengths=(4096,)),
    }.items():
        counts, cells = CARDS[name].counts, build_all([section], ROOT)
        assert [len(cell) for cell in cells] == [counts["samples_per_cell"]] * len(cells)
        assert section.seed == counts["seed"]
        assert len(cells) == counts.get("cells_per_length", 2)
    counts = CARDS["coreference"].counts
    pools = {"forms": text.FORMS, "topics": text.TOPICS, "styles": text.STYLES}
    assert {key: len(set(pool)) for key, pool in pools.items()} == {k: counts[k] for k in pools}
    counts, needle = CARDS["needle"].counts, NeedleConfig(lengths=(512,))
    (cell,) = build_all([needle], ROOT)
    assert len(cell) == counts["depths"] * counts["repeats"] and needle.seed == counts["seed"]
    assert len(set(FILLER)) == counts["filler_sentences"]
    grid = build_all([KamradtConfig()], ROOT)
    assert len(grid) == counts["kamradt_lengths"]
    assert {len(cell) for cell in grid} == {counts["kamradt_depths"]}


def test_the_training_text_of_the_small_model_has_the_counts_of_its_card():
    import torch

    from distill.data.tiny_corpus import text, wording
    from recipes.tiny import train

    texts, steps = {}, sum(phase.steps for phase in train.PHASES)
    for step in range(steps):
        place = torch.rand(1, generator=train._generator(0, step, 0)).item()
        length, count = train._shape(train.phase_of(step, train.PHASES), place)
        texts[length] = texts.get(length, 0) + count * train.SHARDS
    card = CARDS["tiny_text"]
    assert {f"tokens_{k}": n for k, n in sorted(texts.items())} == card.splits["train"]
    assert sum(texts.values()) == card.counts["texts"]
    assert sum(k * n for k, n in texts.items()) == card.counts["tokens"]
    for step in (0, 200, 1000):  # the first batch of each phase is really of one of these shapes
        ids, _ = train.draw_batch(0, step, 0, train.phase_of(step, train.PHASES))
        assert ids.shape[1] in texts
    assert len(text.example(0, 0, 96).ids) == 96
    assert len(set(wording.adjectives())) == card.counts["adjectives"]
    assert len(set(wording.nouns())) == card.counts["nouns"]


def test_longbench_counts_agree_with_the_tasks():
    from evalkit.tasks.longbench.facts import BINS, official_count, tasks
    from evalkit.tasks.longbench.suites import suites

    card = CARDS["longbench"]
    assert list(card.splits["test"]) == list(tasks()) == list(suites()["longbench"].tasks)
    assert len(tasks()) == card.counts["tasks"]
    assert sum(official_count(task) for task in tasks()) == card.counts["samples"] == 4750
    of_e = card.splits["test_e"]
    assert len(of_e) == card.counts["tasks_e"]
    assert tuple(of_e) == suites()["longbench-e"].tasks
    assert sum(official_count(t, b) for t in of_e for b in BINS) == card.counts["samples_e"]
    assert card.counts["files"] == len(tasks()) + len(of_e)


def test_longbench_v2_counts_add_up():
    card = CARDS["longbench_v2"]
    counts = card.counts
    assert sum(card.splits["train"].values()) == counts["questions"] == 503
    assert counts["easy"] + counts["hard"] == 503
    assert sum(counts[f"answer_{letter}"] for letter in "abcd") == 503


@pytest.mark.shared
@pytest.mark.parametrize("task", ["multi_news", "multifieldqa_zh", "passage_retrieval_zh"])
def test_real_files_have_the_records_of_the_card(task):
    from evalkit.tasks.longbench import records

    folder = DATA / "longbench"
    if not folder.is_dir():
        pytest.skip(NEEDED)
    file = records.load(folder, task, e=False)
    assert not file.problems
    assert len(file.records) == CARDS["longbench"].splits["test"][task]


@pytest.mark.shared
def test_the_official_prompt_files_are_those_of_the_cards():
    folder = DATA / "prompts"
    if not folder.is_dir():
        pytest.skip(NEEDED)
    longbench, v2 = CARDS["longbench"], CARDS["longbench_v2"]
    expected = {"dataset2prompt.json": longbench.source("prompts")}
    expected |= {"dataset2maxlen.json": longbench.source("lengths")}
    expected |= {
        f"longbench_v2_{s.file.removeprefix('prompts/')}": s for s in v2.sources if s.kind == "raw"
    }
    assert len(expected) == 7
    for name, source in expected.items():
        data = (folder / name).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (source.sha256, source.bytes)


@pytest.mark.shared
def test_the_published_predictions_have_the_questions_of_the_card():
    path = DATA / "longbench_v2" / "predictions_exaone-3.5-32b.jsonl"
    if not path.is_file():
        pytest.skip(NEEDED)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    card = CARDS["longbench_v2"]
    for key, value in card.splits["train"].items():
        found = sum(row["length"] == key for row in rows)
        assert value - 1 <= found <= value  # one of the 503 questions has no published answer
    for letter in "ABCD":
        found = sum(row["answer"] == letter for row in rows)
        assert card.counts[f"answer_{letter.lower()}"] - found in (0, 1)


CARD = """---
name: tide
pretty_name: Tide
license: ours
generated: true
---
# Tide
"""


def write(tmp_path, text, name="tide.md"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_card_is_read(tmp_path):
    assert cards.read(write(tmp_path, CARD)).pretty_name == "Tide"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("---\nname", "name", "has no front matter"),
        ("license: ours", "license: [", "no YAML"),
        (
            "license: ours",
            "license: ours\nlicence: ours",
            r"unknown key licence; did you mean license\?",
        ),
        ("generated: true", "sources: [{kind: hub, id: a, repo: x, file: y}]", "repo"),
        (
            "generated: true",
            "sources: [{kind: hub, id: a, repo: x/y, file: a/../../b, revision: c}]",
            "points outside",
        ),
        (
            "generated: true",
            "sources: [{kind: raw, id: a, repo: x/y, file: a, revision: c, sha256: ff}]",
            "sha256",
        ),
        ("name: tide", "name: ebb", "is named ebb"),
    ],
)
def test_a_bad_card_is_refused_in_one_line(tmp_path, old, new, reason):
    path = write(tmp_path, CARD.replace(old, new, 1))
    with pytest.raises(EvalkitError, match=reason) as error:
        cards.read(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_an_unknown_card_is_named():
    with pytest.raises(EvalkitError, match="no such data card"):
        cards.load("tides")


def test_the_package_carries_the_cards():
    import tomllib

    setuptools = pytest.importorskip("setuptools")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    settings = project["tool"]["setuptools"]
    included = settings["packages"]["find"]["include"]
    packages = setuptools.find_namespace_packages(str(ROOT), include=included)
    assert "evalkit.data_cards" in packages
    assert "*.md" in settings["package-data"]["evalkit.data_cards"]
    inside = sorted(path.name for path in (ROOT / "evalkit" / "data_cards").glob("*.md"))
    assert inside == sorted(path.name for path in (ROOT / "data_cards").glob("*.md"))


@pytest.mark.slow
def test_an_installed_wheel_reads_its_cards(tmp_path):
    import shutil
    import subprocess
    import sys

    pytest.importorskip("setuptools")
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("evalkit", "distill", "data_cards"):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=skip)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, source]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    install = [*pip, "install", "--no-deps", "--no-index", "--target", target, wheel]
    subprocess.run(install, check=True, capture_output=True)
    show = "from evalkit.data import cards; print(*cards.load_all(), cards.folder())"
    done = subprocess.run(
        [sys.executable, "-c", show],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(target)},
    )
    *names, folder = done.stdout.split()
    assert names == list(CARDS)
    assert Path(folder).is_relative_to(target)


def test_cards_are_found_in_a_checkout_and_where_the_package_carries_them(tmp_path, monkeypatch):
    assert cards.folder().name == "data_cards"
    (tmp_path / "data_cards").mkdir()
    monkeypatch.setattr(cards, "FOLDERS", (tmp_path / "none", tmp_path / "data_cards"))
    assert cards.folder() == tmp_path / "data_cards"
    monkeypatch.setattr(cards, "FOLDERS", (tmp_path / "none",))
    with pytest.raises(EvalkitError, match="data cards are missing"):
        cards.folder()
