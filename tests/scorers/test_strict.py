"""Where strict mode differs from the official scores, as the data cards say."""

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.scorers import flags, score
from evalkit.scorers.choice import strict_letter
from tests.scorers.longbench import scored

CLASSES = ["Tide", "Tide pool", "Tide pool snail", "Lamp"]


@pytest.mark.parametrize(
    ("task", "prediction", "answers", "official", "strict"),
    [
        ("qasper", "<think>\nOdo?\n</think>\nMira", ["Mira"], 0.4, 1),
        ("qasper", "<think> Mira, or", ["Mira"], 0.5, 0),
        ("qasper", "so it is</think> Mira", ["Mira"], 0.4, 1),
        ("qasper", "“Mira”", ["Mira"], 0, 1),
        ("qasper", "twenty-one", ["twenty one"], 0, 1),
        ("qasper", "Ｍｉｒａ", ["Mira"], 0, 1),
        ("qasper", "U.S.S.R.", ["USSR"], 1, 1),
        ("qasper", "A", ["A"], 0, 1),
        ("qasper", "The", ["A"], 0, 0),
        ("multifieldqa_zh", "4.6％", ["3.6%"], 0, 0),
        ("multifieldqa_zh", "《海图》", ["海图"], 2 / 3, 1),
        ("trec", " \nLamp", ["Lamp"], 0, 1),
        ("trec", "lamp", ["Lamp"], 0, 1),
        ("trec", "Tide pool snail", ["Tide pool snail"], 0.5, 1),
        ("trec", "Tide pool", ["Tide"], 0.5, 0),
        ("trec", "Tide pool, or Tide", ["Tide"], 0.5, 0.5),
        ("trec", "Lampshade", ["Lamp"], 1, 0),
        ("trec", "Lamp\nTide", ["Lamp"], 1, 1),
        ("passage_count", "17, that is 17", ["17"], 1, 1),
        ("passage_count", "17 of 40", ["17"], 0.5, 0.5),
        ("passage_count", "017.0", ["17"], 0, 1),
        ("passage_count", "１７", ["17"], 0, 1),
        ("passage_retrieval_en", "Paragraph 4 of 30", ["Paragraph 4"], 0.5, 1),
        ("passage_retrieval_en", "paragraph 04", ["Paragraph 4"], 0, 1),
        ("passage_retrieval_en", "4", ["Paragraph 4"], 1, 1),
        ("passage_retrieval_en", "Paragraph 4 or Paragraph 5", ["Paragraph 4"], 0.5, 0.5),
        ("passage_retrieval_zh", "第二十一段", ["段落21"], 0, 1),
        ("passage_retrieval_zh", "第一百零五段", ["段落105"], 0, 1),
        ("passage_retrieval_zh", "段落21：第二位，1987年", ["段落21"], 0.5, 1),
        ("lcc", "total = 1  # tide", ["total = 1"], 0, 18 / 26),
        ("lcc", "\n    # tide\n```\n    total = 1", ["\ttotal = 1"], 0.78, 1),
        ("lcc", "", ["total = 1"], 0, 0),
    ],
)
def test_differences(task, prediction, answers, official, strict):
    classes = CLASSES if task == "trec" else None
    if official is not None:
        assert scored(task, prediction, answers, classes) == pytest.approx(official)
    assert scored(task, prediction, answers, classes, mode="strict") == pytest.approx(strict)


def test_ruler_references_stand_alone_in_strict_mode():
    assert score("ruler_all", "room 512", ("12",)) == 1
    assert score("ruler_all", "room 512", ("12",), mode="strict") == 0
    assert score("ruler_all", "a\u00a0b", ("a b",), mode="strict") == 1
    assert score("ruler_part", "512", ("12", "512"), mode="strict") == 1
    assert score("needle_exact", "512", ("512",), mode="strict") == 1


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("The correct answer is (A) The tide.\n(B) is wrong because it rains.", "A"),
        ("At first the answer is (A). But no: the answer is (B).", "B"),
        ("Answer: C, since it rains", "C"),
        ("The answer is A because it rains", "A"),
        ("The correct answer is A tide that turns", None),
        ("The best answer is **D**", "D"),
        ("答案：C", "C"),
        ("$\\boxed{\\text{D}}$", "D"),
        ("(B) The lamp was lit before noon.", "B"),
        ("A lamp was lit.", None),
        ("B or C", None),
        ("The answer is B/C", None),
        ("The answer is (E)", None),
        ("I choose none", None),
        ("The answer is (b).", "B"),
        ("(b) The lamp was lit before noon.", "B"),
        ("$\\boxed{b}$", "B"),
        ("the answer is (b) or (c)", None),
        ("The answer is a tide that turns", None),
        ("Option C is the answer.", "C"),
        ("After reading, option (c) is the correct answer", "C"),
        ("[D] is the best choice, not (A)", "D"),
        ("Option C is not the answer.", None),
        ("- (B) is correct as the tide turns.\n- (C) is correct, too. The answer: (A)", "A"),
        ("- (A) fits\n- (B) is correct as the tide turns", None),
        ("My choice is D", "D"),
        ("Final choice: (b)", "B"),
        ("The correct option is B, since it rains", "B"),
    ],
)
def test_letters_in_other_words(response, letter):
    assert strict_letter(response) == letter


def test_flags():
    assert flags("qa_f1", "<think>hm") == ("unclosed",)
    assert flags("choice", "<think>hm") == ("unclosed", "no_letter")
    assert flags("choice", "Answer: B") == ("no_letter",)
    assert flags("choice", "Answer: B", mode="strict") == ()


def test_code_backends_differ_and_are_named():
    assert scored("lcc", "cadb", ["abc"]) == 0.29
    assert scored("lcc", "cadb", ["abc"], edit_distance="levenshtein") == 0.57
    with pytest.raises(EvalkitError, match=r"unknown edit distance levenstein; did you mean lev"):
        scored("lcc", "cadb", ["abc"], edit_distance="levenstein")
    with pytest.raises(EvalkitError, match=r"unknown scoring mode strikt; did you mean strict\?"):
        scored("lcc", "cadb", ["abc"], mode="strikt")


def test_gold_that_a_metric_cannot_use_is_an_error_in_words():
    with pytest.raises(EvalkitError, match="all_classes must be a list of class names, found null"):
        scored("trec", "Lamp", ["Lamp"])
    with pytest.raises(EvalkitError, match="names no paragraph"):
        scored("passage_retrieval_en", "4", ["4"])
    with pytest.raises(EvalkitError, match="is no number"):
        scored("passage_count", "4", ["four"], mode="strict")
    assert scored("qasper", "Mira", []) == 0
    with pytest.raises(EvalkitError, match="without references"):
        scored("qasper", "Mira", [], mode="strict")
