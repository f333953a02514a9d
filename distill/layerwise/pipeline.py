"""Layer by layer from the first full layer to the last, and what it leaves behind.

state.json      how far the streams are, which layers are done; read by the same command
students/<f>    trained tensors of a finished layer
shelf/          hidden states and teachers; removed at the end
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from distill.errors import DistillError
from distill.layerwise.layer_trainer import LayerTrainer, Trained
from distill.layerwise.logit_evaluator import Judge
from distill.layerwise.setup import Job
from distill.layerwise.streams import Streams
from distill.layerwise.tensor_store import Shelf
from distill.models.load import base_facts
from distill.models.student import Students
from distill.setup import Session
from distill.training.artifacts import save
from distill.training.state import Progress
from evalkit.core.files import write_atomic
from evalkit.dsa.families.sites import indexer_sites

STATE, STUDENTS, METRICS = "state.json", "students", "metrics.jsonl"
_HELD = torch.device("cpu")


class LayerwiseRun:
    """Trains all full layers of a job in a directory.

    Attributes:
        done: what became of each full layer, by ordinal.
    """

    def __init__(
        self, job: Job, out: Path, on_event: Callable[[str, dict[str, Any]], None] = lambda *_: None
    ) -> None:
        self.done: dict[int, Trained] = {}
        self._job, self._out, self._on_event = job, out, on_event
        self._students = Shelf(out / STUDENTS)
        self._seconds, self._began, self._opened = 0.0, time.perf_counter(), 0
        job.layers.on_open = self._count
        self._base = base_facts(job.name, job.meta)

    def run(self) -> Path:
        """Start or resume; returns the indexer directory.

        Raises:
            DistillError: the directory belongs to another run; the loss is no number.
        """
        job = self._job
        at = self._resume()
        if not at:
            (self._out / METRICS).unlink(missing_ok=True)
            job.shelf.drop("")
        streams = Streams(job, at.get("original_at", 0), at.get("arm_at", 0))
        judge = Judge(job, streams.arm, at.get("judge_at", 0))
        if not at:
            streams.begin()
            self._save(streams, judge)

        def on_layer() -> None:
            self._save(streams, judge)
            places = {"original": streams.original_at, "arm": streams.arm_at, "judge": judge.at}
            self._on_event("layer", places)

        judge.begin(on_layer)
        for layer, found in self.done.items():
            streams.trained(layer, found.state)
        for layer in job.trained:
            if layer in self.done:
                continue
            streams.original_to(max(job.teachers(layer) | {layer}), on_layer)
            streams.arm_to(layer, on_layer)
            streams.keep_inputs(layer)
            self._train(layer, judge)
            streams.trained(layer, self.done[layer].state)
            self._save(streams, judge)
            self._free(layer)
        directory = self._write()
        job.shelf.drop("")
        return directory

    def _train(self, layer: int, judge: Judge) -> None:
        opened = self._job.layers.open(layer)
        indexer = opened.indexer
        del opened  # the indexer alone stays
        trainer = LayerTrainer(self._job, layer, indexer, judge, self._log)
        found = trainer.run()
        self._students.put(str(layer), **{f"state.{k}": v for k, v in found.state.items()},
                           **{f"last.{k}": v for k, v in found.last.items()})  # fmt: skip
        self.done[layer] = found
        self._log("probe", {"layer": layer, "before": found.before, "after": found.after})

    def _free(self, layer: int) -> None:
        """Drop what only this layer needed."""
        self._job.shelf.drop(f"input/{layer}")
        waiting = [f for f in self._job.trained if f not in self.done]
        for teacher in self._job.teachers(layer):
            if not any(f in waiting for f in self._job.taught_by(teacher)):
                self._job.shelf.drop(f"teach/{teacher}")

    def _count(self) -> None:
        self._opened += 1
        self._on_event("opened", {"layers": self._opened})

    # -- state ----------------------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        config = self._job.config
        return {
            "base": self._base["fingerprint"],
            "tokens": self._job.data.sha256,
            "recipe": config.model_dump(mode="json", exclude={"model", "evaluation", "licence"}),
        }

    def _save(self, streams: Streams, judge: Judge) -> None:
        record = {
            "identity": self._identity(),
            "original_at": streams.original_at,
            "arm_at": streams.arm_at,
            "judge_at": judge.at,
            "opened": self._opened,
            "seconds": self._seconds + time.perf_counter() - self._began,
            "done": {
                str(layer): {k: v for k, v in asdict(one).items() if k not in ("state", "last")}
                for layer, one in self.done.items()
            },
        }
        write_atomic(self._out / STATE, json.dumps(record, indent=2) + "\n")

    def _resume(self) -> dict[str, int]:
        """Where the streams are; nothing where there is no run yet."""
        path = self._out / STATE
        if not path.is_file():
            return {}
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            same = record["identity"] == json.loads(json.dumps(self._identity()))
            if not same:
                raise DistillError(f"{path}: belongs to another run; use another --out")
            at = {key: int(record[key]) for key in ("original_at", "arm_at", "judge_at")}
            self._seconds, self._opened = float(record["seconds"]), int(record["opened"])
            for name, facts in record["done"].items():
                self.done[int(name)] = Trained(**facts, **self._parts(name))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DistillError(
                f"{path}: damaged, or an older version's: {error}; remove {self._out}"
            ) from None
        self._forget_unfinished()
        self._on_event("resume", {"done": sorted(self.done), "layers": self._opened})
        return at

    def _parts(self, name: str) -> dict[str, Any]:
        """Tensors of a finished layer."""
        parts: dict[str, dict[str, Tensor]] = {"state": {}, "last": {}}
        for key, tensor in self._students.get(name, _HELD).items():
            kind, _, rest = key.partition(".")
            parts[kind][rest] = tensor
        return parts

    def _forget_unfinished(self) -> None:
        """Drop what was logged of layers that train again."""
        path, kept = self._out / METRICS, []
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue  # torn by the kill
            if row["layer"] in self.done:
                kept.append(line)
        path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")

    def _log(self, kind: str, values: dict[str, Any]) -> None:
        seconds = round(self._seconds + time.perf_counter() - self._began, 3)
        row = {"kind": kind, **values, "seconds": seconds}
        with (self._out / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._on_event(kind, row)

    # -- output ---------------------------------------------------------------------------------

    def _write(self) -> Path:
        job = self._job
        students = Students(indexer_sites(job.meta), job.trained)
        if job.config.student.tensors:
            students.freeze_except(job.config.student.tensors)
        session = Session(
            job.config, job.name, job.meta, indexer_sites(job.meta), job.schedule, students,
            job.plan, job.data, self._base, job.warnings,
        )  # fmt: skip
        best = {f"{f}.{k}": v for f, one in self.done.items() for k, v in one.state.items()}
        ids = job.layers.layout.layer_ids
        progress = Progress(
            step=job.config.train.steps,
            best_step=max(one.best_step for one in self.done.values()),
            before=self._summary("before"),
            after=self._summary("after"),
            choices=[
                {"layer": ids[f], "chosen": one.chosen, "scores": one.scores}
                for f, one in self.done.items()
                if one.scores
            ],
            seconds=self._seconds + time.perf_counter() - self._began,
        )
        for warning in progress.warnings:
            self._on_event("warning", {"text": warning})
        return save(session, best, progress, self._out)

    def _summary(self, which: str) -> dict[str, float]:
        """Mean recall; logit KL as the last layer's look has it: with all others trained."""
        looks: list[dict[str, float]] = [getattr(one, which) for one in self.done.values()]
        recall = sum(look["recall"] for look in looks) / len(looks)
        return looks[-1] | {"recall": recall}
