"""The evaluation recipe: every knob is a typed field."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from evalkit.config.bench import BenchConfig
from evalkit.config.schedule import ScheduleConfig
from evalkit.config.server import CLIENT_FIELDS, OpenAIServerConfig, ServerConfig
from evalkit.core.recipe import Strict
from evalkit.core.types import EvalkitError
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.indexer_metadata import read_schedule
from evalkit.tasks.registry import TaskConfig


class PromptConfig(Strict):
    """How samples become prompts.

    Attributes:
        chat: ``auto`` uses the tokenizer's chat template where it has one, ``never`` sends plain
            text, ``always`` refuses a tokenizer without a template. Tasks may exempt themselves.
        template: one of RULER's model templates by name (``meta-chat``, ``vicuna-chat`` ...),
            instead of the tokenizer's chat template.
        reasoning_tokens: budget of a reasoning block (``<think> … </think>``); the answer behind it
            has the task's own budget.
    """

    chat: Literal["auto", "always", "never"] = "auto"
    template: str | None = None
    reasoning_tokens: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _one_template(self) -> PromptConfig:
        if self.template is not None and self.chat == "never":
            raise ValueError("template and chat = never exclude each other")
        return self


class HfConfig(Strict):
    """Transformers in this process, greedy decoding.

    Attributes:
        dtype: weights and activations; ``auto`` takes the checkpoint's.
        batch_tokens: padded tokens of a batch (prompt and answer).
        max_batch: prompts of a batch.
        prefill_chunk: prompt tokens per forward; bounds the memory of long prompts.
        indexer: ``library`` runs the installed transformers code; ``chunked`` selects by our own
            scores, in memory linear in the length and faster, equal up to rounding at the border.
        device_map: passed to transformers (``"auto"`` spreads a large model), else one device
            that accelerate chooses.
    """

    kind: Literal["hf"] = "hf"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    batch_tokens: int = Field(default=32768, ge=1)
    max_batch: int = Field(default=64, ge=1)
    prefill_chunk: int = Field(default=2048, ge=1)
    indexer: Literal["library", "chunked"] = "library"
    device_map: str | None = None


class OracleConfig(Strict):
    """Answers from the gold, or from a corrupted gold: tests and dry runs without a model.

    Attributes:
        corrupt: share of wrong answers, for all arms or per arm name.
        seed: which samples are wrong.
    """

    kind: Literal["oracle"] = "oracle"
    corrupt: float | dict[str, float] = 0.0
    seed: int = 0

    @model_validator(mode="after")
    def _rates(self) -> OracleConfig:
        rates = self.corrupt.values() if isinstance(self.corrupt, dict) else [self.corrupt]
        if any(not 0 <= rate <= 1 for rate in rates):
            raise ValueError("corrupt is a share between 0 and 1")
        return self


EngineConfig = Annotated[HfConfig | OracleConfig | OpenAIServerConfig, Field(discriminator="kind")]

# Fields that change how fast an engine works and not what it answers; they leave the identity.
THROUGHPUT_FIELDS = CLIENT_FIELDS | {"batch_tokens", "max_batch", "prefill_chunk", "device_map"}


class ArmConfig(ScheduleConfig):
    """One configuration under test: checkpoint and schedule.

    Attributes:
        name: shown in every table.
        model: checkpoint (directory or hub id) when it is not the recipe's.
        indexer: directory of distilled indexers, relative to the recipe; with no schedule named,
            the arm takes the one that they were trained for.
        server: where the arm's server runs, for the engine ``openai_server``.
    """

    name: str = Field(pattern=r"\S")
    model: str | None = None
    indexer: str | None = None
    server: ServerConfig | None = None

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"arm {self.name}"

    def schedule(self, native: ReuseSchedule) -> ReuseSchedule:
        """As named, or the one that the arm's indexers were trained for.

        Raises:
            EvalkitError: it cannot be built for this model; the message names arm and layer.
        """
        if self.indexer is not None and not self.names_schedule:
            return read_schedule(Path(self.indexer))
        return super().schedule(native)

    @property
    def names_schedule(self) -> bool:
        """True when the arm names a schedule of its own."""
        chosen = (self.retention, self.pattern, self.sources)
        return chosen != (None, None, None) or self.lag != 0

    @property
    def is_native(self) -> bool:
        """True when the arm asks for nothing but the checkpoint as it is."""
        return not self.names_schedule and self.indexer is None


class ScoringConfig(Strict):
    """How answers are scored; scoring again needs no model.

    Attributes:
        mode: ``official`` equals the benchmark's own script, ``strict`` mends its faults.
        edit_distance: backend of the code metric.
        reasoning: ``split`` scores what stands behind a reasoning block, ``keep`` everything.
    """

    mode: Literal["official", "strict"] = "official"
    edit_distance: Literal["difflib", "levenshtein"] = "difflib"
    reasoning: Literal["split", "keep"] = "split"


class CompareConfig(Strict):
    """How arms are compared.

    Attributes:
        baseline: arm that the others are compared with; default: the first.
        repeat_of_baseline: a second run of the baseline (A/A), whose difference is the noise floor.
        margin: largest loss that is still acceptable, in score units (0.01 = one point).
        margins: other margins, by task, or for ``macro``.
        confidence: of the intervals.
        method: of the intervals; ``auto`` takes what the coverage table of docs/statistics.md
            supports for each situation.
        resamples: bootstrap resamples.
        seed: of the resampling.
        adjust: of the p-values for several arms.
        over: p-values adjusted together: those of all arms on a task, or on all tasks.
    """

    baseline: str | None = None
    repeat_of_baseline: str | None = None
    margin: float = Field(default=0.01, ge=0, le=1)
    margins: dict[str, float] = Field(default_factory=dict)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    method: Literal["auto", "score", "t", "newcombe", "percentile", "bca", "studentized"] = "auto"
    resamples: int = Field(default=10_000, ge=100, le=1_000_000)
    seed: int = Field(default=0, ge=0)
    adjust: Literal["holm", "benjamini-hochberg"] = "holm"
    over: Literal["arms", "arms and tasks"] = "arms"


class RunConfig(Strict):
    """A whole evaluation.

    Attributes:
        model: checkpoint of the arms that name none (directory, relative to the recipe, or hub id).
        engine: what answers.
        prompts: how samples become prompts.
        tasks: the benchmarks.
        arms: the configurations under test.
        scoring: how answers are scored.
        compare: how they are compared.
        bench: load of `evalkit bench`, which measures speed beside quality.
    """

    model: str | None = None
    engine: EngineConfig = HfConfig()
    prompts: PromptConfig = PromptConfig()
    tasks: tuple[TaskConfig, ...] = Field(min_length=1)
    arms: tuple[ArmConfig, ...] = Field(min_length=1)
    scoring: ScoringConfig = ScoringConfig()
    compare: CompareConfig = CompareConfig()
    bench: BenchConfig | None = None

    @model_validator(mode="after")
    def _names(self) -> RunConfig:
        names = [arm.name for arm in self.arms]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two arms are called {name}")
        for key in ("baseline", "repeat_of_baseline"):
            name = getattr(self.compare, key)
            if name is not None and name not in names:
                raise ValueError(f"compare.{key} {name} is not an arm ({', '.join(names)})")
        if isinstance(self.engine, OracleConfig) and isinstance(self.engine.corrupt, dict):
            for name in self.engine.corrupt:
                if name not in names:
                    raise ValueError(f"engine.corrupt {name} is not an arm ({', '.join(names)})")
        for arm in self.arms:
            twin = arm.server.parity_of if arm.server is not None else None
            if twin is not None and (twin not in names or twin == arm.name):
                raise ValueError(f"arm {arm.name}: server.parity_of {twin} is not an arm")
            if arm.indexer is not None and isinstance(self.engine, OpenAIServerConfig):
                raise ValueError(
                    f"arm {arm.name}: a running server takes no indexer files; serve a checkpoint"
                    " written by `distill export`"
                )
        if any(arm.model is None for arm in self.arms) and self.model is None:
            raise ValueError("no model: set model, or a model for every arm")
        return self


def resolve_model(name: str, base_dir: Path) -> str:
    """A model directory or .gguf file, relative to the recipe, as an absolute path; else a hub id.

    Raises:
        EvalkitError: it looks like a path and is not there.
    """
    path = Path(name).expanduser()
    candidate = path if path.is_absolute() else base_dir / path
    if candidate.is_dir() or (candidate.suffix == ".gguf" and candidate.is_file()):
        return str(candidate.resolve())
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1:
        raise EvalkitError(f"model {name}: no such directory, nor a .gguf file ({candidate})")
    return name
