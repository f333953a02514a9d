"""overlap.json: how much the selections of layers overlap, and what each arm's sources supply."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.files import read_object, write_atomic
from evalkit.core.json_fields import (
    BadField,
    all_parsed,
    each,
    fields,
    integer,
    integers,
    number,
    numbers,
    optional_number,
    optional_parsed,
    optional_text,
    parsed,
    text,
    texts,
)
from evalkit.dsa.json_types import JsonObject, JsonValue

FORMAT = 1
FILE = "overlap.json"


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A mean over documents with its interval.

    Attributes:
        mean: the mean.
        low: lower end; None for a single document.
        high: upper end, likewise.
    """

    mean: float
    low: float | None
    high: float | None

    @classmethod
    def parse(cls, data: JsonObject) -> MeanInterval:
        """Raises BadField."""
        return cls(
            number(data, "mean"), optional_number(data, "low"), optional_number(data, "high")
        )

    def json(self) -> JsonObject:
        """The object on disk."""
        return {"mean": self.mean, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class ArmOverlap:
    """What the sources of one arm supply at one length.

    Attributes:
        name: of the arm.
        schedule: as text.
        selection: of its full layers, in words; None: as trained.
        selection_recall: share of what a layer would select that its source supplies.
        worst_selection_recall: of the worst layer.
        mass_recall: share of the attention that falls on what the source supplies; None where
            the attention could not be seen.
        worst_mass_recall: of the worst layer, likewise.
    """

    name: str
    schedule: str
    selection_recall: MeanInterval
    worst_selection_recall: float
    mass_recall: MeanInterval | None = None
    worst_mass_recall: float | None = None
    selection: str | None = None

    @classmethod
    def parse(cls, data: JsonObject) -> ArmOverlap:
        """Raises BadField."""
        return cls(
            name=text(data, "name"),
            schedule=text(data, "schedule"),
            selection_recall=parsed(data, "selection_recall", MeanInterval.parse),
            worst_selection_recall=number(data, "worst_selection_recall"),
            mass_recall=optional_parsed(data, "mass_recall", MeanInterval.parse),
            worst_mass_recall=optional_number(data, "worst_mass_recall"),
            selection=optional_text(data, "selection"),
        )

    def json(self) -> JsonObject:
        """The object on disk."""
        data: dict[str, JsonValue] = {
            "name": self.name,
            "schedule": self.schedule,
            "selection_recall": self.selection_recall.json(),
            "worst_selection_recall": self.worst_selection_recall,
        }
        if self.mass_recall is not None:
            data["mass_recall"] = self.mass_recall.json()
            data["worst_mass_recall"] = self.worst_mass_recall
        return data if self.selection is None else {**data, "selection": self.selection}


@dataclass(frozen=True, slots=True)
class LengthOverlap:
    """Everything at one length.

    Attributes:
        length: in tokens.
        documents: that are long enough.
        rows: query rows of all documents together.
        adjacent: overlap of consecutive layers, by ``jaccard`` and ``recall``.
        arms: in the recipe's order.
        matrices: [layers, layers] means, by ``jaccard``, ``recall`` and ``mass``.
    """

    length: int
    documents: int
    rows: int
    adjacent: Mapping[str, MeanInterval]
    arms: tuple[ArmOverlap, ...]
    matrices: Mapping[str, Sequence[Sequence[float]]]

    @classmethod
    def parse(cls, data: JsonObject) -> LengthOverlap:
        """Raises BadField."""
        adjacent, matrices = fields(data, "adjacent"), fields(data, "matrices")
        return cls(
            length=integer(data, "length"),
            documents=integer(data, "documents"),
            rows=integer(data, "rows"),
            adjacent={name: parsed(adjacent, name, MeanInterval.parse) for name in adjacent},
            arms=all_parsed(data, "arms", ArmOverlap.parse),
            matrices={name: each(matrices, name, numbers) for name in matrices},
        )

    def json(self) -> JsonObject:
        """The object on disk."""
        return {
            "length": self.length,
            "documents": self.documents,
            "rows": self.rows,
            "adjacent": {name: mean.json() for name, mean in self.adjacent.items()},
            "arms": [arm.json() for arm in self.arms],
            "matrices": dict(self.matrices),
        }


@dataclass(frozen=True, slots=True)
class OverlapRecord:
    """overlap.json. Papers quote different figures, so model, data, k and metric are kept.

    Attributes:
        model: checkpoint without the folders of a machine.
        weights_sha256: of it; None for a checkpoint of the hub.
        data: what the documents are.
        k: keys that a layer selects.
        rows: query rows per length and document.
        metrics: what each number is.
        layers: ids of the layers of the matrices.
        lengths: growing.
        left_out: arms that were not measured.
    """

    model: str
    weights_sha256: str | None
    data: str
    k: int
    rows: int
    metrics: Mapping[str, str]
    layers: tuple[int, ...]
    lengths: tuple[LengthOverlap, ...]
    left_out: tuple[str, ...]

    @classmethod
    def parse(cls, data: JsonObject) -> OverlapRecord:
        """Raises BadField."""
        metrics = fields(data, "metrics")
        return cls(
            model=text(data, "model"),
            weights_sha256=optional_text(data, "weights_sha256"),
            data=text(data, "data"),
            k=integer(data, "k"),
            rows=integer(data, "rows"),
            metrics={name: text(metrics, name) for name in metrics},
            layers=integers(data, "layers"),
            lengths=all_parsed(data, "lengths", LengthOverlap.parse),
            left_out=texts(data, "left_out"),
        )

    def json(self) -> JsonObject:
        """The document."""
        return {
            "format": FORMAT,
            "model": self.model,
            "weights_sha256": self.weights_sha256,
            "data": self.data,
            "k": self.k,
            "rows": self.rows,
            "metrics": dict(self.metrics),
            "layers": list(self.layers),
            "lengths": [entry.json() for entry in self.lengths],
            "left_out": list(self.left_out),
        }


def read_overlap(folder: Path) -> OverlapRecord | None:
    """overlap.json beside a run, where `evalkit overlap` wrote one.

    Raises:
        EvalkitError: it is damaged; names the field.
    """
    try:
        data = read_object(folder / FILE)
        return OverlapRecord.parse(data) if data.get("lengths") else None
    except FileNotFoundError:
        return None
    except BadField as error:
        raise EvalkitError(f"{folder / FILE}: {error.field}: {error.message}") from None


def write_overlap(folder: Path, record: OverlapRecord) -> None:
    """Write overlap.json beside a run."""
    content = json.dumps(record.json(), ensure_ascii=False, allow_nan=False)
    write_atomic(folder / FILE, content + "\n")
