"""One progress display for both ways to train: every event as the user sees it."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from distill.config.train import ChoiceConfig
from distill.init.candidates import CandidateChoice
from distill.training import events
from distill.training.progress_bar import CANDIDATES, LAYERS_READ, STEPS, ProgressDisplay
from distill.training.state import UNDISTILLED_IS_NEARER, TrainState

METRICS = {"kl": 0.51234, "recall": 0.6}
PLACE = {"seconds": 4.4, "layer": 8, "step": 2}


@pytest.fixture
def shown():
    """(display, what it printed)."""
    out = io.StringIO()
    setup = SimpleNamespace(
        warnings=("it is mild",),
        trained_ids=(8, 16),
        schedule="F" + "S" * 7,
        config=SimpleNamespace(choice=ChoiceConfig(positions="all")),
    )
    bars = {CANDIDATES: 2, STEPS: 4, LAYERS_READ: 9}
    with ProgressDisplay(setup, Console(file=out, width=200), bars) as display:
        yield display, lambda: out.getvalue().splitlines()


def task(display, name):
    return next(task for task in display._bar.tasks if task.id == display._tasks[name])


def test_it_begins_with_warnings_and_the_arm(shown):
    assert shown[1]() == ["warning: it is mild", "arm FSSSSSSS: the indexers of layers 8, 16 train"]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            events.CandidateChosen(seconds=1.0, choice=CandidateChoice(8, "12", {"own": 0.123456})),
            "layer 8 from 12 (logit KL: own 0.1235)",
        ),
        (
            events.LayerEvaluated(**PLACE, metrics=METRICS),
            "layer 8, step 2: kl 0.5123, recall 0.600 (4 s)",
        ),
        (
            events.LogitsCompared(
                **PLACE, metrics=METRICS | {"logit_kl": 0.25, "logit_kl_tail": 1.0}
            ),
            "layer 8, step 2: logit KL 0.2500, recall 0.600 (4 s)",
        ),
        (
            events.LayerDone(seconds=1.0, layer=8, before={"recall": 0.5}, after=METRICS),
            "layer 8: recall 0.500 -> 0.600",
        ),
        (events.Resumed(step=3), "resumed at step 3"),
        (events.Resumed(layers=(8,), layers_read=5), "resumed; done: 8"),
        (events.Resumed(layers=(), layers_read=5), "resumed; done: no layer"),
        (events.Warned("take care"), "warning: take care"),
    ],
)
def test_an_event_is_a_line(shown, event, line):
    display, printed = shown
    display.on_event(event)
    assert printed()[2:] == [line]


def test_bars_follow_the_steps_and_the_layers_read(shown):
    display, printed = shown
    layers = {8: events.LayerStep({"kl": 0.5, "listmle": None}, 1.0)}
    display.on_event(events.StepDone(seconds=1.0, step=3, lr=0.1, layers=layers))
    assert (task(display, STEPS).completed, task(display, STEPS).description) == (3, "kl 0.500")
    display.on_event(events.LayerRead(7))
    assert task(display, LAYERS_READ).completed == 7
    display.on_event(events.StreamsAdvanced(original=0, arm=0, evaluator=2))
    assert task(display, LAYERS_READ).description == (
        "original and undistilled arm before layer 2 of 8"
    )
    display.on_event(events.StreamsAdvanced(original=5, arm=3, evaluator=8))
    assert task(display, LAYERS_READ).description == "original before layer 5 of 8, arm before 3"
    display.on_event(events.LayerStepDone(**PLACE, losses={"kl": 0.25}, grad_norm=1.0))
    assert task(display, LAYERS_READ).description == "layer 8, step 2: kl 0.250"
    choice = CandidateChoice(8, "12", {})
    display.on_event(events.CandidateChosen(seconds=1.0, choice=choice))
    assert task(display, CANDIDATES).completed == 1
    assert len(printed()) == 3


def test_the_summary_says_when_nothing_was_won(shown):
    display, printed = shown
    before, after = {"logit_kl": 0.25, "recall": 0.5}, {"logit_kl": 0.5, "recall": 0.75}
    display.summary(TrainState(best_step=4, before=before, after=after))
    text = "\n".join(printed())
    assert "distilled (step 4)" in text
    assert "positions weighted" not in text
    assert UNDISTILLED_IS_NEARER in text
