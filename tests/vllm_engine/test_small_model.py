"""The shipped small model on vLLM under the plugin, beside transformers: as V3.2 and as GLM-5.

Both compute in float32, and vLLM's index keys are not rounded (`plain_mla`), so that answers and
selections are those of `apply_schedule`, arm by arm. vLLM packs the requests into one batch, where
some decode while others are in their prefill.
"""

from __future__ import annotations

import math

import pytest
import torch

from evalkit.dsa import ReuseSchedule, apply_schedule, index_features, index_scores
from tests.vllm_engine import small_model

pytestmark = pytest.mark.vllm

LAYERS, TOPK, VOCABULARY = 24, 32, 624
CHUNK = 256
LENGTHS = (CHUNK + 1, 380, 700)  # beyond top-k, in pieces, the second of the first a single token
V32, GLM = "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"
UNIFORM = (("1", 0), ("1/4", 0), ("1/4", 1), ("1", 1), ("1/8", 0), ("1/2", 2))
ARMS = [ReuseSchedule.uniform(LAYERS, *arm) for arm in UNIFORM]
ARMS += [ReuseSchedule.uniform(LAYERS, "1/4", 1, lag_phase="all")]
LAGGING = ARMS[2:4]
CASES = [(V32, arm) for arm in (None, *ARMS)] + [(GLM, arm) for arm in ARMS[:3]]
# Scores are of some units. Sums in another order swap keys that score the same to rounding, and
# what a swap changes grows from layer to layer: the first layers are held row by row, all by share.
TIED, FIRST, RARE = 2e-3, 8, 0.05


CACHED_V32 = "cached"
CACHED = {"enable_prefix_caching": True, "block_size": 64}


def prompts():
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(3, VOCABULARY, (n,), generator=generator).tolist() for n in LENGTHS]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Directory of the model by architecture."""
    folder = tmp_path_factory.mktemp("small")
    return {V32: small_model.save(folder / "v32"), GLM: small_model.save_as_glm(folder / "glm")}


@pytest.fixture(scope="module")
def served(checkpoints, tmp_path_factory):
    """What vLLM answered, selected and read, by architecture and schedule."""
    pytest.importorskip("vllm", reason="vLLM is not installed here: make engines && make test-vllm")
    arms = [
        {"model": str(checkpoints[kind]), "schedule": None if arm is None else str(arm)}
        for kind, arm in CASES
    ]
    arms += [arms[CASES.index((V32, arm))] | {"options": CACHED} for arm in LAGGING]
    seen = small_model.ask(tmp_path_factory.mktemp("seen"), prompts(), CHUNK, arms)
    return dict(zip([*CASES, *((CACHED_V32, arm) for arm in LAGGING)], seen, strict=True))


@pytest.fixture(scope="module")
def references(checkpoints):
    """The same checkpoints in transformers, float32."""
    import transformers as tf

    return {
        kind: getattr(tf, kind).from_pretrained(folder, dtype=torch.float32).eval()
        for kind, folder in checkpoints.items()
    }


def computed(model, schedule):
    """What transformers answers, and each text's index scores [tokens, tokens] by full layer."""
    answers, scores = [], []
    for ids in prompts():
        kept = {}

        def observe(ordinal, call, selection, kept=kept):
            if selection is not None and ordinal not in kept:  # the prompt, not what decodes
                indexer = model.model.layers[ordinal].self_attn.indexer
                kept[ordinal] = index_scores(index_features(model, indexer, call))[0]

        tokens, cache, step = [], None, torch.tensor([ids])
        with torch.no_grad(), apply_schedule(model, schedule, observe=observe):
            for _ in range(small_model.TOKENS):
                out = model(step, past_key_values=cache, use_cache=True, logits_to_keep=1)
                cache = out.past_key_values
                tokens.append(int(out.logits[0, -1].argmax()))
                step = torch.tensor([[tokens[-1]]])
        answers.append(tokens)
        scores.append(kept)
    return answers, scores


