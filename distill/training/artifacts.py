"""What a distillation leaves behind: indexer.safetensors, schedule.json, the model card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from distill.models.load import names_in_model, stored_dtypes, weight_files
from distill.setup import Session
from distill.training.state import Progress
from evalkit.core.recipe import canonical_hash
from evalkit.dsa.indexer_checkpoint import save_indexer

INDEXER_DIR = "indexer"
PROBES = {
    "logit_kl": "KL of final logits to the original",
    "logit_kl_tail": "the same where the undistilled arm is worst",
    "recall": "recall of the consumers' top-k",
    "boundary_recall": "recall of the lower half of that list",
    "mass_recall": "share of the consumers' attention on selected keys",
}


def save(session: Session, best: Mapping[str, Tensor], progress: Progress, out: Path) -> Path:
    """Write the trained tensors under the model's own names and dtypes; returns the directory."""
    directory = out / INDEXER_DIR
    tensors = named_as_in_model(session, best)
    base = {**session.base, "recipe_sha256": canonical_hash(session.config)}
    save_indexer(
        directory, tensors, session.schedule, base=base, card=card(session, progress, tensors)
    )
    return directory


def named_as_in_model(session: Session, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Trained tensors of a students' state, as the checkpoint calls and stores them."""
    stored = stored_dtypes(weight_files(session.name))
    live = {name: p.dtype for name, p in session.model.named_parameters()}
    found = {}
    for layer in session.students.layers:
        prefix = names_in_model(session.model, layer)
        for name, parameter in session.students.modules[layer].named_parameters():
            if parameter.requires_grad:
                full = prefix + name
                found[full] = state[f"{layer}.{name}"].to(stored.get(full, live[full]))
    return found


def card(session: Session, progress: Progress, tensors: Mapping[str, Tensor]) -> str:
    """The model card."""
    config, schedule = session.config, session.schedule
    count = sum(t.numel() for t in tensors.values())
    whole = sum(p.numel() for p in session.model.parameters())
    layers = ", ".join(str(session.where.layout.layer_ids[i]) for i in session.students.layers)
    lines = [
        "---",
        f"base_model: {session.base['model']}",
        f"license: {config.licence}",
        "library_name: dsa-evalkit",
        "tags: [deepseek-sparse-attention, indexer, distillation]",
        "---",
        "",
        f"# Distilled indexers of {session.base['model']} for `{schedule}`",
        "",
        f"{count:,} parameters ({count / whole:.2%} of the model), those of the indexers of layers"
        f" {layers}. Everything else is the base model's, unchanged. They serve the layers that"
        " reuse their selections and are of use under this schedule only.",
        "",
        "## How they were made",
        "",
        f"- start: {config.student.start}{_choices(progress)}",
        f"- gradient: {progress.best_step} of {config.train.steps} steps kept,"
        f" λ = {config.loss.kl_share:g} (KL) / {1 - config.loss.kl_share:g} (ListMLE),"
        f" teacher {config.teacher.kind} ({config.teacher.combine}), {config.train.states} states",
        f"- text: {config.data.source.kind}, {session.data.facts['tokens']['train']:,} training"
        f" tokens in sequences of {config.data.length};"
        f" tokens sha256 {session.data.sha256[:16]}",
        f"- time: {progress.seconds:.0f} s",
        "",
        "## Probes on held-out text",
        "",
        "| measure | undistilled | distilled |",
        "|---|---|---|",
        *(
            f"| {text} | {_shown(progress.before, key)} | {_shown(progress.after, key)} |"
            for key, text in shown_probes(config.choice.tail).items()
        ),
        "",
        *(f"Note: {warning}.\n" for warning in (*session.warnings, *progress.warnings)),
        "Probes do not replace an evaluation: compare the arm with its undistilled twin.",
        "",
        "## Recipe",
        "",
        "```json",
        config.model_dump_json(indent=2, exclude={"evaluation"}),
        "```",
        "",
    ]
    return "\n".join(lines)


def shown_probes(tail: float) -> dict[str, str]:
    """Probes with their names; where all positions count alike, there is no second logit KL."""
    return {k: text for k, text in PROBES.items() if tail < 1 or k != "logit_kl_tail"}


def _choices(progress: Progress) -> str:
    chosen = [f"{c['layer']} from {c['chosen']}" for c in progress.choices]
    return f" (layer {', '.join(chosen)})" if chosen else ""


def _shown(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    return f"{value:.4f}" if isinstance(value, float) else "–"
