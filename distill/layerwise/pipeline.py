"""Layer by layer from the first full layer to the last, and what it leaves behind.

state.json       how far the streams are, which layers are done; read by the same command
students/<f>     trained tensors of a finished layer
hidden_states/   hidden states and teachers; removed at the end
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from pydantic import TypeAdapter

from distill.config.train import DistillConfig
from distill.errors import DistillError, first_line
from distill.init.candidates import CandidateChoice
from distill.layerwise.dumped_streams import streams_of
from distill.layerwise.layer_trainer import LayerTrainer, TrainedLayer
from distill.layerwise.logit_evaluator import LogitEvaluator
from distill.layerwise.setup import LayerwiseSetup
from distill.layerwise.streams import Streams
from distill.layerwise.tensor_store import TensorStore
from distill.models.student import State
from distill.training.artifacts import save
from distill.training.events import (
    LayerDone,
    LayerRead,
    Measured,
    OnEvent,
    Resumed,
    StreamsAdvanced,
    Warned,
)
from distill.training.identity import recipe_of
from distill.training.metrics_log import MetricsLog, Row
from distill.training.state import TrainState
from evalkit.core.files import write_atomic

STATE, STUDENTS = "state.json", "students"
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class _Places:
    """Layers that the streams stand before."""

    original_at: int
    arm_at: int
    evaluator_at: int


class LayerwiseRun:
    """Trains all full layers of a setup in a directory.

    Attributes:
        done: what became of each full layer, by ordinal.
        state: of the whole run, once it has ended.
    """

    def __init__(
        self, setup: LayerwiseSetup, out: Path, on_event: OnEvent = lambda _: None
    ) -> None:
        self.done: dict[int, TrainedLayer] = {}
        self.state = TrainState()
        self._setup, self._out, self._on_event = setup, out, on_event
        self._students, self._log = TensorStore(out / STUDENTS), MetricsLog(out)
        self._earlier_seconds, self._began = 0.0, time.perf_counter()
        self._layers_read = 0
        setup.layers.on_open = self._count

    def run(self, *, save_anyway: bool = False) -> Path | None:
        """Start or resume; returns the indexer directory, None where nothing was gained.

        Args:
            save_anyway: write the indexers even then.

        Raises:
            DistillError: the directory belongs to another run; the loss is NaN.
        """
        setup = self._setup
        at = self._resume()
        if at is None:
            self._log.start()
            setup.store.drop("")
            streams = streams_of(setup)
            evaluator = LogitEvaluator(setup, streams.arm)
            streams.begin()
            self._save(streams, evaluator)
        else:
            streams = streams_of(setup, at.original_at, at.arm_at)
            evaluator = LogitEvaluator(setup, streams.arm, at.evaluator_at)

        def on_layer() -> None:
            self._save(streams, evaluator)
            self._on_event(StreamsAdvanced(streams.original_at, streams.arm_at, evaluator.at))

        evaluator.prepare(on_layer)
        for layer, trained in self.done.items():
            streams.use_trained(layer, trained.state)
        for layer in setup.trained:
            if layer in self.done:
                continue
            streams.original_to(max(setup.teachers(layer) | {layer}), on_layer)
            streams.arm_to(layer, on_layer)
            streams.keep_inputs(layer)
            self._train(layer, evaluator)
            streams.use_trained(layer, self.done[layer].state)
            self._save(streams, evaluator)
            self._free(layer)
        directory = self._write(save_anyway)
        setup.store.drop("")
        return directory

    def _train(self, layer: int, evaluator: LogitEvaluator) -> None:
        indexer = self._setup.layers.indexer(layer, self._setup.model)
        trainer = LayerTrainer(
            self._setup, layer, indexer, evaluator, self._seconds, self._measured
        )
        trained = trainer.run()
        tensors = {f"state.{k}": v for k, v in trained.state.items()}
        tensors |= {f"last.{k}": v for k, v in trained.last.items()}
        self._students.put(str(layer), **tensors)
        self.done[layer] = trained
        self._measured(
            LayerDone(
                seconds=self._seconds(),
                layer=self._setup.schedule.layer_ids[layer],
                before=trained.before,
                after=trained.after,
            )
        )

    def _free(self, layer: int) -> None:
        """Drop what only this layer needed."""
        self._setup.store.drop(f"input/{layer}")
        waiting = [f for f in self._setup.trained if f not in self.done]
        for teacher in self._setup.teachers(layer):
            if not any(f in waiting for f in self._setup.taught_by(teacher)):
                self._setup.store.drop(f"teach/{teacher}")

    def _count(self) -> None:
        self._layers_read += 1
        self._on_event(LayerRead(self._layers_read))

    # -- state ----------------------------------------------------------------------------------

    def _identity(self) -> dict[str, object]:
        """What a directory must share with this run to be continued."""
        setup = self._setup
        base, tokens = setup.base["fingerprint"], setup.data.sha256
        facts = {"base": base, "tokens": tokens, "base_config": setup.base["config_sha256"]}
        if setup.dump is not None:
            facts["dump"] = setup.dump.sha256
        return {**facts, "recipe": _recorded(setup.config)}

    def _save(self, streams: Streams, evaluator: LogitEvaluator) -> None:
        record = {
            "identity": self._identity(),
            **asdict(_Places(streams.original_at, streams.arm_at, evaluator.at)),
            "layers_read": self._layers_read,
            "seconds": self._seconds(),
            "done": {
                str(layer): {k: v for k, v in asdict(one).items() if k not in ("state", "last")}
                for layer, one in self.done.items()
            },
        }
        write_atomic(self._out / STATE, json.dumps(record, indent=2) + "\n")

    def _resume(self) -> _Places | None:
        """Where the streams are; None where there is no run yet."""
        path = self._out / STATE
        if not path.is_file():
            return None
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            for old, new in {"judge_at": "evaluator_at", "opened": "layers_read"}.items():
                if old in record:  # of 0.1
                    record[new] = record[old]
            identity = dict(record["identity"])
            identity["recipe"] = _recorded(recipe_of(identity["recipe"]))
            identity.setdefault("base_config", self._setup.base["config_sha256"])  # of 0.1
            if identity != self._identity():
                raise DistillError(f"{path}: belongs to another run; use another --out")
            at = _Places(*(int(record[name]) for name in _Places.__slots__))
            self._earlier_seconds = float(record["seconds"])
            self._layers_read = int(record["layers_read"])
            for name, facts in record["done"].items():
                self.done[int(name)] = self._trained(name, facts)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DistillError(
                f"{path}: damaged, or an older version's: {first_line(error)}; remove {self._out}"
            ) from None
        self._log.resume(self._is_done)
        ids = self._setup.schedule.layer_ids
        done = tuple(ids[layer] for layer in sorted(self.done))
        self._on_event(Resumed(layers=done, layers_read=self._layers_read))
        return at

    def _trained(self, name: str, facts: Mapping[str, object]) -> TrainedLayer:
        """A finished layer from its record and its tensors."""
        for numbers in (facts["before"], facts["after"], facts["scores"]):
            TypeAdapter(dict[str, float]).validate_python(numbers)
        parts: dict[str, State] = {"state": {}, "last": {}}
        for key, tensor in self._students.get(name, _CPU).items():
            part, _, rest = key.partition(".")
            parts[part][rest] = tensor
        return TrainedLayer(**facts, **parts)  # type: ignore[arg-type]

    def _is_done(self, row: Row) -> bool:
        """Whether a row of the log is of a finished layer; the others train again."""
        return row.get("layer") in {self._setup.schedule.layer_ids[layer] for layer in self.done}

    def _seconds(self) -> float:
        """Of work, interruptions left out."""
        return self._earlier_seconds + time.perf_counter() - self._began

    def _measured(self, event: Measured) -> None:
        self._log.append(event.row())
        self._on_event(event)

    # -- output ---------------------------------------------------------------------------------

    def _write(self, save_anyway: bool) -> Path | None:
        setup, layers = self._setup, list(self.done.values())
        ids, measure = setup.schedule.layer_ids, setup.config.choice.checkpoint
        students = {f"{one.layer}.{k}": v for one in layers for k, v in one.state.items()}
        self.state = TrainState(
            step=setup.config.train.steps,
            best_step=max(one.best_step for one in layers),
            before=_summary([one.before for one in layers]),
            after=_summary([one.after for one in layers]),
            choices=[
                CandidateChoice(ids[one.layer], one.chosen, one.scores)
                for one in layers
                if one.scores
            ],
            seconds=self._seconds(),
        )
        for warning in self.state.warnings(measure):
            self._on_event(Warned(warning))
        if not (save_anyway or self.state.gains(measure)):
            return None
        return save(setup, students, self.state, self._out)


def _recorded(config: DistillConfig) -> dict[str, object]:
    return config.model_dump(mode="json", exclude={"model", "evaluation", "licence"})


def _summary(by_layer: list[dict[str, float]]) -> dict[str, float]:
    """Mean recall; logit KL as the last layer's evaluation has it: with all others trained."""
    recall = sum(metrics["recall"] for metrics in by_layer) / len(by_layer)
    return by_layer[-1] | {"recall": recall}
