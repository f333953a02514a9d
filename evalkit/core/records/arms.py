"""An arm's entry in run.json: what answered under its name, and under which schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from evalkit.core.json_fields import (
    by_name,
    integer,
    integers,
    number,
    optional_fields,
    optional_integer,
    optional_parsed,
    optional_text,
    text,
    texts,
)
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.index_cost import IndexCost
from evalkit.dsa.indexer_metadata import IndexerFacts
from evalkit.dsa.json_types import JsonObject, as_list, as_object


@dataclass(frozen=True, slots=True)
class ScheduleFacts:
    """The schedule of an arm, spelled out.

    Attributes:
        text: as `ReuseSchedule.parse` reads it.
        pattern: one letter a layer, ``F`` or ``S``.
        retention: full layers among all, such as ``1/4``.
        lag: k, or one k per layer.
        lag_phase: ``decode`` or ``all``.
        source: ordinal of the layer whose selection each layer reads in decode.
        layer_ids: of the layers that have an indexer.
        full_layer_ids: of those that run it.
    """

    text: str
    pattern: str
    retention: str
    lag: int | tuple[int, ...]
    lag_phase: str
    source: tuple[int, ...]
    layer_ids: tuple[int, ...]
    full_layer_ids: tuple[int, ...]

    @classmethod
    def of(cls, schedule: ReuseSchedule) -> ScheduleFacts:
        """Of a schedule."""
        return cls(
            text=str(schedule),
            pattern=schedule.pattern,
            retention=str(schedule.retention),
            lag=schedule.lag,
            lag_phase=schedule.lag_phase,
            source=tuple(schedule.source),
            layer_ids=tuple(schedule.layer_ids),
            full_layer_ids=tuple(schedule.full_layer_ids),
        )

    def json(self) -> JsonObject:
        """The object on disk."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def parse(cls, data: JsonObject) -> ScheduleFacts:
        """Raises BadField."""
        several = isinstance(data.get("lag"), list)
        return cls(
            text=text(data, "text"),
            pattern=text(data, "pattern"),
            retention=text(data, "retention"),
            lag=integers(data, "lag") if several else integer(data, "lag"),
            lag_phase=text(data, "lag_phase"),
            source=integers(data, "source"),
            layer_ids=integers(data, "layer_ids"),
            full_layer_ids=integers(data, "full_layer_ids"),
        )


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """What was found out about an arm's servers before it answered.

    Attributes:
        verdict: ``engaged``, ``not engaged`` or ``unknown``.
        reason: why, in one line.
        probe: greedy continuations by probe prompt.
        servers: what each server reported of itself.
        did_nothing: the probe's words where it found that the setting probably did nothing.
        deterministic: whether the probe was answered twice alike; None where it was not told.
    """

    verdict: str
    reason: str
    probe: Mapping[str, str]
    servers: tuple[JsonObject, ...]
    did_nothing: str = ""
    deterministic: bool | None = None

    @classmethod
    def parse(cls, data: JsonObject) -> ServerCheck:
        """Raises BadField."""
        findings = map(as_object, as_list(data.get("findings")))
        return cls(
            verdict=text(data, "verdict"),
            reason=optional_text(data, "reason") or "",
            probe=by_name(data, "probe", text),
            servers=tuple(map(as_object, as_list(data.get("servers")))),
            did_nothing=next(
                (text(finding, "text") for finding in findings if finding.get("did_nothing")), ""
            ),
            deterministic=None if (told := data.get("deterministic")) is None else told is True,
        )


def _index_cost(data: JsonObject) -> IndexCost:
    """Raises BadField."""
    return IndexCost(
        integer(data, "tokens"),
        number(data, "prefill"),
        number(data, "decode"),
        integer(data, "key_bits"),
    )


def _verdict(data: JsonObject) -> str:
    return optional_text(data, "verdict") or ""


@dataclass(frozen=True, slots=True)
class ImportFacts:
    """Where an imported arm comes from.

    Attributes:
        format: of the files.
        source: name of the folder or file.
        problems: malformed records, with file, line and field.
        unclustered: cells of which it is not known which samples share a text.
        stored: the JSON object, counts and notes included.
    """

    format: str
    source: str
    problems: tuple[str, ...]
    unclustered: tuple[str, ...]
    stored: JsonObject = field(repr=False)

    @classmethod
    def parse(cls, data: JsonObject) -> ImportFacts:
        """Raises BadField."""
        return cls(
            format=text(data, "format"),
            source=optional_text(data, "source") or "",
            problems=texts(data, "problems") if "problems" in data else (),
            unclustered=texts(data, "unclustered") if "unclustered" in data else (),
            stored=data,
        )


