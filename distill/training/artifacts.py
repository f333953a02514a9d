"""What a distillation leaves behind: indexer.safetensors, schedule.json, the model card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from torch import Tensor

from distill.config.train import ChoiceConfig
from distill.errors import at, require_finite, saving
from distill.models.indexers import indexer_at
from distill.models.load import indexer_prefix, stored_dtypes, weight_files
from distill.models.student import trains
from distill.setup import DistillSetup
from distill.training.state import AS_IT_CAME, AS_TRAINED, TrainState
from evalkit.core.plugins import OURS
from evalkit.core.recipe import canonical_hash
from evalkit.core.toml import inline
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.indexer_checkpoint import save_indexer
from evalkit.dsa.json_types import JsonObject, JsonValue

INDEXER_DIR = "indexer"
METRIC_NAMES = {
    "logit_kl": "KL of final logits to the original",
    "logit_kl_tail": "the same, positions weighted as the choice does",
    "recall": "recall of the consumers' top-k",
    "boundary_recall": "recall of the lower half of that list",
    "mass_recall": "share of the consumers' attention on selected keys",
}


def save(setup: DistillSetup, students: Mapping[str, Tensor], state: TrainState, out: Path) -> Path:
    """Write the trained tensors under the model's own names and dtypes; returns the directory.

    Args:
        setup: what was trained.
        students: tensors of the indexers as ``"<ordinal>.<name>"``.
        state: at the end of the training.
        out: directory of the run.
    """
    directory = out / INDEXER_DIR
    tensors = named_as_in_model(setup, students, saved_layers(setup, state))
    base: dict[str, JsonValue] = {
        **cast(JsonObject, setup.base),
        "recipe_sha256": canonical_hash(setup.config),
    }
    text = card(setup, state, tensors)
    with saving(directory):
        save_indexer(directory, tensors, setup.schedule, base=base, card=text)
    return directory


def saved_layers(setup: DistillSetup, state: TrainState) -> tuple[int, ...]:
    """Full layers (ordinals) whose indexers are not the model's own any more."""
    first = setup.schedule.full_layers[0] if state.first_layer_came_back else None
    return tuple(layer for layer in setup.trained if layer != first)


def named_as_in_model(
    setup: DistillSetup, students: Mapping[str, Tensor], layers: Sequence[int]
) -> dict[str, Tensor]:
    """The trained tensors of some full layers, as the checkpoint names and stores them.

    Raises:
        NonFiniteError: one is NaN or infinite, in the precision of the checkpoint too.
    """
    stored = stored_dtypes(weight_files(setup.name))
    sites = indexer_sites(setup.model)
    tensors = {}
    for layer in layers:
        prefix = indexer_prefix(setup.model, layer)
        for name, parameter in indexer_at(sites, layer).named_parameters():
            if trains(name, setup.config.student.tensors):
                dtype = stored.get(prefix + name, parameter.dtype)
                tensors[prefix + name] = students[f"{layer}.{name}"].to(dtype)
                with at("not saved"):
                    require_finite(tensors[prefix + name], f"{prefix}{name} as {dtype}")
    return tensors


def card(setup: DistillSetup, state: TrainState, tensors: Mapping[str, Tensor]) -> str:
    """The model card."""
    config, schedule = setup.config, setup.schedule
    count = sum(t.numel() for t in tensors.values())
    whole = sum(p.numel() for p in setup.model.parameters())
    layers = ", ".join(str(schedule.layer_ids[i]) for i in saved_layers(setup, state))
    lines = [
        "---",
        f"base_model: {setup.base['model']}",
        f"license: {config.licence}",
        "library_name: dsa-evalkit",
        "tags: [deepseek-sparse-attention, indexer, distillation]",
        "---",
        "",
        f"# Distilled indexers of {setup.base['model']} for `{schedule}`",
        "",
        f"{count:,} parameters ({count / whole:.2%} of the model), those of the indexers of layers"
        f" {layers}. Everything else is the base model's, unchanged. {_use(setup)}",
        "",
        "## How they were made",
        "",
        f"- start: {config.student.start}{_choices(state)}",
        *_first_layer(state),
        f"- gradient: {state.best_step} of {config.train.steps} steps kept, loss {_losses(setup)},"
        f" teacher {config.teacher.kind} ({config.teacher.combine}), {setup.states} states",
        f"- text: {config.data.source.kind}, {setup.data.facts['tokens']['train']:,} training"
        f" tokens in sequences of {config.data.length};"
        f" tokens sha256 {setup.data.sha256[:16]}; {_left_out(setup)}",
        f"- time: {state.seconds:.0f} s",
        "",
        "## Held-out metrics",
        "",
        "| measure | undistilled | distilled |",
        "|---|---|---|",
        *(
            f"| {text} | {_shown(state.before, key)} | {_shown(state.after, key)} |"
            for key, text in shown_metrics(config.choice).items()
        ),
        "",
        *(
            f"Note: {warning}.\n"
            for warning in (*setup.warnings, *state.warnings(config.choice.checkpoint))
        ),
        "They do not replace an evaluation: compare the arm with its undistilled twin.",
        "",
        "## Recipe",
        "",
        "```json",
        config.model_dump_json(indent=2, exclude={"evaluation"}),
        "```",
        "",
    ]
    return "\n".join(lines)


def _use(setup: DistillSetup) -> str:
    selection = setup.config.arm.selection
    if selection is None:
        return (
            "They serve the layers that reuse their selections and are of use under this schedule"
            " only."
        )
    return (
        "They are of use under this schedule only, where full layers select by"
        f" `selection = {inline(selection.section)}`: name it in the arm of an evaluation."
    )


def shown_metrics(choice: ChoiceConfig) -> dict[str, str]:
    """Metrics with their names; where all positions count alike, there is no second logit KL."""
    return {k: text for k, text in METRIC_NAMES.items() if choice.weighs or k != "logit_kl_tail"}


def _left_out(setup: DistillSetup) -> str:
    facts = setup.data.facts
    if facts["identity"]["excluded_ngrams_sha256"] is None:
        return "not compared with any evaluation's prompts"
    counts = facts["counts"]
    return (
        f"{counts['excluded']} of {counts['documents']} documents left out because they repeat a"
        " passage of the evaluation's prompts"
    )


def _losses(setup: DistillSetup) -> str:
    """``0.7 kl + 0.3 listmle``; of other packages with the package."""
    trained = setup.plan.objective.trained().losses
    names = (e.name if e.package == OURS else f"{e.name} ({e.package})" for e in trained)
    return " + ".join(f"{e.weight:g} {name}" for e, name in zip(trained, names, strict=True))


def _choices(state: TrainState) -> str:
    chosen = [f"{choice.layer} from {choice.chosen}" for choice in state.choices]
    return f" (layer {', '.join(chosen)})" if chosen else ""


def _first_layer(state: TrainState) -> list[str]:
    if not state.first_layer:
        return []
    kept = AS_IT_CAME if state.first_layer_came_back else AS_TRAINED
    scores = ", ".join(f"{name} {score:.4f}" for name, score in state.first_layer.items())
    return [f"- first full layer: {kept}, by the held-out criterion ({scores})"]


def _shown(values: Mapping[str, float], key: str) -> str:
    value = values.get(key)
    return f"{value:.4f}" if isinstance(value, float) else "–"
