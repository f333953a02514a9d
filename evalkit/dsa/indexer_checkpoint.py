"""A trained indexer as files, and its place in a model.

A directory holds

    indexer.safetensors   only the trained tensors, under the model's own names and dtypes
    schedule.json         the schedule they were trained for, hashes, facts of the base model
    README.md             the model card

`apply_indexer` puts them into a live model for a while and takes them out again exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from evalkit.dsa.files import file_sha256, replacing
from evalkit.dsa.indexer_metadata import (
    FORMAT,
    INDEXER_FILE,
    SCHEDULE_FILE,
    IndexerFileError,
    indexer_facts,
    read_schedule,
    schedule_facts,
)
from evalkit.dsa.schedule import ReuseSchedule

CARD_FILE = "README.md"


def save_indexer(
    directory: Path,
    tensors: Mapping[str, Tensor],
    schedule: ReuseSchedule,
    *,
    base: Mapping[str, Any],
    card: str,
) -> None:
    """Write an indexer directory; a half-written one is never left behind under these names.

    Args:
        directory: made if absent.
        tensors: trained tensors by the model's own parameter names.
        schedule: what they were trained for.
        base: facts of the base model (name, hash, model type), for the reader.
        card: text of the model card.
    """
    clean = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(directory / INDEXER_FILE) as fresh:
        # One key: the writer has no order for several, and equal tensors are to make equal files.
        save_file(clean, fresh, metadata={"format": "pt"})
        fresh.chmod(0o644)  # safetensors makes files that nobody else can read
    facts = {
        "format": FORMAT,
        "schedule": schedule_facts(schedule),
        "tensors": sorted(clean),
        "indexer_sha256": file_sha256(directory / INDEXER_FILE),
        "base": dict(base),
    }
    for name, text in {
        SCHEDULE_FILE: json.dumps(facts, indent=2, ensure_ascii=False) + "\n",
        CARD_FILE: card,
    }.items():
        with replacing(directory / name) as fresh:
            fresh.write_text(text, encoding="utf-8")


def load_indexer(directory: Path) -> dict[str, Tensor]:
    """The tensors by name, checked against the hash that was written with them.

    Raises:
        IndexerFileError: files are missing, damaged or do not belong together.
    """
    indexer_facts(directory)
    path = directory / INDEXER_FILE
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise IndexerFileError(f"{path}: damaged: {error}") from None


@contextmanager
def apply_indexer(
    model: nn.Module, directory: Path, schedule: ReuseSchedule | None = None
) -> Iterator[None]:
    """Let `model` use the indexers of a directory inside the block; undo exactly at its end.

    The model's own parameters are set aside, not written, and the very same objects come back.
    May stand inside or outside of `apply_schedule`.

    Args:
        model: the model that the indexers were trained for.
        directory: from `save_indexer`.
        schedule: the schedule in force; refused when it is not the one they were trained for.

    Raises:
        IndexerFileError: another schedule, or tensors that the model does not have in this shape.
    """
    trained_for = read_schedule(directory)
    if schedule is not None and schedule != trained_for:
        raise IndexerFileError(
            f"{directory}: trained for the schedule {trained_for}, not for {schedule}"
        )
    fitting = _fitting(model, load_indexer(directory), directory)
    own: list[tuple[nn.Module, str, nn.Parameter]] = []
    try:
        for name, tensor in fitting.items():
            path, _, leaf = name.rpartition(".")
            module = model.get_submodule(path)
            parameter: Any = module._parameters[leaf]
            own.append((module, leaf, parameter))
            fresh = tensor.to(device=parameter.device, dtype=parameter.dtype)
            module._parameters[leaf] = nn.Parameter(fresh, requires_grad=False)
        yield
    finally:
        for module, leaf, parameter in reversed(own):
            module._parameters[leaf] = parameter


def _fitting(model: nn.Module, tensors: Mapping[str, Tensor], where: Path) -> dict[str, Tensor]:
    """The tensors under the names of the live model, each checked."""
    parameters = dict(model.named_parameters())
    for name, tensor in tensors.items():
        if name not in parameters:
            raise IndexerFileError(f"{where / INDEXER_FILE}: the model has no tensor {name}")
        own = parameters[name]
        if own.shape != tensor.shape:
            raise IndexerFileError(
                f"{where / INDEXER_FILE}: {name} is {list(tensor.shape)}, the model's is"
                f" {list(own.shape)}"
            )
        if own.device.type == "meta" or not own.dtype.is_floating_point or own.itemsize == 1:
            raise IndexerFileError(
                f"{where / INDEXER_FILE}: {name} is {own.dtype} on {own.device} in the live model;"
                " load the model unquantised and not offloaded"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise IndexerFileError(
                f"{where / INDEXER_FILE}: {name} holds values that are no number"
            )
    return dict(tensors)
