"""What every rank says of the schedule that it runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from evalkit.dsa.schedule import ReuseSchedule


@dataclass(frozen=True, slots=True)
class Engaged:
    """A schedule in force on a rank.

    Attributes:
        rank: of the worker.
        vllm: version of the engine.
        schedule: in its text form.
        pattern: one letter per indexer-bearing layer.
        sources: σ in decode, as absolute layer ids.
        prefill_sources: σ in prefill.
        layers: absolute ids of the indexer-bearing layers that this rank has.
    """

    rank: int
    vllm: str
    schedule: str
    pattern: str
    sources: tuple[int, ...]
    prefill_sources: tuple[int, ...]
    layers: tuple[int, ...]

    @property
    def line(self) -> str:
        """The line of the log; `evalkit check` reads it (engagement/log_formats.toml)."""
        return (
            f"evalkit schedule in force [{self.schedule}] rank {self.rank}, vLLM {self.vllm},"
            f" pattern {self.pattern}, decode reads {_join(self.sources)}, prefill reads"
            f" {_join(self.prefill_sources)}, layers {_join(self.layers)}"
        )

    def record(self) -> dict[str, object]:
        """The same for the server's API."""
        return asdict(self)


def engaged(
    schedule: ReuseSchedule, layers: tuple[int, ...], *, rank: int, version: str
) -> Engaged:
    """What a rank that has these layers says."""
    ids = schedule.layer_ids
    return Engaged(
        rank,
        version,
        str(schedule),
        schedule.pattern,
        tuple(ids[s] for s in schedule.sources("decode")),
        tuple(ids[s] for s in schedule.sources("prefill")),
        layers,
    )


def _join(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
