"""Whatever is in the files: our own error or a run that can be scored, nothing else."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalkit.core.errors import EvalkitError
from evalkit.importers import FORMATS, import_predictions
from evalkit.run.scoring import score_run
from evalkit.run.store import RunStore
from tests.importers.files import (
    helmet,
    needle,
    prediction,
    qa,
    review,
    ruler,
    sample_log,
    trec,
    v2,
)

FILES = {
    "longbench": ["qasper.jsonl", "trec.jsonl", "passage_count.jsonl", "lcc.jsonl"],
    "longbench_v2": ["m.jsonl"],
    "ruler": ["4096/vt.jsonl", "4096/qa_1-0.jsonl"],
    "needle_kamradt": ["n.jsonl", "r_results.json"],
    "lm_eval": ["samples_longbench_trec_2026.jsonl", "samples_ruler_vt_2026.jsonl"],
    "kvpress": ["predictions.csv"],
    "infinitebench": ["preds_passkey.jsonl", "preds_kv_retrieval.jsonl"],
    "jsonl": ["mine.jsonl"],
    "opencompass": [
        "LongBench_qasper.json",
        "LongBench_trec_0.json",
        "LongBenchv2.json",
        "ruler_vt_4k.json",
        "Length1000Depth50_origin_en_4k.json",
        "InfiniteBench_mathcalc.json",
    ],
    "evalscope": [
        "predictions/m/longbench_v2_short.jsonl",
        "reviews/m/needle_haystack_english.jsonl",
        "reviews/m/openai_mrcr_default.jsonl",
    ],
    "helmet": [f"{name}_eval__in4096_size9.json" for name in ("ruler_vt", "nq", "infbench_qa_eng")],
}
OPTIONS = {"jsonl": {"metric": "qa_f1"}}
DOC = {"answers": ["Food"], "all_classes": ["Food"], "outputs": ["12"], "max_length": 4096}
GOOD = {
    "longbench": [qa(0), trec(1), qa(2, "Paragraph 3", answers=["Paragraph 3"])],
    "longbench_v2": [v2(0), v2(1)],
    "ruler": [ruler(0), ruler(1)],
    "needle_kamradt": [needle(1000, 0), needle(2000, 50)],
    "lm_eval": [sample_log(0, DOC, "12"), sample_log(1, DOC, "Food")],
    "infinitebench": [{"id": 0, "prediction": "12", "ground_truth": ["12"]}],
    "jsonl": [
        {
            "id": "a",
            "prediction": "12",
            "references": "12",
            "task": "t",
            "cluster": "c",
            "length": 9,
        }
    ],
    "opencompass": [
        {
            "0": {"prediction": "Food", "gold": DOC, "origin_prompt": "x"},
            "1": {"prediction": "Food", "gold": ["Food"]},
        },
        {"0": {"prediction": "A", "gold": "A"}, "1": {"prediction": "f", "gold": "needle*f"}},
    ],
    "evalscope": [prediction(0, said="ANSWER: A"), review(0, said="The code is 7"), review(1)],
    "helmet": [
        {"args": {"model_name_or_path": "m"}, "data": [helmet(0), helmet(1, depth=0.5), {}]},
        {"data": [helmet(0, answer=[["a"], ["b"]])]},
    ],
}

text = st.text(st.characters(exclude_categories=()), max_size=12)
scalar = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), text)
value = st.recursive(
    scalar,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def record(draw, format_):
    """A good record with some fields taken away or replaced by anything."""
    data = dict(draw(st.sampled_from(GOOD[format_])))
    for key in draw(st.lists(st.sampled_from(sorted(data)), max_size=2)):
        if draw(st.booleans()):
            data.pop(key, None)
        else:
            data[key] = draw(value)
    return json.dumps(data, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


def line(format_):
    junk = st.one_of(
        st.binary(max_size=30),
        value.map(lambda v: json.dumps(v).encode()),
        st.sampled_from(
            [b"[" * 3000, b"9" * 5000, b"\xff\xfe{}", b"", b" ", b'{"a":NaN}', b"\x00"]
        ),
    )
    return st.one_of(record(format_), record(format_), junk)


def check(format_, contents):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "in"
        for name, content in contents.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        store = RunStore(Path(folder) / "run")
        try:
            report = import_predictions(format_, root, "a", store, **OPTIONS.get(format_, {}))
        except EvalkitError as error:
            assert "\n" not in str(error).strip()
            assert not store.exists
            return
        assert report.records == len(store.read_samples("a")) > 0
        assert all(str(problem) for problem in report.problems)
        assert report.lines()
        assert score_run(store) == {"a": report.records}
        assert import_predictions(format_, root, "a", store, **OPTIONS.get(format_, {})).unchanged


def try_records(format_, examples):
    @given(st.lists(st.tuples(st.sampled_from(FILES[format_]), line(format_)), max_size=12))
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    def run(rows):
        contents = {}
        for name, content in rows:
            contents.setdefault(name, []).append(content)
        check(format_, {name: b"\n".join(parts) for name, parts in contents.items()})

    run()


@pytest.mark.parametrize("format_", sorted(GOOD))
def test_any_records(format_):
    try_records(format_, 20)


@pytest.mark.slow
@pytest.mark.parametrize("format_", sorted(GOOD))
def test_many_records(format_):
    try_records(format_, 200)


cell = st.one_of(
    text,
    st.sampled_from(["['12']", "['a' 'b']", "vt", "trec", "12", "50", "A", "None", "['x", '"']),
)
COLUMNS = ["task", "answer", "answers", "all_classes", "length", "_id", "needle", "needle_depth"]


@given(
    st.lists(st.sampled_from([*COLUMNS, "choice_A"]), max_size=5, unique=True),
    st.lists(st.lists(cell, max_size=7), max_size=6),
    st.one_of(st.none(), st.binary(max_size=40), st.just(b"data_dir: '4096'")),
)
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_table(columns, rows, config):
    def joined(cells):
        quoted = ('"' + c.replace('"', '""') + '"' if len(c) % 2 else c for c in cells)
        return ",".join(quoted).encode("utf-8", "surrogatepass")

    table = b"\r\n".join([joined([*columns, "predicted_answer"]), *map(joined, rows)])
    contents = {"predictions.csv": table}
    check("kvpress", contents if config is None else contents | {"config.yaml": config})


def test_every_format_is_tried():
    assert set(GOOD) | {"kvpress"} == set(FORMATS) == set(FILES)
