"""A safetensors checkpoint tensor by tensor: where each one lies, read, dequantise, overwrite.

Nothing is loaded but the tensor asked for, so a checkpoint may be far larger than memory.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

import torch
from torch import Tensor

from distill.checkpoint.fp8 import BLOCK, dequantise
from distill.errors import DistillError
from distill.models.load import weight_files
from evalkit.dsa.json_types import JsonValue

INDEX_FILE = "model.safetensors.index.json"
_FP8 = ("F8_E4M3", "F8_E5M2")
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a tensor lies.

    Attributes:
        file: its shard.
        dtype: as safetensors writes it (``BF16``, ``F8_E4M3`` …).
        shape: of the tensor.
        start: first byte in the file.
        size: in bytes.
    """

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int


class _HeaderEntry(TypedDict):
    """One tensor in the header of a safetensors file."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class _Quantisation(TypedDict, total=False):
    """What is read of config.json's ``quantization_config``."""

    weight_block_size: list[int] | None
    scale_fmt: str | None


class Checkpoint:
    """The weight files of a model directory, or of a hub model in the cache.

    Attributes:
        directory: where they lie.
        entries: by tensor name.
        config: config.json.
    """

    def __init__(self, name: str) -> None:
        files = weight_files(name)
        if not files:
            raise DistillError(f"model {name}: no safetensors files (on disk, or in the hub cache)")
        self.directory = files[0].parent
        self.config: dict[str, JsonValue] = _json(self.directory / "config.json")
        self.entries: dict[str, Entry] = {}
        for path in _in_use(self.directory, files):
            for tensor, entry in entries_of(path).items():
                if tensor in self.entries:
                    first = self.entries[tensor].file.name
                    raise DistillError(f"{path}: {tensor} is in {first} as well")
                self.entries[tensor] = entry

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns that share an FP8 scale."""
        rows, columns = self._quantisation.get("weight_block_size") or BLOCK
        return int(rows), int(columns)

    @property
    def scales_are_powers(self) -> bool:
        """Whether FP8 scales are powers of two (``scale_fmt: ue8m0``)."""
        return self._quantisation.get("scale_fmt") == "ue8m0"

    @property
    def _quantisation(self) -> _Quantisation:
        return cast(_Quantisation, self.config.get("quantization_config") or {})

    def scale_of(self, name: str) -> str | None:
        """Name of a tensor's block scales; None where it is not block-quantised.

        Raises:
            DistillError: an FP8 tensor without scales.
        """
        if self.entries[name].dtype not in _FP8:
            return None
        for scale in (f"{name}_scale_inv", f"{name.removesuffix('.weight')}.scale"):
            if scale in self.entries:
                return scale
        raise DistillError(f"{self.entries[name].file}: {name} is FP8 and has no block scales")

    def read(self, name: str) -> Tensor:
        """A tensor as it is stored.

        Raises:
            DistillError: of a type or size that is not known.
        """
        entry = self.entries[name]
        kind = _TYPES.get(entry.dtype)
        if kind is None:
            raise DistillError(f"{entry.file}: {name} is stored as {entry.dtype}: not known here")
        # Not by mapping the file: a mapping of a whole shard counts against memory limits.
        tensor = torch.empty(entry.shape, dtype=kind)
        if tensor.numel() * tensor.itemsize != entry.size:
            raise DistillError(f"{entry.file}: {name}: {entry.size} bytes for {list(entry.shape)}")
        with entry.file.open("rb") as handle:
            handle.seek(entry.start)
            handle.readinto(memoryview(tensor.flatten().view(torch.uint8).numpy()))  # type: ignore[arg-type]
        return tensor

    def plain(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor with its block scales multiplied in; other tensors as they are stored.

        Args:
            name: of the tensor.
            dtype: of floating-point results; None: as stored, bf16 for what was FP8.
        """
        scale = self.scale_of(name)
        if scale is not None:
            try:
                wide = dtype or torch.bfloat16
                return dequantise(self.read(name), self.read(scale), self.block, wide)
            except ValueError as error:
                raise DistillError(f"{self.entries[name].file}: {name}: {error}") from None
        tensor = self.read(name)
        return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor

    def is_scale(self, name: str) -> bool:
        """Whether a tensor holds the block scales of another one."""
        weight = name.removesuffix("_scale_inv")
        if weight == name:
            weight = f"{name.removesuffix('.scale')}.weight"
        entry = self.entries.get(weight) if weight != name else None
        return entry is not None and entry.dtype in _FP8


def entries_of(path: Path) -> dict[str, Entry]:
    """The header of one safetensors file.

    Raises:
        DistillError: it is damaged.
    """
    try:
        with path.open("rb") as handle:
            (length,) = struct.unpack("<Q", handle.read(8))
            header: dict[str, _HeaderEntry] = json.loads(handle.read(length))
        entries = {
            name: Entry(
                path,
                entry["dtype"],
                tuple(entry["shape"]),
                8 + length + entry["data_offsets"][0],
                entry["data_offsets"][1] - entry["data_offsets"][0],
            )
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (OSError, struct.error, ValueError, KeyError, TypeError) as error:
        raise DistillError(f"{path}: not a safetensors file: {error}") from None
    end = max((entry.start + entry.size for entry in entries.values()), default=0)
    if path.stat().st_size < end:
        raise DistillError(f"{path}: cut off: {path.stat().st_size} of {end} bytes")
    return entries


def overwrite(entry: Entry, tensor: Tensor, file: Path) -> None:
    """Write a tensor of the same type and shape over an old one; no other byte changes."""
    data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    if len(data) != entry.size or tuple(tensor.shape) != entry.shape:
        raise ValueError(f"{list(tensor.shape)}, {len(data)} bytes: another size than {entry}")
    with file.open("r+b") as handle:
        handle.seek(entry.start)
        handle.write(data)


def _in_use(directory: Path, files: list[Path]) -> list[Path]:
    """The files that the index names; all of them where there is no index."""
    index = directory / INDEX_FILE
    if not index.is_file():
        return files
    shard_of = cast(Mapping[str, str], _json(index).get("weight_map", {}))
    names = sorted(set(shard_of.values()))
    missing = [name for name in names if not (directory / name).is_file()]
    if missing:
        raise DistillError(
            f"{index}: {len(missing)} of {len(names)} shards are missing, first {missing[0]}"
        )
    return [directory / name for name in names]


def _json(path: Path) -> dict[str, JsonValue]:
    try:
        values: dict[str, JsonValue] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DistillError(f"{path}: cannot be read: {error}") from None
    return values
