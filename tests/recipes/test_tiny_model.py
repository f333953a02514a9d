"""The shipped model: exact under caching, no ties at the top-k border, stops by itself."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from distill.data.tiny_corpus import tokenizer, wording
from evalkit.dsa import ReuseSchedule, apply_schedule
from recipes.tiny import curve, exams, init, train
from recipes.tiny.architecture import MATCH_LAYERS
from recipes.tiny.forward import causal, forward
from tests.paths import TINY_MODEL

LENGTH = 256


@pytest.fixture(scope="module")
def model():
    return curve.load(TINY_MODEL)


@pytest.fixture(scope="module")
def papers():
    return {name: exams.make_paper(name, 4, LENGTH, seed=11) for name in exams.EXAMS}


def test_files_are_small_and_plain(model):
    assert (TINY_MODEL / "model.safetensors").stat().st_size <= 10e6
    assert model.config.model_type == "deepseek_v32"
    assert set(model.config.mlp_layer_types) == {"dense"}
    assert AutoModelForCausalLM.from_pretrained(TINY_MODEL).dtype == torch.float16
    assert model.config.index_topk * 8 <= LENGTH


def test_own_forward_is_the_library_forward(model, papers):
    ids = papers["multikey4"].ids
    with torch.no_grad():
        ours = model.lm_head(forward(model, ids))
        assert torch.equal(ours, model(input_ids=ids).logits)


@pytest.mark.parametrize("arm", [("1/2", 0), ("1/8", 0), ("1", 1), ("1/4", 1)])
def test_own_schedules_are_those_of_the_product(model, papers, arm):
    paper = papers["needle4"]
    schedule = ReuseSchedule.uniform(model.config.num_hidden_layers, *arm)
    rows = torch.arange(LENGTH) >= paper.prompt[:, None]
    with torch.no_grad(), apply_schedule(model, schedule) as applied:
        applied.decode_rows = rows
        theirs = model(input_ids=paper.ids).logits
    with torch.no_grad():
        ours = forward(
            model,
            paper.ids,
            schedule=schedule,
            prompt=paper.prompt,
        )
    assert torch.equal(model.lm_head(ours), theirs)


@pytest.mark.parametrize("name", ["single", "multikey_full", "needle4"])
def test_no_ties_at_the_topk_border(model, papers, name):
    topk, visible, ties = model.config.index_topk, causal(LENGTH), {}

    def count(layer):
        scores = layer.scores.masked_fill(~visible, float("-inf"))
        top = scores.topk(topk + 1, -1).values
        rows = torch.arange(LENGTH) >= topk
        ties[layer.number] = int((top[..., topk - 1] == top[..., topk])[:, rows].sum())

    with torch.no_grad():
        real = papers[name].ids[:, : int(papers[name].prompt.min())]
        pad = real.new_full((len(real), LENGTH - real.shape[1]), wording_token())
        forward(model, torch.cat([real, pad], 1), tap=count)
    assert set(ties.values()) == {0}


def wording_token():
    return tokenizer.vocabulary()[" the"]


@pytest.mark.parametrize("arm", [("1", 0), ("1/4", 0), ("1/8", 0)])
def test_cached_chunked_and_whole_agree(model, papers, arm):
    paper = papers["needle4"]
    schedule = ReuseSchedule.uniform(model.config.num_hidden_layers, *arm)
    ids = paper.ids[:1, : int(paper.prompt[0]) + 6]
    with torch.no_grad(), apply_schedule(model, schedule):
        whole = model(input_ids=ids).logits
        cache, parts = DynamicCache(config=model.config), []
        cuts = [*range(0, ids.shape[1] - 6, 64), *range(ids.shape[1] - 6, ids.shape[1])]
        for start, end in zip(cuts, [*cuts[1:], ids.shape[1]], strict=True):
            parts.append(model(input_ids=ids[:, start:end], past_key_values=cache).logits)
    chunked = torch.cat(parts, 1)
    assert torch.equal(whole.argmax(-1), chunked.argmax(-1))
    torch.testing.assert_close(chunked, whole, atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", ["single", "needle4", "multikey_full"])
def test_generation_says_the_value_and_stops(model, papers, name):
    paper, speaks = papers[name], AutoTokenizer.from_pretrained(TINY_MODEL)
    right = 0
    for ids, end, value in zip(paper.ids, paper.prompt, paper.values, strict=True):
        prompt = ids[None, : int(end)]
        out = model.generate(
            input_ids=prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=32,
            do_sample=False,
        )
        said = out[0, int(end) :].tolist()
        assert said[-1] == tokenizer.EOS
        right += speaks.decode(said, skip_special_tokens=True) == f" {value}."
    assert right == len(paper.values)


@pytest.mark.parametrize("arm", [("1", 0), ("1/4", 0), ("1/8", 1)])
def test_sparse_attention_gives_the_same_answers(model, papers, arm):
    schedule = ReuseSchedule.uniform(model.config.num_hidden_layers, *arm)
    for name in ("single", "needle4"):
        ids, end = papers[name].ids[:1], int(papers[name].prompt[0])
        said = []
        for sparse in (False, True):
            with apply_schedule(model, schedule, chunked=sparse, sparse=sparse):
                options = {"max_new_tokens": 12, "do_sample": False}
                said.append(model.generate(input_ids=ids[:, :end], **options).tolist())
        assert said[0] == said[1]


def test_start_is_deterministic_and_keeps_its_pair():
    first, again = init.build_model(5).state_dict(), init.build_model(5).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert 0 not in MATCH_LAYERS
    assert 8 not in MATCH_LAYERS


def test_training_leaves_the_tie_breaking_pair_alone(model, tmp_path):
    phases = (train.Phase(2, ((96, 2, 1.0),), rows=8, sparse=True),)
    trainer = train.Trainer(tmp_path, 5, phases, rank=0, world=1)
    before = {k: v.clone() for k, v in trainer.model.state_dict().items()}
    trainer.run()
    after = trainer.model.state_dict()
    dim = model.config.index_head_dim
    for layer in (0, 9):
        name = f"model.layers.{layer}.self_attn.indexer."
        query = after[name + "wq_b.weight"]
        assert torch.equal(query[-dim:], before[name + "wq_b.weight"][-dim:])
        assert torch.equal(query[-dim:], -query[-2 * dim : -dim])
        weights = after[name + "weights_proj.weight"]
        assert torch.equal(weights[-2:], before[name + "weights_proj.weight"][-2:])
        assert not torch.equal(weights[:-2], before[name + "weights_proj.weight"][:-2])


def test_resumed_training_is_the_same(tmp_path):
    phases = (train.Phase(4, ((96, 1, 1.0),), rows=4, sparse=True),)
    whole = train.Trainer(tmp_path / "a", 6, phases, rank=0, world=1)
    for _ in range(4):
        whole.run_step()
    (tmp_path / "b").mkdir()
    first = train.Trainer(tmp_path / "b", 6, phases, rank=0, world=1)
    for _ in range(2):
        first.run_step()
    first.save()
    second = train.Trainer(tmp_path / "b", 6, phases, rank=0, world=1)
    for _ in range(2):
        second.run_step()
    wanted = whole.model.state_dict()
    assert all(torch.equal(v, wanted[k]) for k, v in second.model.state_dict().items())


def test_wordings_are_loaded():
    assert {"ruler", "access"} <= set(wording.wordings())
