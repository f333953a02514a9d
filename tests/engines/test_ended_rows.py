"""Rows that have ended leave the batch, and the others answer as if they had been alone."""

from __future__ import annotations

import pytest

from evalkit.core.types import Prompt, Sample
from evalkit.dsa import ReuseSchedule, apply_schedule
from evalkit.dsa.families.sites import indexer_sites
from evalkit.engines.hf.greedy_decoder import NOT_FINITE, GreedyDecoder
from evalkit.selections.temporal import Temporal
from tests.dsa.tiny import build, tokens
from tests.run.test_shared_prefill import FAMILIES, Numbers

BUDGETS = (3, 9, 1, 6, 6)


def asked(lengths, budgets=BUDGETS):
    return [
        Prompt(
            Sample(f"s/{i}", "s", "q", ("x",), "none", budget),
            tuple(tokens(1, length, i)[0].tolist()),
            "q",
            "h",
        )
        for i, (length, budget) in enumerate(zip(lengths, budgets, strict=True))
    ]


def decoder_of(family, **overrides):
    decoder = GreedyDecoder(build(family, **overrides).double(), Numbers(), prefill_chunk=17)
    decoder.stop_ids = frozenset()
    return decoder


def answered(decoder, prompts, schedule, **options):
    """Answers of one batch, and how many rows each forward had."""
    rows = []
    embedding = decoder.model.get_input_embeddings()
    seen = embedding.register_forward_pre_hook(lambda _, args: rows.append(args[0].shape))
    try:
        with apply_schedule(decoder.model, schedule, **options) as applied:
            answers = decoder.answer(decoder.prefill(prompts, applied), applied)
    finally:
        seen.remove()
    return answers, [shape[0] for shape in rows if shape[1] == 1]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_answers_as_alone(family):
    decoder = decoder_of(family)
    ids = indexer_sites(decoder.model).layout.layer_ids
    lag = ReuseSchedule.uniform(ids, "1/2" if len(ids) > 3 else 1, 1)
    prompts = asked((40,) * 5 if family == "deepseek_v4" else (40, 23, 31, 40, 12))
    for schedule, options in (
        (ReuseSchedule.uniform(ids), {}),
        (lag, {"sparse": True}),
        (lag, {"sparse": True, "chunked": True}),
    ):
        if options.get("chunked") and indexer_sites(decoder.model).family.adapter is None:
            continue
        together, rows = answered(decoder, prompts, schedule, **options)
        assert rows == [4, 4, 3, 3, 3, 1, 1, 1]
        alone = [answered(decoder, [p], schedule, **options)[0][0] for p in prompts]
        assert together == alone
        assert tuple(answer.tokens for answer in together) == BUDGETS


@pytest.mark.parametrize("family", ["deepseek_v32", "deepseek_v4"])
def test_what_decode_remembers_leaves_with_its_row(family):
    decoder = decoder_of(family)
    schedule = ReuseSchedule.uniform(indexer_sites(decoder.model).layout.layer_ids)
    prompts = asked((40,) * 5 if family == "deepseek_v4" else (40, 23, 31, 40, 12))
    policy = Temporal(every=3)
    together, rows = answered(decoder, prompts, schedule, policy=policy)
    assert rows == [4, 4, 3, 3, 3, 1, 1, 1]
    assert together == [answered(decoder, [p], schedule, policy=policy)[0][0] for p in prompts]
    assert together != answered(decoder, prompts, schedule)[0]


def test_a_row_in_error_leaves_and_the_rest_answers():
    decoder = decoder_of("deepseek_v32")
    prompts = asked((20, 20, 20), (4, 4, 4))
    schedule = ReuseSchedule.uniform(8)
    whole, _ = answered(decoder, prompts, schedule)
    forward, steps = decoder._forward, []

    def broken(ids, mask, positions, cache):
        logits = forward(ids, mask, positions, cache)
        if ids.shape[1] == 1:
            steps.append(len(ids))
            if len(steps) == 2:
                logits[1, 7] = float("nan")
        return logits

    decoder._forward = broken
    answers, _ = answered(decoder, prompts, schedule)
    assert answers[1] == ("", "error", 2, NOT_FINITE)
    assert [answers[0], answers[2]] == [whole[0], whole[2]]
    assert steps == [3, 3, 2]
