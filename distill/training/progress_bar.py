"""What the user sees: a bar with the time left, looks at held-out text, a closing table."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.table import Table

from distill.setup import Session
from distill.training.artifacts import shown_probes
from distill.training.state import Progress as Remembered
from evalkit.core.console import open_progress


class Screen:
    """Shows the events of a trainer."""

    def __init__(self, session: Session, console: Console) -> None:
        self._session, self._console = session, console
        self._bar = open_progress(console)
        self._starts = self._bar.add_task(
            session.config.student.start.replace("_", " "), total=len(session.students.layers)
        )
        self._steps = self._bar.add_task("train", total=session.config.train.steps)

    def __enter__(self) -> Self:
        layers = ", ".join(
            str(self._session.where.layout.layer_ids[i]) for i in self._session.students.layers
        )
        self._console.print(f"arm {self._session.schedule}: the indexers of layers {layers} train")
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def on_event(self, kind: str, row: dict[str, Any]) -> None:
        """One event of the trainer."""
        if kind == "choice":
            layer = self._session.where.layout.layer_ids[row["layer"]]
            scores = ", ".join(f"{k} {v:.4g}" for k, v in row["scores"].items())
            self._say(f"layer {layer} from {row['chosen']} (logit KL: {scores})")
            self._bar.advance(self._starts)
        elif kind == "train":
            self._bar.update(self._steps, completed=row["step"], description=f"KL {row['kl']:.3f}")
        elif kind == "resume":
            self._say(f"resumed at step {row['step']}")
            self._bar.update(self._steps, completed=row["step"])
        elif kind == "probe":
            what = row["what"] if row["what"] == "undistilled" else f"step {row['step']}"
            self._say(
                f"{what}: logit KL {row['logit_kl']:.4f}, recall {row['recall']:.3f},"
                f" attention mass {row['mass_recall']:.3f} ({row['seconds']:.0f} s)"
            )

    def summary(self, progress: Remembered) -> None:
        """Probes before and after."""
        table = Table(title="held-out text", title_justify="left")
        table.add_column("measure")
        for name in ("undistilled", f"distilled (step {progress.best_step})"):
            table.add_column(name, justify="right")
        for key, text in shown_probes(self._session.config.choice.tail).items():
            values = (progress.before.get(key), progress.after.get(key))
            table.add_row(text, *(f"{v:.4f}" if isinstance(v, float) else "–" for v in values))
        self._console.print(table)
        for warning in progress.warnings:
            self._console.print(warning, style="yellow")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False)
