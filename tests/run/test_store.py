"""The run directory: torn lines, damaged files, one writer, atomic replacement."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.core.errors import EvalkitError
from evalkit.core.files import append_jsonl, dumps, read_jsonl, write_atomic
from evalkit.core.json_fields import text
from evalkit.core.records import SampleRow
from evalkit.core.types import Prompt, Sample
from evalkit.run.store import RunStore, slug


def rows(path):
    return read_jsonl(path, sample_id)


def sample_id(row):
    return text(row, "sample_id")


@given(cut=st.integers(1, 60), text=st.text(max_size=20))
def test_a_torn_last_line_is_dropped_and_redone(tmp_path_factory, cut, text):
    path = tmp_path_factory.mktemp("store") / "samples.jsonl"
    append_jsonl(path, [{"sample_id": "a"}, {"sample_id": "b", "completion": text}])
    whole = path.read_bytes()
    path.write_bytes(whole[: -min(cut, len(whole) - 1)])
    left = rows(path)
    assert left in (["a"], [])
    append_jsonl(path, [{"sample_id": "c"}])
    assert rows(path) == [*left, "c"]
    assert path.read_bytes().endswith(b"\n")


def test_a_complete_line_without_newline_counts_as_torn(tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text('{"sample_id": "a"}\n{"sample_id": "b"}', encoding="utf-8")
    assert rows(path) == ["a"]
    append_jsonl(path, [{"sample_id": "b"}])
    assert rows(path) == ["a", "b"]


def test_a_torn_only_line_leaves_an_empty_file(tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_bytes(b'{"sample_id": "a", "x": "' + b"y" * 200_000)
    append_jsonl(path, [{"sample_id": "b"}])
    assert rows(path) == ["b"]


@pytest.mark.parametrize("bad", ["{oops", "[1]", '{"x": 1}', "\x00"])
def test_damage_in_the_middle_names_file_and_line(tmp_path, bad):
    path = tmp_path / "samples.jsonl"
    path.write_text('{"sample_id": "a"}\n' + bad + '\n{"sample_id": "b"}\n', encoding="utf-8")
    with pytest.raises(EvalkitError, match=r"samples\.jsonl:2: "):
        read_jsonl(path, sample_id)


@given(st.text(st.characters(), max_size=30))
def test_any_completion_survives_the_file(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("store") / "samples.jsonl"
    append_jsonl(path, [{"sample_id": "a", "completion": text}])
    assert read_jsonl(path, lambda row: row["completion"]) == [text]


def test_lone_surrogates_are_escaped():
    line = dumps({"completion": "\ud800 ü"})
    assert json.loads(line.encode("utf-8"))["completion"] == "\ud800 ü"


def test_a_second_process_is_refused_and_the_lock_dies_with_its_owner(tmp_path):
    store = RunStore(tmp_path / "run")
    code = (
        "import sys; from pathlib import Path; from evalkit.run.store import RunStore\n"
        "with RunStore(Path(sys.argv[1])).lock():\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(store.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout.readline() == "held\n"
    with pytest.raises(EvalkitError, match=f"another process \\(pid {owner.pid}\\)"):
        with store.lock():
            pass
    owner.kill()
    owner.wait()
    with store.lock():
        pass


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "run.json"
    write_atomic(path, "old\n")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "new \ud800")
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_slugs_are_safe_and_distinct(one, other):
    for name in (one, other):
        assert set(slug(name)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
        assert slug(name) not in ("", ".", "..")
    assert (slug(one) == slug(other)) == (one == other)


def test_a_sample_that_changed_is_refused(tmp_path):
    store = RunStore(tmp_path)
    prompt = Prompt(Sample("t/0", "t", "text", ("4821",), "needle_exact", 4), (1, 2), "text", "h")
    store.add_items([prompt], {})
    store.add_items([prompt], store.read_items())
    assert len(store.read_items()) == 1
    other = Prompt(Sample("t/0", "t", "text", ("9999",), "needle_exact", 4), (1, 2), "text", "h")
    with pytest.raises(EvalkitError, match="sample t/0 is not what it was"):
        store.add_items([other], store.read_items())


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"arms": 3}',
        '{"arms": ["x"], "recipe": {}, "tasks": []}',
        '{"arms": [{}], "recipe": {}, "tasks": []}',
        '{"arms": []}',
        '{"arms": [], "recipe": {}, "tasks": [], "format": 2}',
    ],
)
def test_a_damaged_run_file_is_one_line(tmp_path, content):
    (tmp_path / "run.json").write_text(content, encoding="utf-8")
    with pytest.raises(EvalkitError, match=r"run\.json"):
        RunStore(tmp_path).read_run()


def test_no_run_is_one_line(tmp_path):
    with pytest.raises(EvalkitError, match="no run here"):
        RunStore(tmp_path).read_run()


@pytest.mark.parametrize(
    ("name", "row", "missing"),
    [
        ("items", {"task": "t", "metric": "m", "cluster": "c"}, "references"),
        ("samples", {"task": "t", "completion": None, "finish_reason": "stop"}, "completion"),
        ("samples", {"task": "t", "completion": "", "finish_reason": "stop"}, "prompt_sha256"),
        ("scores", {"task": "t", "metric": "m", "score": "1", "flags": []}, "score"),
        ("scores", {"task": "t", "metric": "m", "score": 1.0}, "flags"),
    ],
)
def test_a_row_without_what_readers_need_names_file_line_and_field(tmp_path, name, row, missing):
    store = RunStore(tmp_path)
    folder = tmp_path if name == "items" else store.arm_dir("a")
    append_jsonl(folder / f"{name}.jsonl", [{"sample_id": "t/0"} | row])
    read = {
        "items": store.read_items,
        "samples": lambda: store.read_samples("a"),
        "scores": lambda: store.read_scores("a"),
    }[name]
    with pytest.raises(EvalkitError, match=rf"{name}\.jsonl:1: no usable {missing}"):
        read()


def test_what_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(EvalkitError, match="cannot be written"), RunStore(path).lock():
            pass
        for write in (append_jsonl, lambda p, _rows: write_atomic(p, "x")):
            with pytest.raises(EvalkitError, match="cannot be written"):
                write(path / "run.json", [{"sample_id": "a"}])


def test_a_full_disk_keeps_what_was_written(tmp_path, monkeypatch):
    path = tmp_path / "samples.jsonl"
    append_jsonl(path, [{"sample_id": "a"}])

    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(EvalkitError, match=r"samples\.jsonl: cannot be written: No space left"):
            append_jsonl(path, [{"sample_id": "b"}])
        with pytest.raises(EvalkitError, match="what was written before stays"):
            write_atomic(path, "")
    assert rows(path)[:1] == ["a"]
    assert list(tmp_path.iterdir()) == [path]


def answer(text, sample_id="t/0", reason="stop"):
    row = SampleRow(sample_id, "t", "0" * 64, 3, 2, text, reason)
    return row.sealed()


def test_a_second_answer_to_a_sample_does_not_win_silently(tmp_path):
    store = RunStore(tmp_path)
    failed = answer("", reason="error")
    store.add_samples("a", [failed, answer("one"), answer("one"), answer("two", "t/1")])
    assert [row.completion for row in store.read_samples("a").values()] == ["one", "two"]
    store.add_samples("a", [answer("three", "t/1")])
    with pytest.raises(EvalkitError, match=r"samples.jsonl: two different answers to t/1: "):
        store.read_samples("a")


def test_two_samples_of_one_id_are_refused(tmp_path):
    gold = {"sample_id": "t/0", "task": "t", "metric": "qa_f1", "cluster": "c", "meta": {}}
    append_jsonl(tmp_path / "items.jsonl", [gold | {"references": ["x"]}] * 2)
    assert len(RunStore(tmp_path).read_items()) == 1
    append_jsonl(tmp_path / "items.jsonl", [gold | {"references": ["y"]}])
    with pytest.raises(EvalkitError, match=r"items.jsonl: two different samples are called t/0: "):
        RunStore(tmp_path).read_items()


def test_a_file_system_without_locks_is_not_another_process(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(EvalkitError, match=r"cannot be locked \(No locks available\)"):
        RunStore(tmp_path).lock().__enter__()
