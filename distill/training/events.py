"""What happens while indexers train, as typed events: for the log, and for the progress display."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

from distill.init.candidates import CandidateChoice
from distill.validation.evaluator import HeldOutMetrics

Means = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Resumed:
    """An interrupted run goes on.

    Attributes:
        step: steps done; None layer by layer.
        layers: ids of the layers done; None where all train at once.
        layers_read: decoder layers read so far.
    """

    step: int | None = None
    layers: tuple[int, ...] | None = None
    layers_read: int = 0


@dataclass(frozen=True, slots=True)
class Warned:
    """Something the user should know at the end."""

    text: str


@dataclass(frozen=True, slots=True)
class LayerRead:
    """One more decoder layer was read from the checkpoint.

    Attributes:
        count: how many so far, the same one again included.
    """

    count: int


@dataclass(frozen=True, slots=True)
class StreamsAdvanced:
    """Hidden states went through a layer.

    Attributes:
        original: layer that the original's stand before.
        arm: layer that the arm's stand before.
        evaluator: layer that the original and the undistilled arm stand before in the pass that
            final logits are compared with.
    """

    original: int
    arm: int
    evaluator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An event that is a row of metrics.jsonl.

    Attributes:
        kind: of the row.
        seconds: of work since the run began, interruptions left out.
    """

    kind: ClassVar[str]
    seconds: float

    def values(self) -> dict[str, object]:
        """The row without kind and seconds."""
        raise NotImplementedError

    def row(self) -> dict[str, object]:
        """The whole row."""
        return {"kind": self.kind, **self.values(), "seconds": round(self.seconds, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateChosen(Measured):
    """The closed form kept a candidate of a layer."""

    kind: ClassVar[str] = "choice"
    choice: CandidateChoice

    def values(self) -> dict[str, object]:
        """See `Measured`."""
        return asdict(self.choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLayerChosen(Measured):
    """The first full layer was kept as it had trained, or as it came.

    Attributes:
        layer: its id.
        step: steps done.
        chosen: which.
        scores: the held-out criterion of both; lower is better.
    """

    kind: ClassVar[str] = "first_layer"
    layer: int
    step: int
    chosen: str
    scores: Mapping[str, float]

    def values(self) -> dict[str, object]:
        """See `Measured`."""
        place = {"layer": self.layer, "step": self.step}
        return {**place, "chosen": self.chosen, "scores": dict(self.scores)}


@dataclass(frozen=True, slots=True)
class LayerStep:
    """What one step did to one indexer: its losses (None: not trained by), its gradient's norm."""

    losses: Means
    grad_norm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone(Measured):
    """One optimiser step.

    Attributes:
        step: steps done.
        lr: learning rate of the step.
        layers: by layer id.
    """

    kind: ClassVar[str] = "train"
    step: int
    lr: float
    layers: Mapping[int, LayerStep]

    @property
    def losses(self) -> dict[str, float]:
        """Means over the layers, of the losses that train."""
        values: dict[str, list[float]] = {}
        for layer in self.layers.values():
            for name, loss in layer.losses.items():
                if loss is not None:
                    values.setdefault(name, []).append(loss)
        return {name: sum(each) / len(self.layers) for name, each in values.items()}

    def values(self) -> dict[str, object]:
        """See `Measured`."""
        layers = {
            str(layer): {**one.losses, "grad_norm": one.grad_norm}
            for layer, one in self.layers.items()
        }
        return {"step": self.step, "lr": self.lr, **self.losses, "layers": layers}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated(Measured):
    """An evaluation on the held-out text.

    Attributes:
        step: steps done.
        what: the arm before anything changed, or with the students in it.
        metrics: what was measured.
    """

    kind: ClassVar[str] = "evaluation"
    step: int
    what: Literal["undistilled", "students"]
    metrics: HeldOutMetrics

    def values(self) -> dict[str, object]:
        """See `Measured`."""
        summary, record = self.metrics.summary(), self.metrics.record()
        return {"step": self.step, "what": self.what, **summary, **record}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStepDone(Measured):
    """One optimiser step of a layer that trains alone."""

    kind: ClassVar[str] = "train"
    layer: int
    step: int
    losses: Means
    grad_norm: float

    def values(self) -> dict[str, object]:
        """See `Measured`."""
        place = {"layer": self.layer, "step": self.step}
        return {**place, **self.losses, "grad_norm": self.grad_norm}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEvaluated(Measured):
    """An evaluation of a layer that trains alone, without final logits.

    Attributes:
        layer: its id.
        step: steps done.
        metrics: losses and recall.
    """

    kind: ClassVar[str] = "evaluation"
    layer: int
    step: int
    metrics: Means

    def values(self) -> dict[str, object]:
        """See `Measured`."""
        return {"layer": self.layer, "step": self.step, **self.metrics}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsCompared(LayerEvaluated):
    """The same, once the final logits of a checkpoint are known: with logit KL."""

    kind: ClassVar[str] = "logit_kl"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDone(Measured):
    """A layer that trains alone is finished.

    Attributes:
        layer: its id.
        before: metrics of its own indexer.
        after: metrics of the one that was kept.
    """

    kind: ClassVar[str] = "layer"
    layer: int
    before: Means
    after: Means

    def values(self) -> dict[str, object]:
        """See `Measured`."""
        return {"layer": self.layer, "before": dict(self.before), "after": dict(self.after)}


Event = Resumed | Warned | LayerRead | StreamsAdvanced | Measured
OnEvent = Callable[[Event], None]
