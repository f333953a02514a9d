"""Progress display: bars with the time left, held-out metrics as they come, a closing table."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.table import Table

from distill.setup import DistillSetup
from distill.training.artifacts import shown_metrics
from distill.training.events import (
    CandidateChosen,
    Evaluated,
    Event,
    FirstLayerChosen,
    LayerDone,
    LayerEvaluated,
    LayerRead,
    LayerStepDone,
    LogitsCompared,
    Means,
    Resumed,
    StepDone,
    StreamsAdvanced,
    Warned,
)
from distill.training.state import TrainState
from evalkit.core.console import open_progress

CANDIDATES, STEPS, LAYERS_READ = "closed form", "train", "layers read"


class ProgressDisplay:
    """Shows the events of a run.

    Args:
        setup: what trains.
        console: where to.
        bars: their totals by name, see the constants of this module.
    """

    def __init__(self, setup: DistillSetup, console: Console, bars: Mapping[str, int]) -> None:
        self._setup, self._console = setup, console
        self._bar = open_progress(console)
        self._tasks = {name: self._bar.add_task(name, total=n) for name, n in bars.items()}

    def __enter__(self) -> Self:
        for warning in self._setup.warnings:
            self._warn(warning)
        layers = ", ".join(map(str, self._setup.trained_ids))
        self._say(f"arm {self._setup.schedule}: the indexers of layers {layers} train")
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def on_event(self, event: Event) -> None:
        """Show one event."""
        match event:
            case CandidateChosen(choice=choice):
                scores = ", ".join(f"{k} {v:.4g}" for k, v in choice.scores.items())
                self._say(f"layer {choice.layer} from {choice.chosen} ({choice.measure}: {scores})")
                if CANDIDATES in self._tasks:
                    self._bar.advance(self._tasks[CANDIDATES])
            case FirstLayerChosen():
                scores = ", ".join(f"{k} {v:.4g}" for k, v in event.scores.items())
                self._say(f"layer {event.layer}, the first full one: {event.chosen} ({scores})")
            case StepDone():
                self._update(STEPS, event.step, _losses(event.losses))
            case LayerStepDone():
                place = f"layer {event.layer}, step {event.step}"
                self._update(LAYERS_READ, None, f"{place}: {_losses(event.losses)}")
            case Evaluated():
                self._evaluated(event)
            case LayerEvaluated():
                self._layer_evaluated(event)
            case LayerDone():
                recalls = f"{event.before['recall']:.3f} -> {event.after['recall']:.3f}"
                self._say(f"layer {event.layer}: recall {recalls}")
            case LayerRead():
                self._update(LAYERS_READ, event.count)
            case StreamsAdvanced():
                self._update(LAYERS_READ, None, self._place(event))
            case Resumed():
                self._resumed(event)
            case Warned():
                self._warn(event.text)

    def summary(self, state: TrainState) -> None:
        """Held-out metrics before and after."""
        table = Table(title="held-out text", title_justify="left")
        table.add_column("measure")
        for name in ("undistilled", f"distilled (step {state.best_step})"):
            table.add_column(name, justify="right")
        for key, text in shown_metrics(self._setup.config.choice).items():
            values = (state.before.get(key), state.after.get(key))
            table.add_row(text, *(f"{v:.4f}" if isinstance(v, float) else "–" for v in values))
        self._console.print(table)
        for warning in state.warnings(self._setup.config.choice.checkpoint):
            self._console.print(warning, style="yellow", markup=False)

    def _evaluated(self, event: Evaluated) -> None:
        what = event.what if event.what == "undistilled" else f"step {event.step}"
        metrics, choice = event.metrics.summary(), self._setup.config.choice
        weighed = f" ({metrics['logit_kl_tail']:.4f} as weighted)" if choice.weighs else ""
        self._say(
            f"{what}: logit KL {metrics['logit_kl']:.4f}{weighed}, recall"
            f" {metrics['recall']:.3f}, attention mass {metrics['mass_recall']:.3f}"
            f" ({event.seconds:.0f} s)"
        )

    def _layer_evaluated(self, event: LayerEvaluated) -> None:
        metrics = dict(event.metrics)
        recall, kl = metrics.pop("recall"), metrics.pop("logit_kl", None)
        metrics.pop("logit_kl_tail", None)
        shown = f"logit KL {kl:.4f}" if isinstance(event, LogitsCompared) else _losses(metrics, 4)
        self._say(
            f"layer {event.layer}, step {event.step}: {shown}, recall {recall:.3f}"
            f" ({event.seconds:.0f} s)"
        )

    def _place(self, event: StreamsAdvanced) -> str:
        count = len(self._setup.schedule)
        if not event.original:
            return f"original and undistilled arm before layer {event.evaluator} of {count}"
        return f"original before layer {event.original} of {count}, arm before {event.arm}"

    def _resumed(self, event: Resumed) -> None:
        if event.layers is None:
            self._say(f"resumed at step {event.step}")
            self._update(STEPS, event.step)
        else:
            done = ", ".join(map(str, event.layers)) or "no layer"
            self._say(f"resumed; done: {done}")
            self._update(LAYERS_READ, event.layers_read)

    def _update(self, name: str, completed: int | None, description: str | None = None) -> None:
        if name in self._tasks:
            self._bar.update(self._tasks[name], completed=completed, description=description)

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False)

    def _warn(self, text: str) -> None:
        self._console.print(f"warning: {text}", style="yellow", markup=False)


def _losses(losses: Means, digits: int = 3) -> str:
    """``kl 0.123, listmle 3.210``; what was not measured is left out."""
    return ", ".join(f"{k} {v:.{digits}f}" for k, v in losses.items() if v is not None)
