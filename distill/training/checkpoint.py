"""Resumable states: written whole or not at all, checked before they are trusted.

state/<step>/students.safetensors    fp32 indexers
             best.safetensors        the ones kept so far
             optimizer.safetensors   AdamW moments
             state.json              step, best score, hashes of the three, identity of the run
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from distill.errors import DistillError
from evalkit.dsa.files import file_sha256

FILES = ("students", "best", "optimizer")
KEEP = 2


def save_state(
    directory: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    facts: Mapping[str, Any],
    identity: Mapping[str, Any],
) -> None:
    """Write state/<step> and drop all but the last two."""
    root = directory / "state"
    fresh = root / ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    hashes = {}
    for name in FILES:
        clean = {k: v.detach().cpu().contiguous() for k, v in tensors[name].items()}
        save_file(clean, fresh / f"{name}.safetensors")
        hashes[name] = file_sha256(fresh / f"{name}.safetensors")
    record = {"step": step, "sha256": hashes, "identity": dict(identity), **facts}
    (fresh / "state.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    target = root / f"{step:08d}"
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    for old in sorted(p for p in root.iterdir() if p.name.isdigit())[:-KEEP]:
        shutil.rmtree(old)


def load_state(
    directory: Path, identity: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]] | None:
    """The newest state (facts, tensors), or None where there is none.

    Raises:
        DistillError: it is damaged or belongs to another run; the message names file and field.
    """
    root = directory / "state"
    states = sorted(p for p in root.iterdir() if p.name.isdigit()) if root.is_dir() else []
    if not states:
        return None
    newest = states[-1]
    try:
        record: dict[str, Any] = json.loads((newest / "state.json").read_text(encoding="utf-8"))
        before: dict[str, Any] = record["identity"]
        hashes: dict[str, str] = record["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DistillError(f"{newest / 'state.json'}: damaged: {error}") from None
    changed = [k for k in {**before, **identity} if before.get(k) != identity.get(k)]
    if changed:
        raise DistillError(
            f"{newest}: belongs to another run; changed: {', '.join(sorted(changed))}. Use another"
            " --out, or the old recipe"
        )
    tensors = {}
    for name in FILES:
        path = newest / f"{name}.safetensors"
        if not path.is_file() or file_sha256(path) != hashes.get(name):
            raise DistillError(f"{path}: damaged; remove {newest} to go on from the state before")
        try:
            tensors[name] = load_file(path)
        except SafetensorError as error:
            raise DistillError(f"{path}: {error}") from None
    return record, tensors


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, named: Mapping[str, nn.Parameter]
) -> dict[str, Tensor]:
    """AdamW's state as ``"<parameter>/<field>"``."""
    return {
        f"{name}/{field}": value
        for name, parameter in named.items()
        for field, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer,
    named: Mapping[str, nn.Parameter],
    tensors: Mapping[str, Tensor],
) -> None:
    """Put back what `optimizer_tensors` gave."""
    for key, value in tensors.items():
        name, _, field = key.rpartition("/")
        parameter = named[name]
        on = value.clone() if field == "step" else value.to(parameter.device).clone()
        optimizer.state[parameter][field] = on