@dataclass(frozen=True, slots=True)
class ArmEntry:
    """One arm of a run: what answered under its name.

    Attributes:
        name: unique in the run.
        model: checkpoint; None where it is not known (imported), or before its turn came.
        schedule: None for a model without indexers, and where it is not known.
        selection: how its full layers select, in words; None: as the checkpoint was trained.
        index_costs: what selecting cost, by task; of runs with an arm that has a selection.
        engagement: whether the schedule was in force, in words; ``""`` before any answer.
        check: of its servers, or None.
        imported: where its answers were imported from, or None.
        note: what a reader should know of it.
        parity_of: arm with the same configuration on another build.
        dense_tokens: longest sequence on which no schedule changes anything.
        weights_sha256: of the checkpoint.
        prompts_sha256: of the prompt policy and the tokenizer.
        indexer_sha256: of its distilled indexers.
        model_type: of the checkpoint, as transformers calls it.
        dtype: in which the engine ran it.
        device: likewise.
        stored: the JSON object; what a later version added included.
    """

    name: str
    model: str | None
    schedule: ScheduleFacts | None
    selection: str | None
    index_costs: Mapping[str, IndexCost]
    engagement: str
    check: ServerCheck | None
    imported: ImportFacts | None
    note: str
    parity_of: str | None
    dense_tokens: int | None
    weights_sha256: str | None
    prompts_sha256: str | None
    indexer_sha256: str | None
    model_type: str | None
    dtype: str | None
    device: str | None
    stored: JsonObject = field(repr=False)

    @classmethod
    def parse(cls, data: JsonObject) -> ArmEntry:
        """Raises BadField."""
        return cls(
            name=text(data, "name"),
            model=optional_text(data, "model"),
            schedule=optional_parsed(data, "schedule", ScheduleFacts.parse),
            selection=optional_text(data, "selection"),
            index_costs={
                task: _index_cost(as_object(cost))
                for task, cost in optional_fields(data, "index_costs").items()
            },
            engagement=optional_parsed(data, "engagement", _verdict) or "",
            check=optional_parsed(data, "check", ServerCheck.parse),
            imported=optional_parsed(data, "imported", ImportFacts.parse),
            note=optional_text(data, "note") or "",
            parity_of=optional_text(data, "parity_of"),
            dense_tokens=optional_integer(data, "dense_tokens"),
            weights_sha256=optional_text(data, "weights_sha256"),
            prompts_sha256=optional_text(data, "prompts_sha256"),
            indexer_sha256=optional_text(data, "indexer_sha256"),
            model_type=optional_text(data, "model_type"),
            dtype=optional_text(data, "dtype"),
            device=optional_text(data, "device"),
            stored=data,
        )

    @classmethod
    def imported_as(cls, name: str, facts: JsonObject) -> ArmEntry:
        """An arm whose answers come from files of another harness."""
        return cls.parse({"name": name, "model": None, "schedule": None, "imported": facts})

    @property
    def schedule_text(self) -> str | None:
        """The schedule in one word; None where it is not known."""
        return None if self.schedule is None else self.schedule.text

    @property
    def acts_text(self) -> str | None:
        """The schedule, and the selection where the arm has one; None where they are not known."""
        parts = (self.schedule_text, self.selection)
        return "; ".join(part for part in parts if part) or None

    @property
    def probe(self) -> Mapping[str, str]:
        """Continuations of the last check; empty without one."""
        return {} if self.check is None else self.check.probe

    def renamed(self, name: str) -> ArmEntry:
        """Under another name."""
        return self._updated({"name": name})

    def described(
        self,
        model: str,
        facts: JsonObject,
        schedule: ReuseSchedule | None,
        note: str | None = None,
        parity_of: str | None = None,
        selection: str | None = None,
    ) -> ArmEntry:
        """With what the engine tells of the checkpoint (`facts`), its schedule and selection."""
        described = None if schedule is None else ScheduleFacts.of(schedule).json()
        extra = {"note": note, "parity_of": parity_of, "selection": selection}
        return self._updated(
            {"model": model, **facts, "schedule": described}
            | {key: value for key, value in extra.items() if value is not None}
        )

    def with_indexers(self, facts: IndexerFacts) -> ArmEntry:
        """With what identifies its distilled indexers."""
        return self._updated(
            {
                "indexer_sha256": facts["indexer_sha256"],
                "indexer_schedule": facts["indexer_schedule"],
                "indexer_base": facts["indexer_base"],
            }
        )

    def with_index_costs(self, costs: Mapping[str, IndexCost]) -> ArmEntry:
        """With what selecting cost, by task."""
        return self._updated({"index_costs": {task: asdict(c) for task, c in costs.items()}})

    def with_check(self, check: JsonObject) -> ArmEntry:
        """With the check of its servers."""
        return self._updated({"check": check})

    def with_engagement(self, proof: JsonObject) -> ArmEntry:
        """With the evidence that its schedule was in force: ``verdict`` and what it rests on."""
        return self._updated({"engagement": proof})

    def _updated(self, changes: JsonObject) -> ArmEntry:
        return ArmEntry.parse({**self.stored, **changes})
