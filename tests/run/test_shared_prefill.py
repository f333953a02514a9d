"""Arms that differ in decode only read a prompt once, and answer as if each had read it alone."""

from __future__ import annotations

import json

import pytest
import torch

from evalkit.config.arm import ArmConfig
from evalkit.core.types import Prompt, Sample
from evalkit.dsa import ReuseSchedule, apply_schedule
from evalkit.dsa.families.sites import indexer_sites
from evalkit.engines.base import Ask
from evalkit.engines.hf.greedy_decoder import GreedyDecoder
from evalkit.run.shared_prefill import prefill_groups
from evalkit.run.store import RunStore
from tests.command import evalkit
from tests.dsa.tiny import CLASSES, build, tokens
from tests.engines.test_hf import loaded, prompts, renderer  # noqa: F401  (fixtures)

FAMILIES = sorted(f for f, (_, model) in CLASSES.items() if model.endswith("ForCausalLM"))


def arms_of(**schedules):
    return [ArmConfig(name=name) for name in schedules], schedules


def names(groups):
    return [[arm.name for arm in group] for group in groups]


def test_groups():
    full, half = ReuseSchedule.uniform(8), ReuseSchedule.uniform(8, "1/2")
    arms, schedules = arms_of(
        base=full,
        again=full,
        half=half,
        lag1=ReuseSchedule.uniform(8, 1, 1),
        half1=ReuseSchedule.uniform(8, "1/2", 1),
        everywhere=ReuseSchedule.uniform(8, 1, 1, lag_phase="all"),
        lag2=ReuseSchedule.uniform(8, 1, 2),
        lag1_again=ReuseSchedule.uniform(8, 1, 1),
    )
    assert names(prefill_groups(arms, schedules, "again")) == [
        ["base", "lag1", "lag2"],
        ["again"],
        ["half", "half1"],
        ["everywhere"],
        ["lag1_again"],
    ]
    # a repetition that comes first keeps to itself, and one that nobody declared does as well
    assert names(prefill_groups([arms[1], arms[0], arms[3]], schedules, "again")) == [
        ["again"],
        ["base", "lag1"],
    ]
    assert names(prefill_groups(arms[:2], schedules)) == [["base"], ["again"]]
    other = arms[3].model_copy(update={"indexer": "/an/indexer"})
    assert len(prefill_groups([arms[0], other], schedules)) == 2
    nothing = dict.fromkeys(schedules)
    assert len(prefill_groups(arms[:2], nothing)) == 2


class Numbers:
    """A tokenizer whose text is the ids."""

    pad_token_id = eos_token_id = 0

    def decode(self, ids, **_):
        return " ".join(map(str, ids))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_decodes_from_a_copy_as_from_its_own(family):
    model = build(family)
    lengths = (40, 40) if family == "deepseek_v4" else (40, 23)
    asked = [
        Prompt(
            Sample(f"s/{i}", "s", "q", ("x",), "none", 6),
            tuple(tokens(1, n, i)[0].tolist()),
            "q",
            "h",
            6,
        )
        for i, n in enumerate(lengths)
    ]
    decoder = GreedyDecoder(model, Numbers(), prefill_chunk=17)
    decoder.stop_ids = frozenset()
    ids = indexer_sites(model).layout.layer_ids
    schedules = [ReuseSchedule.uniform(ids, "1/2" if len(ids) > 3 else 1, k) for k in (0, 1, 2)]

    def under(schedule, act):
        with apply_schedule(model, schedule, sparse=True) as applied:
            return act(applied)

    alone = [under(s, lambda a: decoder.answer(decoder.prefill(asked, a), a)) for s in schedules]
    shared = under(schedules[0], lambda a: decoder.prefill(asked, a))
    together = [under(s, lambda a: decoder.answer(shared.copy(), a)) for s in schedules]
    assert together == alone
    assert all(answer.tokens == 6 for answers in alone for answer in answers)
    kept = under(schedules[0], lambda a: decoder.prefill(asked, a))
    assert torch.equal(shared.logits, kept.logits)


def test_arms_together_answer_as_alone(checkpoint, prompts):  # noqa: F811
    schedules = {f"k={k}": ReuseSchedule.uniform(8, 1, k) for k in range(3)}
    done = {"k=0": (), "k=1": {p.sample.id for p in prompts[:3]}, "k=2": ()}
    asks = [Ask(ArmConfig(name=n), s, done[n]) for n, s in schedules.items()]
    engine, read = loaded(checkpoint, max_batch=2, prefill_chunk=64), []
    prefill = engine.decoder.prefill
    engine.decoder.prefill = lambda batch, applied: (
        read.append(len(batch)) or prefill(batch, applied)
    )
    together = {name: {} for name in schedules}
    for name, batch in engine.answer_together(asks, prompts):
        together[name] |= {c.sample_id: (c.text, c.finish_reason) for c in batch}
    assert sum(read) == len(prompts)
    evidence = {name: engine.engagement_of(name) for name in schedules}
    for ask in asks:
        alone = [
            c for batch in engine.answer(ask.arm, ask.schedule, prompts, ask.done) for c in batch
        ]
        assert together[ask.arm.name] == {c.sample_id: (c.text, c.finish_reason) for c in alone}
        if not ask.done:  # evidence counts what the arm needed, prompts included
            assert evidence[ask.arm.name] == engine.engagement()
        assert evidence[ask.arm.name]["verdict"] == "engaged"
    assert len(together["k=1"]) == len(prompts) - 3


RECIPE = """
model = "{model}"
[engine]
kind = "hf"
dtype = "float32"
max_batch = 3
[[tasks]]
kind = "needle"
lengths = [160]
depths = [50]
repeats = 2
haystacks = 2
value_digits = 4
key_adjectives = ["brave", "calm", "eager"]
key_nouns = ["apple", "arrow", "badge"]
max_new_tokens = 4
[[arms]]
name = "baseline"
[[arms]]
name = "again"
[[arms]]
name = "k=1"
lag = 1
[[arms]]
name = "1/2"
retention = "1/2"
[[arms]]
name = "1/2, k=1"
retention = "1/2"
lag = 1
[compare]
repeat_of_baseline = "again"
"""


def records(out):
    """Everything that a run keeps, but for times."""
    store = RunStore(out)
    kept = {}
    for path in sorted(store.path.glob("arms/*/samples.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        kept[path.parent.name] = [{k: v for k, v in r.items() if k != "seconds"} for r in rows]
    return kept, [arm.stored["engagement"] for arm in store.read_run().arms]


def test_a_run_keeps_the_same_records(checkpoint, tmp_path, monkeypatch, capsys):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(model=checkpoint), encoding="utf-8")
    assert evalkit("run", recipe, "--out", tmp_path / "together") == 0
    assert "5 arms, 3 prefills" in capsys.readouterr().out
    groups = "evalkit.run.runner.prefill_groups"
    monkeypatch.setattr(groups, lambda arms, *_: [[arm] for arm in arms])
    assert evalkit("run", recipe, "--out", tmp_path / "alone") == 0
    together, alone = records(tmp_path / "together"), records(tmp_path / "alone")
    assert together == alone
    assert len(together[0]) == 5
