"""Reasoning blocks: split off before scoring, unclosed ones are no answer, budgets apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from evalkit.config.arm import ArmConfig
from evalkit.config.run import PromptConfig, ScoringConfig
from evalkit.core.reasoning import (
    BLOCKS,
    answer_start,
    has_reasoning,
    is_unclosed,
    marker_tokens,
    still_reasons,
    without_reasoning,
)
from evalkit.core.records import ItemRow, SampleRow
from evalkit.core.types import Prompt, Sample
from evalkit.engines.hf.config import HfConfig
from evalkit.engines.hf.engine import HfEngine
from evalkit.engines.hf.greedy_decoder import GreedyDecoder
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import load_tokenizer
from evalkit.run.scoring import score_row

ITEM = ItemRow("t/0", "t", "needle_exact", ("4821",), "t/0", {})


def row(completion, finish_reason="stop", **kwargs):
    return SampleRow("t/0", "t", None, None, None, completion, finish_reason, **kwargs)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("4821", "4821"),
        ("<think>maybe 9999</think>4821", "4821"),
        ("still thinking 9999</think> 4821", " 4821"),
        ("<think>a</think>x<think>b</think>y", "xy"),
        ("4821 <think>hm", "4821 "),
        ("<think>never ends", ""),
    ],
)
def test_what_stands_behind_the_block_is_the_answer(text, answer):
    assert without_reasoning(text) == answer


def test_unclosed_blocks():
    assert is_unclosed("<think>never ends")
    assert not is_unclosed("<think>a</think>b")
    assert is_unclosed("the prompt opened it", opened=True)
    assert not is_unclosed("the prompt opened it</think>b", opened=True)


@pytest.mark.parametrize(("opening", "closing"), BLOCKS)
def test_every_known_block(opening, closing):
    thought = f"{opening}maybe 9999{closing}4821"
    assert without_reasoning(thought) == "4821"
    assert without_reasoning(f"still thinking 9999{closing} 4821") == " 4821"
    assert without_reasoning(f"4821 {opening}hm") == "4821 "
    assert is_unclosed(f"{opening}never ends")
    assert not is_unclosed(thought, opened=True)
    assert still_reasons(f"{opening}4821")
    assert still_reasons("4821", opened=True)
    assert not still_reasons(thought)
    assert thought[answer_start(thought) :] == "4821"
    assert has_reasoning(closing)


def test_text_without_markers_is_the_answer():
    plain = "a <thinking> or [think] b < c > d <|end|> ◁"
    assert without_reasoning(plain) == plain
    assert not (is_unclosed(plain) or has_reasoning(plain) or still_reasons(plain))
    assert answer_start(plain) == 0


def test_special_tokens_that_delimit_reasoning_stay_in_the_text(checkpoint):
    assert marker_tokens(["<s>", "[THINK]", "[/THINK]", ""]) == {"[THINK]", "[/THINK]"}
    assert marker_tokens(["<s>", "<|end|>", "[THINK]"]) == set()  # no pair
    harmony = {"<|start|>", "<|end|>", "<|message|>", "<|channel|>"}
    assert marker_tokens([*harmony, "<|return|>"]) == harmony

    decoder = GreedyDecoder.__new__(GreedyDecoder)
    decoder.tokenizer = load_tokenizer(checkpoint)
    markers = ["[THINK]", "[/THINK]"]
    decoder.tokenizer.add_special_tokens({"additional_special_tokens": [*markers, "<|other|>"]})
    ids = decoder.tokenizer.encode("[THINK]The sky[/THINK] The sky<|other|>")
    assert decoder._text(ids) == "[THINK]The sky[/THINK] The sky"
    plain = GreedyDecoder.__new__(GreedyDecoder)
    plain.tokenizer = load_tokenizer(checkpoint)
    ids = plain.tokenizer.encode("The sky")
    assert plain._text(ids) == plain.tokenizer.decode(ids, skip_special_tokens=True)


def test_only_the_answer_is_scored_and_the_raw_text_stays():
    split, keep = ScoringConfig(), ScoringConfig(reasoning="keep")
    wrong = row("<think>it is 4821? no.</think> 9999")
    assert score_row(ITEM, wrong, split).score == 0.0
    assert score_row(ITEM, wrong, keep).score == 1.0
    assert wrong.completion.startswith("<think>")
    right = score_row(ITEM, row("<think>hm</think> 4821"), split)
    assert (right.score, right.answer, right.flags) == (1.0, " 4821", ())


def test_an_unclosed_block_is_no_answer_and_counted():
    score = score_row(ITEM, row("<think>4821 4821", finish_reason="length"), ScoringConfig())
    assert (score.score, score.answer) == (0.0, "")
    assert set(score.flags) == {"unclosed", "length"}
    opened = score_row(ITEM, row("4821", reasoning_opened=True), ScoringConfig())
    assert (opened.score, opened.flags) == (0.0, ("unclosed",))


def test_an_empty_answer_and_truncation_are_counted():
    item = replace(ITEM, meta={"truncated": True})
    score = score_row(item, row("<think>x</think> "), ScoringConfig())
    assert (score.score, set(score.flags)) == (0.0, {"empty", "truncated"})


@pytest.mark.parametrize(
    ("text", "spent"),
    [
        ("1 2 3", False),  # within the budget of four
        ("1 2 3 4", True),
        ("<think> 1 2 3 4 5 6 7 8", False),  # still thinking
        ("<think> 1 2 3 4 5 6 7 8 9 9 9", True),  # reasoning and answer budget used up
        ("<think> 1 2 </think> 1 2", False),
        ("<think> 1 2 </think> 1 2 3 4", True),
    ],
)
def test_the_answer_has_its_own_budget(text, spent):
    class Words:
        """One token per word."""

        words = ()
        pad_token_id = eos_token_id = 0

        def decode(self, ids, **_):
            return " ".join(self.words[i] for i in ids)

        def encode(self, text, **_):
            return text.split()

    Words.words = text.split()
    decoder = GreedyDecoder.__new__(GreedyDecoder)
    decoder.tokenizer = Words()
    prompt = Prompt(Sample("t/0", "t", "q", ("x",), "none", 4), (1,), "q", "h", 8)
    assert decoder._spent(prompt, list(range(len(Words.words)))) is spent


def test_the_engine_gives_a_reasoning_model_its_tokens(checkpoint):
    engine = HfEngine(HfConfig(dtype="float32"))
    engine.load(str(checkpoint))
    engine.decoder.stop_ids = frozenset()
    counts = []
    for budget in (0, 5):
        renderer = ChatRenderer(load_tokenizer(checkpoint), PromptConfig(reasoning_tokens=budget))
        asked = Sample("t/0", "t", "The sky", ("x",), "none", 3, answer_prefix=" <think>")
        prompt = renderer.render(asked)
        assert prompt.max_new_tokens == 3 + budget
        with torch.inference_mode():
            (answer,) = next(iter(engine.answer(ArmConfig(name="a"), None, [prompt], ())))
        counts.append(answer.completion_tokens)
    assert counts == [3, 8]
