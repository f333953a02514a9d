"""Tensors on disk by name: hidden states, selections, teachers; read in parts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from distill.errors import DistillError
from evalkit.dsa.files import replacing


class TensorStore:
    """A directory of safetensors files, one per name such as ``original/3/train/0``.

    Attributes:
        root: the directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, name: str, **tensors: Tensor | None) -> None:
        """Write some tensors under a name; None is left out.

        Raises:
            DistillError: the disk is full or may not be written.
        """
        path = self._path(name)
        contiguous = {k: v.detach().cpu().contiguous() for k, v in tensors.items() if v is not None}
        try:
            with replacing(path) as new_file:
                save_file(contiguous, new_file)
        except (OSError, SafetensorError) as error:
            raise DistillError(
                f"{path}: cannot be written: {error}; with room there the same command goes on"
            ) from None

    def get(self, name: str, device: torch.device) -> dict[str, Tensor]:
        """All tensors of a name.

        Raises:
            DistillError: they are missing or damaged.
        """
        with self._read(name) as path:
            return load_file(path, device=str(device))

    def row(self, name: str, row: int, device: torch.device) -> dict[str, Tensor]:
        """One row [1, ...] of each tensor of a name; nothing else is read.

        Raises:
            DistillError: they are missing or damaged.
        """
        with self._read(name) as path, safe_open(path, framework="pt", device=str(device)) as file:
            return {key: file.get_slice(key)[row : row + 1] for key in file.keys()}  # noqa: SIM118

    @contextmanager
    def _read(self, name: str) -> Iterator[Path]:
        path = self._path(name)
        try:
            yield path
        except (OSError, SafetensorError) as error:
            raise DistillError(
                f"{path}: missing or damaged: {error}; remove {self.root.parent} to begin again"
            ) from None

    def __contains__(self, name: str) -> bool:
        return self._path(name).is_file()

    def drop(self, prefix: str) -> None:
        """Remove everything whose name begins with a prefix (whole parts of a name)."""
        shutil.rmtree(self.root / prefix, ignore_errors=True)

    def bytes_used(self) -> int:
        """On disk now."""
        return sum(p.stat().st_size for p in self.root.rglob("*.safetensors"))

    def _path(self, name: str) -> Path:
        return self.root / f"{name}.safetensors"
