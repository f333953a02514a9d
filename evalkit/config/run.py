"""The evaluation recipe: every knob is a typed field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from evalkit.config.arm import ArmConfig
from evalkit.config.bench import BenchConfig
from evalkit.config.engine import ENGINES, EngineConfig, default_engine
from evalkit.core.plugins import near
from evalkit.core.recipe import Strict
from evalkit.tasks.registry import TaskConfig

# What the renderer itself hands to a chat template, or to the method that renders it.
OWN_ARGUMENTS = frozenset(
    {"conversation", "messages", "chat_template", "tokenize", "add_generation_prompt"}
    | {"continue_final_message", "tools", "documents", "return_dict", "return_tensors"}
)


class PromptConfig(Strict):
    """How samples become prompts.

    Attributes:
        chat: ``auto`` uses the tokenizer's chat template where it has one, ``never`` sends plain
            text, ``always`` refuses a tokenizer without a template. Tasks may exempt themselves.
        template: one of RULER's model templates by name (``meta-chat``, ``vicuna-chat`` ...),
            instead of the tokenizer's chat template.
        template_arguments: what the tokenizer's chat template takes besides the conversation
            (``{ enable_thinking = false }``); part of what every prompt is, and sent along to
            servers that render by themselves.
        reasoning_tokens: budget of a reasoning block (``<think> … </think>``); the answer behind it
            has the task's own budget.
    """

    chat: Literal["auto", "always", "never"] = "auto"
    template: str | None = None
    template_arguments: dict[str, JsonValue] | None = None
    reasoning_tokens: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _one_template(self) -> PromptConfig:
        if self.template is not None and self.chat == "never":
            raise ValueError("template and chat = never exclude each other")
        if self.template_arguments and (self.template is not None or self.chat == "never"):
            raise ValueError(
                "template_arguments are for the tokenizer's chat template: leave out template, and"
                " chat = never"
            )
        taken = sorted(OWN_ARGUMENTS.intersection(self.template_arguments or ()))
        if taken:
            raise ValueError(f"template_arguments: {', '.join(taken)} is not yours to set")
        return self


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
        repeat_of_baseline: a second run of the baseline (A/A): verdicts have to hold against both.
        margin: largest loss that is still acceptable, in score units (0.01 = one point).
        margins: other margins, by task, or for ``macro``.
        confidence: of the intervals; each verdict is wrong with half of the rest at most.
        method: of the interval in the table; ``auto`` takes the bound of the verdict where it is
            one, else the score interval. Verdicts do not depend on it.
        resamples: bootstrap resamples.
        seed: of the resampling.
        family: whether the verdict of every arm stands alone (``each``), or those of all arms on a
            task hold together (``all``, Holm).
        rare_losses: whether verdicts on graded scores allow a few samples lost whole that no
            sample at hand shows (``allowed``), or rest on the interval alone (``excluded``).
        rare_losses_reason: why they are excluded; printed below the table.
        exclude: samples to leave out, by id or its end (``qasper/17``); every table says so.
    """

    dropped: ClassVar[Mapping[str, object]] = {"adjust": "holm", "over": "arms"}
    baseline: str | None = None
    repeat_of_baseline: str | None = None
    margin: float = Field(default=0.01, ge=0, le=1)
    margins: dict[str, float] = Field(default_factory=dict)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    method: str = "auto"
    resamples: int = Field(default=10_000, ge=100, le=1_000_000)
    seed: int = Field(default=0, ge=0)
    family: Literal["each", "all"] = "each"
    rare_losses: Literal["allowed", "excluded"] = "allowed"
    rare_losses_reason: str = ""
    exclude: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _reason(self) -> CompareConfig:
        if (self.rare_losses == "excluded") != bool(self.rare_losses_reason.strip()):
            raise ValueError(
                "rare_losses = excluded and rare_losses_reason go together: say why no sample can"
                " be lost whole"
            )
        return self

    @field_validator("method")
    @classmethod
    def _known_method(cls, name: str) -> str:
        from evalkit.stats.methods import METHODS

        if name not in METHODS:
            raise ValueError(f"unknown {METHODS.what} {name}; {near(name, METHODS)}")
        return name


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
        limit: first samples of every cell only.
    """

    model: str | None = None
    engine: EngineConfig = Field(default_factory=default_engine)
    prompts: PromptConfig = PromptConfig()
    tasks: tuple[TaskConfig, ...] = Field(min_length=1)
    arms: tuple[ArmConfig, ...] = Field(min_length=1)
    scoring: ScoringConfig = ScoringConfig()
    compare: CompareConfig = CompareConfig()
    bench: BenchConfig | None = None
    limit: int | None = Field(default=None, ge=1)

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
        engine = ENGINES.of(self.engine)
        engine.check_arms(self.engine, self.arms)
        for arm in self.arms if not engine.selects else ():
            if arm.selection is not None:
                able = ", ".join(kind.name for kind in ENGINES.usable() if kind.selects)
                raise ValueError(
                    f"arm {arm.name}: the engine {engine.name} has no selection"
                    f" {arm.selection.text}: use {able}, or leave selection out"
                )
        for arm in self.arms:
            twin = arm.server.parity_of if arm.server is not None else None
            if twin is not None and (twin not in names or twin == arm.name):
                raise ValueError(f"arm {arm.name}: server.parity_of {twin} is not an arm")
        if any(arm.model is None for arm in self.arms) and self.model is None:
            raise ValueError("no model: set model, or a model for every arm")
        return self
