"""Training checkpoints: written whole or not at all, checked before they are trusted.

state/<step>/students.safetensors    fp32 indexers
             best.safetensors        the ones kept so far
             optimizer.safetensors   AdamW moments
             state.json              step, train state, hashes of the three, identity of the run
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from distill.errors import DistillError, first_line, saving
from distill.training.identity import upgraded_identity
from distill.training.state import TrainState
from evalkit.dsa.files import file_sha256, follow_umask

KEEP = 2

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class TrainingCheckpoint:
    """Everything that a run goes on from.

    Attributes:
        state: what the loop remembers.
        students: fp32 indexers.
        best: the ones kept so far.
        optimizer: AdamW moments, see `optimizer_tensors`.
    """

    state: TrainState
    students: Tensors
    best: Tensors
    optimizer: Tensors

    def tensors(self) -> dict[str, Tensors]:
        """Files by name."""
        return {"students": self.students, "best": self.best, "optimizer": self.optimizer}


def save_checkpoint(
    directory: Path, checkpoint: TrainingCheckpoint, identity: Mapping[str, object]
) -> None:
    """Write state/<step> and drop all but the last two.

    Raises:
        EvalkitError: the disk is full; the states before stay.
    """
    with saving(directory / "state"):
        _save(directory / "state", checkpoint, identity)


def _save(root: Path, checkpoint: TrainingCheckpoint, identity: Mapping[str, object]) -> None:
    new = root / ".new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    hashes = {}
    for name, tensors in checkpoint.tensors().items():
        contiguous = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
        save_file(contiguous, new / f"{name}.safetensors")
        hashes[name] = file_sha256(new / f"{name}.safetensors")
    state = checkpoint.state
    record = {
        "step": state.step,
        "sha256": hashes,
        "identity": dict(identity),
        "progress": state.record(),
    }
    (new / "state.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    follow_umask(new)
    target = root / f"{state.step:08d}"
    shutil.rmtree(target, ignore_errors=True)
    new.rename(target)
    for old in sorted(p for p in root.iterdir() if p.name.isdigit())[:-KEEP]:
        shutil.rmtree(old)


def load_checkpoint(directory: Path, identity: Mapping[str, object]) -> TrainingCheckpoint | None:
    """The newest checkpoint, or None where there is none.

    Raises:
        DistillError: it is damaged or belongs to another run; the message names file and field.
    """
    root = directory / "state"
    states = sorted(p for p in root.iterdir() if p.name.isdigit()) if root.is_dir() else []
    if not states:
        return None
    newest = states[-1]
    try:
        record = json.loads((newest / "state.json").read_text(encoding="utf-8"))
        before = upgraded_identity(record["identity"])
        hashes = dict(record["sha256"])
        state = TrainState.from_record(record["progress"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = first_line(error)
        raise DistillError(f"{newest / 'state.json'}: damaged: {message}") from None
    before.setdefault("base_config", identity.get("base_config"))  # 0.1 did not record it
    changed = [k for k in {**before, **identity} if before.get(k) != identity.get(k)]
    if changed:
        raise DistillError(
            f"{newest}: belongs to another run; changed: {', '.join(sorted(changed))}. Use another"
            " --out, or the old recipe"
        )
    tensors = {}
    for name in ("students", "best", "optimizer"):
        path = newest / f"{name}.safetensors"
        if not path.is_file() or file_sha256(path) != hashes.get(name):
            raise DistillError(f"{path}: damaged; remove {newest} to go on from the state before")
        try:
            tensors[name] = load_file(path)
        except SafetensorError as error:
            raise DistillError(f"{path}: {error}") from None
    return TrainingCheckpoint(state, tensors["students"], tensors["best"], tensors["optimizer"])


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
        placed = value if field == "step" else value.to(parameter.device)
        optimizer.state[parameter][field] = placed.clone()