def pieces(forwards):
    """Per forward the texts in it: (text, how much was read before, rows).

    Requests come in their order, a piece each; a piece ends where the text or the batch does.
    """
    whole = [n + small_model.TOKENS - 1 for n in LENGTHS]  # the last token is not read
    read = [0 for _ in whole]
    for forward in forwards:
        size, at, batch = len(forward["read"][0]), 0, []
        for text, total in enumerate(whole):
            if read[text] < total and at < size:
                left = 1 if read[text] >= LENGTHS[text] else LENGTHS[text] - read[text]
                batch.append((text, read[text], slice(at, min(at + left, size))))
                at = batch[-1][2].stop
                read[text] += at - batch[-1][2].start
        assert at == size
        yield batch


def by_text(forwards, layer):
    """Selections of vLLM's batches [tokens, top-k], put together by text."""
    parts = [[] for _ in LENGTHS]
    for forward, batch in zip(forwards, pieces(forwards), strict=True):
        for text, _, rows in batch:
            parts[text].append(forward["selected"][layer][rows])
    return [torch.cat(part) for part in parts]


def shortfall(scores, selection):
    """How far the worst selected key scores below the last of the best, by token."""
    chosen = selection[: len(scores)].long()
    seen = torch.arange(1, len(scores) + 1)
    assert torch.equal((chosen >= 0).sum(-1), seen.clamp(max=TOPK))
    assert all(len(set(row) - {-1}) == min(n, TOPK) for n, row in enumerate(chosen.tolist(), 1))
    worst = scores.gather(1, chosen.clamp(min=0)).masked_fill(chosen < 0, math.inf).amin(-1)
    last = scores.topk(TOPK, dim=-1).values.masked_fill(seen.unsqueeze(1) < TOPK, math.inf).amin(-1)
    return (last - worst)[TOPK:]


@pytest.mark.parametrize(
    ("kind", "schedule"), [case for case in CASES if case[1] is not None], ids=str
)
def test_answers_and_selections_are_those_of_transformers(served, references, kind, schedule):
    answers, scores = computed(references[kind], schedule)
    seen = served[kind, schedule]
    assert seen["answers"] == answers
    forwards = seen["forwards"]
    assert any(0 < f["decode"] < len(f["read"][0]) for f in forwards)  # decode beside prefill
    off = {
        layer: torch.cat(
            [
                shortfall(ours[layer], theirs) > TIED
                for ours, theirs in zip(scores, by_text(forwards, layer), strict=True)
            ]
        )
        for layer in schedule.full_layers
    }
    assert not any(rows.any() for layer, rows in off.items() if layer <= FIRST)
    assert torch.cat(list(off.values())).float().mean() < RARE
    alone = 0
    for forward, batch in zip(forwards, pieces(forwards), strict=True):
        check_reads(schedule, forward, batch)
        alone += any(before == CHUNK and rows.stop - rows.start == 1 for _, before, rows in batch)
    assert alone == 1  # the last token of the first prompt


def check_reads(schedule, forward, batch):
    """Shared layers select nothing; every layer reads its sources' rows of the same forward."""
    chosen, read = forward["selected"], forward["read"]
    assert set(chosen) == set(schedule.full_layers)
    assert len(read) == LAYERS
    answers = [before >= LENGTHS[text] for text, before, rows in batch for _ in read[0][rows]]
    decodes = torch.tensor(answers).unsqueeze(-1)
    for layer, (decode, prefill) in enumerate(
        zip(schedule.sources("decode"), schedule.sources("prefill"), strict=True)
    ):
        assert torch.equal(read[layer], torch.where(decodes, chosen[decode], chosen[prefill]))


def test_without_a_schedule_the_plugin_changes_nothing(served):
    plain, full = served[V32, None], served[V32, ARMS[0]]
    assert full["answers"] == plain["answers"]
    for one, two in zip(full["forwards"], plain["forwards"], strict=True):
        assert all(torch.equal(one["selected"][k], two["selected"][k]) for k in range(LAYERS))


def test_as_a_glm_the_model_is_the_same_function(served):
    """So that the trained model's answers say something about GLM-5's path, too."""
    for arm in ARMS[:3]:
        assert served[GLM, arm]["answers"] == served[V32, arm]["answers"]


@pytest.mark.parametrize("schedule", LAGGING, ids=str)
def test_what_a_prefix_cache_holds_changes_no_answer(served, schedule):
    """Every text twice, the second time out of the cache: the first has one token left of 257."""
    seen = served[CACHED_V32, schedule]
    assert seen["answers"] == served[V32, schedule]["answers"] * 2
    assert seen["cached"] == sum((n - 1) // 64 * 64 for n in LENGTHS)
