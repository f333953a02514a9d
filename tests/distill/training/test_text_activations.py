"""Off-policy, a text that is drawn again does not go through the model again."""

from __future__ import annotations

import pytest
import torch

from distill.models.sizes import sizes_of
from distill.objective import text_activations
from distill.objective.teachers import AttentionTeacher
from distill.objective.text_activations import KeptOriginal, Original, kept_bytes
from tests.distill.training.test_trainer import recipe, tensors, train

TEXTS = 3
ARMS = {
    "indexers": {"student": {"start": "own"}},
    "attention": {"teacher": {"kind": "attention"}, "student": {"start": "own"}},
    "a lag": {"arm": {"retention": "1/2", "lag": 1}, "student": {"start": "own"}},
    "a shortcut": {
        "arm": {"retention": "1/4", "selection": {"kind": "misa", "heads": 1}},
        "student": {"start": "own"},
    },
}


def off_policy(checkpoint, sections, **changes):
    steps = {"steps": 4, "batch": 2, "evaluate_every": 4, "save_every": 4, "states": "off_policy"}
    steps |= changes
    return recipe(checkpoint, **sections, data={"train": TEXTS}, train=steps)


def run(config, out, data):
    """The trainer, and how often the model had run after each step."""
    ran = []

    def watch(event):
        if event.kind == "train":
            ran.append(len(forwards))

    forwards = []
    read = Original.read

    def counted(*args):
        forwards.append(1)
        return read(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Original, "read", counted)
        trainer = train(config, out, data, watch)
    return trainer, ran


@pytest.mark.parametrize("name", ARMS)
def test_the_same_weights_from_one_forward_per_text(checkpoint, tmp_path, monkeypatch, name):
    config = off_policy(checkpoint, ARMS[name])
    trainer, once = run(config, tmp_path / "kept", tmp_path / "data")
    assert once[-1] == TEXTS  # of eight draws
    monkeypatch.setattr(text_activations, "LIMIT", 0)
    other, each = run(config, tmp_path / "plain", tmp_path / "data")
    assert each[-1] == 4  # one a step: two draws of each in a micro-batch
    assert isinstance(trainer._original, KeptOriginal)
    assert not isinstance(other._original, KeptOriginal)
    came, kept, plain = trainer._came, tensors(tmp_path / "kept"), tensors(tmp_path / "plain")
    for tensor in kept:
        torch.testing.assert_close(kept[tensor], plain[tensor], rtol=1e-4, atol=1e-6)
    assert any(not torch.equal(kept[t], came[t]) for t in kept)


def test_where_every_text_comes_once_nothing_is_kept(checkpoint, tmp_path):
    config = off_policy(checkpoint, ARMS["indexers"], steps=1)
    trainer, _ = run(config, tmp_path / "once", tmp_path / "data")
    assert not isinstance(trainer._original, KeptOriginal)
    config = off_policy(checkpoint, ARMS["indexers"], states="on_policy")
    trainer, _ = run(config, tmp_path / "on", tmp_path / "data")
    assert not isinstance(trainer._original, KeptOriginal)


@pytest.mark.parametrize("name", ARMS)
def test_what_is_kept_is_what_the_plan_counts(checkpoint, tmp_path, name):
    config = off_policy(checkpoint, ARMS[name])
    trainer, _ = run(config, tmp_path / "kept", tmp_path / "data")
    setup = trainer.setup
    counted = kept_bytes(sizes_of(setup.model)[0], config, setup.plan.assignment, 4)
    held = 0
    for text in trainer._original.texts.values():
        parts = [part for call in text.calls.values() for part in (call.hidden, call.q_resid)]
        for teacher in text.teachers.values():
            if isinstance(teacher, AttentionTeacher):
                parts.append(teacher.log_share)
            else:
                parts += [teacher.features.query, teacher.features.key, teacher.features.weight]
        held += sum(part.nbytes for part in parts if part is not None)
    assert 0.6 * counted < held <= counted  # texts are shorter than `data.length`, and so are rows
