"""Trained indexers as files: written, read, and put into a live model.

A directory holds

    indexer.safetensors   only the trained tensors, under the model's own names and dtypes
    schedule.json         the schedule they were trained for, hashes, facts of the base model
    README.md             the model card

`apply_indexer` lets a live model use them inside a block and restores its own exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
    sealed,
)
from evalkit.dsa.json_types import JsonObject
from evalkit.dsa.schedule import ReuseSchedule

CARD_FILE = "README.md"


def save_indexer(
    directory: Path,
    tensors: Mapping[str, Tensor],
    schedule: ReuseSchedule,
    *,
    base: JsonObject,
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
    saved = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(directory / INDEXER_FILE) as temporary:
        # One key: the writer has no order for several, and equal tensors are to make equal files.
        save_file(saved, temporary, metadata={"format": "pt"})
    facts = sealed(
        {
            "format": FORMAT,
            "schedule": schedule_facts(schedule),
            "tensors": sorted(saved),
            "indexer_sha256": file_sha256(directory / INDEXER_FILE),
            "base": dict(base),
        }
    )
    for name, text in {
        SCHEDULE_FILE: json.dumps(facts, indent=2, ensure_ascii=False) + "\n",
        CARD_FILE: card,
    }.items():
        with replacing(directory / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


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
    tensors = _checked(model, load_indexer(directory), directory / INDEXER_FILE)
    replaced: list[tuple[nn.Module, str, nn.Parameter]] = []
    try:
        for name, tensor in tensors.items():
            path, _, leaf = name.rpartition(".")
            module, parameter = model.get_submodule(path), model.get_parameter(name)
            replaced.append((module, leaf, parameter))
            trained = tensor.to(device=parameter.device, dtype=parameter.dtype)
            module._parameters[leaf] = nn.Parameter(trained, requires_grad=False)
        yield
    finally:
        for module, leaf, parameter in reversed(replaced):
            module._parameters[leaf] = parameter


def _checked(model: nn.Module, tensors: Mapping[str, Tensor], file: Path) -> Mapping[str, Tensor]:
    """The tensors of a file, if the live model has all of them in this shape."""
    parameters = dict(model.named_parameters())
    for name, tensor in tensors.items():
        if name not in parameters:
            raise IndexerFileError(f"{file}: the model has no tensor {name}")
        parameter = parameters[name]
        if parameter.shape != tensor.shape:
            raise IndexerFileError(
                f"{file}: {name} is {list(tensor.shape)}, the model's is {list(parameter.shape)}"
            )
        quantised = not parameter.dtype.is_floating_point or parameter.itemsize == 1
        if parameter.device.type == "meta" or quantised:
            raise IndexerFileError(
                f"{file}: {name} is {parameter.dtype} on {parameter.device} in the live model;"
                " load the model unquantised and not offloaded"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise IndexerFileError(f"{file}: {name} contains NaN or infinite values")
    return tensors
