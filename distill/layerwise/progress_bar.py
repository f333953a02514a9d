"""What the user sees: a bar over the layers to read with the time left, choices, looks."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from distill.cost.layerwise import layerwise
from distill.layerwise.setup import Job
from distill.models.sizes import shape_of
from evalkit.core.console import open_progress


class Screen:
    """Shows the events of a layer-by-layer run.

    Attributes:
        bar: to be entered while the run goes on.
    """

    def __init__(self, job: Job, console: Console) -> None:
        self._console, self._count = console, len(job.layers)
        shape, native = shape_of(job.meta)
        planned = layerwise(shape, native, job.schedule, job.trained, job.config, itemsize=2)
        self.bar = open_progress(console)
        self._task = self.bar.add_task("layers read", total=planned.opened)
        for warning in job.warnings:
            self._say(f"warning: {warning}")
        names = ", ".join(str(job.layers.layout.layer_ids[f]) for f in job.trained)
        self._say(f"arm {job.schedule}: the indexers of layers {names} train")

    def on_event(self, kind: str, row: dict[str, Any]) -> None:
        """One event of the run."""
        if kind == "opened":
            self.bar.update(self._task, completed=row["layers"])
        elif kind == "layer":
            self.bar.update(self._task, description=self._place(row))
        elif kind == "train":
            step = f"layer {row['layer']}, step {row['step']}: KL {row['kl']:.3f}"
            self.bar.update(self._task, description=step)
        elif kind == "choice":
            scores = ", ".join(f"{name} {value:.3f}" for name, value in row["scores"].items())
            self._say(f"layer {row['layer']} from {row['chosen']} (logit KL: {scores})")
        elif kind == "judged":
            self._say(
                f"layer {row['layer']}, step {row['step']}: logit KL {row['logit_kl']:.4f},"
                f" recall {row['recall']:.3f}"
            )
        elif kind == "look":
            self._say(
                f"layer {row['layer']}, step {row['step']}: KL {row['kl']:.4f}, recall"
                f" {row['recall']:.3f} ({row['seconds']:.0f} s)"
            )
        elif kind == "probe":
            before, after = row["before"]["recall"], row["after"]["recall"]
            self._say(f"layer {row['layer']}: recall {before:.3f} -> {after:.3f}")
        elif kind == "warning":
            self._say(f"warning: {row['text']}")
        elif kind == "resume":
            self._say(f"resumed; done: {row['done'] or 'no layer'}")
            self.bar.update(self._task, completed=row["layers"])

    def _place(self, row: dict[str, Any]) -> str:
        if not row["original"]:
            return f"original and undistilled arm before layer {row['judge']} of {self._count}"
        return f"original before layer {row['original']} of {self._count}, arm before {row['arm']}"

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False)
