"""Whatever is scored: no error but ours, no score outside [0, 1], no blow-up."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evalkit.core.errors import EvalkitError
from evalkit.scorers import METRICS, flags, score

# Any character, lone surrogates among them, and pieces that the metrics look for.
PIECES = ["Paragraph ", "段落", "第十二段", "17", "٣", "１", "<think>", "</think>", "A", ")", "."]
PIECES += ["The correct answer is (", "\\boxed{B}", "。", "\n", " ", "`", "#", "the", "Tide pool"]
PIECES += ["Tide", "\ud800", "²", "½"]
TEXTS = st.lists(
    st.one_of(st.sampled_from(PIECES), st.text(st.characters(), max_size=6)), max_size=12
).map("".join)
META = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            "first_line": st.booleans(),
            "all_classes": st.one_of(st.none(), st.lists(TEXTS, max_size=4), st.integers()),
        },
    ),
)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("mode", ["official", "strict"])
@given(
    prediction=TEXTS,
    references=st.lists(TEXTS, max_size=3).map(tuple),
    meta=META,
    backend=st.sampled_from(["difflib", "levenshtein"]),
)
@example(prediction="9" * 5000, references=("9" * 5000,), meta=None, backend="difflib")
@example(prediction="", references=("",), meta={"all_classes": [""]}, backend="levenshtein")
@settings(max_examples=25, deadline=None)
def test_scores_are_fractions_or_our_errors(metric, mode, prediction, references, meta, backend):
    try:
        found = score(metric, prediction, references, mode=mode, meta=meta, edit_distance=backend)
    except EvalkitError as error:
        assert "\n" not in str(error)
    else:
        assert type(found) is float
        assert 0 <= found <= 1
    flags(metric, prediction, mode=mode)


LONG = {
    "one character": "a" * 20_000,
    "one line": "".join(f"total_{i % 97} = {i};" for i in range(2_000)),
    "lines": "# tide\n" * 20_000,
    "digits": "7" * 20_000,
    "numbers": "7 8 " * 10_000,
    "chinese": "山很高，河水很清" * 1_000,
    "tags": "<think>" * 50_000,
    "indent": " " * 20_000 + "x",
    "cue and spaces": ("answer" + " " * 2_000) * 20,
    "cues": "answer is " * 5_000 + "A",
    "spaces": " " * 20_000,
    "brackets": "((((" * 5_000,
}
GOLD = {"retrieval": "Paragraph 7", "retrieval_zh": "段落7", "count": "7", "choice": "A"}
GOLD |= dict.fromkeys(("last_number", "first_value", "number_list"), "7")
BENCHMARKS = [name for name in METRICS if not name.startswith(("prefixed", "set"))]


@pytest.mark.parametrize("metric", BENCHMARKS)
@pytest.mark.parametrize("mode", ["official", "strict"])
def test_long_answers_are_scored(metric, mode):
    meta = {"all_classes": ["Tide", "Tide pool"]}
    for name, text in LONG.items():
        golds = [GOLD.get(metric, "total_1 = 1; 山很高")]
        golds += [text] if name in ("one line", "chinese") and metric not in GOLD else []
        for gold in golds:
            assert 0 <= score(metric, text, (gold,), mode=mode, meta=meta) <= 1, (name, gold[:20])
