"""Predictions of OpenCompass, data set by data set."""

import json

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.importers import import_predictions
from evalkit.importers.common import clusters
from evalkit.run.store import RunStore
from tests.importers.files import scores


def said(i, text=None, gold=None):
    gold = [f"answer {i}"] if gold is None else gold
    text = f"answer {i}" if text is None else text
    return {"origin_prompt": "…", "prediction": text, "gold": gold}


def compass(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({str(i): record for i, record in enumerate(records)}, indent=4))


def test_longbench_is_joined_by_its_numbers(tmp_path, store):
    folder = tmp_path / "predictions" / "llama"
    compass(folder / "LongBench_qasper_0.json", said(0), said(1, "no"))
    compass(folder / "LongBench_qasper_1.json", said(2, gold="answer 2"))
    labels = {"answers": ["Food"], "all_classes": ["Food", "Date"]}
    compass(folder / "LongBench_trec.json", said(0, "Food", labels))
    compass(folder / "gsm8k.json", said(0))
    report = import_predictions("opencompass", folder, "a", store)
    assert [str(problem) for problem in report.problems] == [
        "gsm8k.json: no data set of OpenCompass that is known here; left out"
    ]
    found = scores(store)
    assert found.pop("longbench/qasper/1") < 1
    assert found == {"longbench/qasper/0": 1, "longbench/qasper/2": 1, "longbench/trec/0": 1}
    compass(tmp_path / "other" / "LongBench_qasper.json", said(0), said(1), said(2))
    compass(tmp_path / "other" / "LongBench_trec.json", said(0, "Date", labels))
    report = import_predictions("opencompass", tmp_path / "other", "b", store)
    assert report.coverage == ()


def test_ruler_needles_and_infinitebench(tmp_path, store):
    folder = tmp_path / "llama"
    compass(folder / "ruler_niah_multikey_2_4k.json", said(0, "it is 12", ["12"]))
    compass(folder / "ruler_vt_1m_0.json", said(0, "AB", ["AB", "CD"]))
    compass(folder / "ruler_vt_1m_1.json", said(0, "AB CD", ["AB", "CD"]))
    compass(folder / "ruler_qa_squad_128k.json", said(0, "in Paris", ["Rome", "Paris"]))
    needle = "\nThe codename of Ada is Falcon.\n*Falcon"
    for depth in (0, 52):
        name = f"Length2000Depth{depth}_origin_en_4k.json"
        compass(folder / name, said(0, "a falcon", needle), said(1, "no", needle))
    compass(folder / "InfiniteBench_retrievekv.json", said(0, '"k7"', "k7"))
    compass(folder / "InfiniteBench_enmc.json", said(0, "The answer is: B", "B"))
    compass(folder / "Length2000_parallel_en_4k.json", said(0))
    report = import_predictions("opencompass", folder, "a", store)
    assert len(report.problems) == 1
    assert scores(store) == {
        "infinitebench/kv_retrieval/0": 1,
        "infinitebench/longbook_choice_eng/0": 1,
        **{f"needlebench_en_4k@2000/{d}/{i}": 1 - i for d in (0, 52) for i in (0, 1)},
        "niah_multikey_2@4096/0": 1,
        "qa_1@131072/0": 1,
        "vt@1048576/0": 0.5,
        "vt@1048576/1": 1,
    }
    items = store.read_items()
    assert items["needlebench_en_4k@2000/52/1"].meta == {"length": 2000, "depth": 52}
    # all depths of a number are read in one text
    units = [items[f"needlebench_en_4k@2000/{d}/{i}"].cluster for d in (0, 52) for i in (0, 1)]
    assert units[0] == units[2] != units[1] == units[3]


def test_longbench_v2_by_number_or_by_the_pinned_id(tmp_path, store, monkeypatch):
    right = "The correct answer is (A)"
    compass(tmp_path / "m" / "LongBenchv2.json", said(0, right, "A"), said(1, right, "B"))
    import_predictions("opencompass", tmp_path / "m", "a", store)
    assert scores(store) == {"longbench-v2/0shot/0": 1, "longbench-v2/0shot/1": 0}
    question = clusters.items.Item(1, "x7", {"length": "short"}, "?", (), "A", (0, 0))
    monkeypatch.setattr("evalkit.importers.opencompass.pinned_questions", lambda: (question,))
    pinned = RunStore(tmp_path / "pinned")
    import_predictions("opencompass", tmp_path / "m", "a", pinned)
    assert list(pinned.read_items()) == ["longbench-v2/0shot/x7", "longbench-v2/0shot/1"]
    assert pinned.read_items()["longbench-v2/0shot/x7"].meta == {"_id": "x7", "length": "short"}


def test_a_key_with_a_line_break_is_told_in_one_line(tmp_path, store):
    folder = tmp_path / "llama"
    compass(folder / "LongBench_qasper.json", said(0))
    data = json.loads((folder / "LongBench_qasper.json").read_text())
    (folder / "LongBench_qasper.json").write_text(json.dumps(data | {"x\ny": said(3)}))
    (problem,) = import_predictions("opencompass", folder, "a", store).problems
    assert str(problem) == r"LongBench_qasper.json: x\ny: no number of a sample; left out"
    (folder / "LongBench_qasper.json").write_text(json.dumps({"x\ny": said(3)}))
    with pytest.raises(EvalkitError) as error:
        import_predictions("opencompass", folder, "b", RunStore(tmp_path / "b"))
    assert "\n" not in str(error.value)


def test_broken_files(tmp_path, store):
    folder = tmp_path / "llama"
    compass(folder / "LongBench_qasper.json", said(0), 7, said(2, gold=[]))
    data = json.loads((folder / "LongBench_qasper.json").read_text())
    (folder / "LongBench_qasper.json").write_text(json.dumps(data | {"x": said(3)}))
    (folder / "LongBench_trec.json").write_text("[1]")
    (folder / "LongBench_musique.json").write_text("")
    (folder / "LongBench_lcc.json").write_text('{"0": {"prediction": "x"')
    compass(folder / "Length2000Depth0_origin_en_4k.json", said(0, "x", "no star"))
    report = import_predictions("opencompass", folder, "a", store)
    assert [str(problem) for problem in report.problems] == [
        "Length2000Depth0_origin_en_4k.json: 0.gold: no needle with a key word behind a star;"
        " left out",
        "LongBench_lcc.json: not JSON (Expecting ',' delimiter at character 24); left out",
        "LongBench_musique.json: empty; left out",
        "LongBench_qasper.json: x: no number of a sample; left out",
        "LongBench_qasper.json: 1: not an object; left out",
        "LongBench_qasper.json: 2.answers: an empty list; left out",
        "LongBench_trec.json: a list, not an object; left out",
    ]
    assert list(store.read_samples("a")) == ["longbench/qasper/0"]
    compass(folder / "LongBench_hotpotqa_1.json", said(0))
    with pytest.raises(EvalkitError, match="the parts of LongBench_hotpotqa are not all there"):
        import_predictions("opencompass", folder, "b", store)
    compass(tmp_path / "LongBench_qasper.json", said(0))
    with pytest.raises(EvalkitError, match="files of 2 runs"):
        import_predictions("opencompass", tmp_path, "b", store)
    compass(tmp_path / "only" / "gsm8k.json", said(0))
    with pytest.raises(EvalkitError, match="no file of LongBench, LongBench v2, RULER"):
        import_predictions("opencompass", tmp_path / "only", "b", store)
