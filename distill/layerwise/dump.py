"""What a model's indexers read, on disk: left there by whoever ran the model, an engine or us.

    manifest.json              written last: a directory without it is no dump
    <layer>/<n>.safetensors    a shard: one layer (its id), some sequences; of each of them
        <split>/<number>/tokens    int32 [S], no padding
        <split>/<number>/hidden    [S, hidden], the attention block's input after the input norm
        <split>/<number>/q_latent  [S, q_lora_rank], the query latent after its norm

Hidden states and latent are the two inputs of the layer's ``indexer`` module, in the precision in
which the model ran. Sequences are those of ``distill data``, by split and number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from typing_extensions import TypedDict

from distill.errors import DistillError, first_line, saving
from distill.models.load import BaseFacts
from evalkit.core.files import write_atomic
from evalkit.dsa.files import file_sha256, replacing

MANIFEST, FORMAT = "manifest.json", 1


class Shard(TypedDict):
    """One file of a dump.

    Attributes:
        file: relative to the dump.
        sha256: of its bytes.
        layer: layer id.
        sequences: their names, ``<split>/<number>``.
    """

    file: str
    sha256: str
    layer: int
    sequences: list[str]


class Manifest(TypedDict):
    """manifest.json.

    Attributes:
        format: version of this format.
        base: what identifies the model; see `distill.models.load.base_facts`.
        dtype: of hidden states and latents, as torch names it.
        tokens_sha256: of the text, as ``distill data`` prints it.
        shards: see `Shard`.
    """

    format: int
    base: BaseFacts
    dtype: str
    tokens_sha256: str
    shards: list[Shard]


@dataclass(frozen=True, slots=True)
class IndexerInputs:
    """One sequence at one layer.

    Attributes:
        tokens: ids of what was run [S].
        hidden: attention-block input after the input norm [S, hidden].
        q_latent: query latent after its norm [S, q_lora_rank]; None where the family has none.
    """

    tokens: Tensor
    hidden: Tensor
    q_latent: Tensor | None


class DumpWriter:
    """Writes a dump; a hook in an engine calls it as ours does (`distill.layerwise.dumper`)."""

    def __init__(self, directory: Path, base: BaseFacts, tokens_sha256: str) -> None:
        """Begin a dump of a model (`base_facts`) on some text (`PackedText.sha256`).

        Raises:
            DistillError: there is a dump already.
        """
        if (directory / MANIFEST).exists():
            raise DistillError(
                f"{directory}: holds a dump already; use another --out, or remove it"
            )
        self._directory, self._base, self._tokens = directory, base, tokens_sha256
        self._dtype: torch.dtype | None = None
        self._shards: list[Shard] = []

    def add(self, layer: int, sequences: Mapping[str, IndexerInputs]) -> None:
        """Write one shard.

        Args:
            layer: layer id.
            sequences: by name, ``<split>/<number>``.

        Raises:
            DistillError: the disk is full, or tensors are of several dtypes.
        """
        tensors: dict[str, Tensor] = {}
        for name, inputs in sequences.items():
            self._dtype = self._dtype or inputs.hidden.dtype
            tensors[f"{name}/tokens"] = inputs.tokens.int()
            tensors[f"{name}/hidden"] = inputs.hidden
            if inputs.q_latent is not None:
                tensors[f"{name}/q_latent"] = inputs.q_latent
        if any(t.is_floating_point() and t.dtype != self._dtype for t in tensors.values()):
            raise DistillError(f"layer {layer}: not all of dtype {self._dtype}: dump one precision")
        file = f"{layer}/{len(self._shards):05}.safetensors"
        with saving(self._directory), replacing(self._directory / file) as new_file:
            save_file({k: t.detach().cpu().contiguous() for k, t in tensors.items()}, new_file)
        sha256 = file_sha256(self._directory / file)
        shard = Shard(file=file, sha256=sha256, layer=layer, sequences=list(sequences))
        self._shards.append(shard)

    def finish(self) -> None:
        """Write the manifest: now it is a dump."""
        manifest = Manifest(
            format=FORMAT,
            base=self._base,
            dtype=str(self._dtype).removeprefix("torch."),
            tokens_sha256=self._tokens,
            shards=self._shards,
        )
        write_atomic(self._directory / MANIFEST, json.dumps(manifest, indent=1) + "\n")


class Dump:
    """A dump that was read and checked against its hashes.

    Attributes:
        directory: where it lies.
        manifest: what it says of itself.
        sha256: of the manifest, and so of every byte.
    """

    def __init__(self, directory: Path) -> None:
        """Read the manifest and every shard once, for its hash.

        Raises:
            DistillError: something is missing or was changed.
        """
        path = directory / MANIFEST
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            self.manifest = TypeAdapter(Manifest).validate_python(record)
            self.sha256 = file_sha256(path)
        except (OSError, ValueError) as error:
            raise DistillError(
                f"{path}: missing or damaged: {first_line(error)}; write the dump anew"
            ) from None
        if self.manifest["format"] != FORMAT:
            raise DistillError(
                f"{path}: format {self.manifest['format']}; this version reads format {FORMAT}"
            )
        self.directory = directory
        self._shards: dict[tuple[int, str], Path] = {}
        for shard in self.manifest["shards"]:
            self._add(shard)

    def _add(self, shard: Shard) -> None:
        path = self.directory / shard["file"]
        try:
            unchanged = file_sha256(path) == shard["sha256"]
        except OSError as error:
            raise DistillError(f"{path}: missing: {first_line(error)}; dump it again") from None
        if not unchanged:
            raise DistillError(f"{path}: was changed since it was dumped; dump it again")
        for name in shard["sequences"]:
            self._shards[shard["layer"], name] = path

    def require(self, base: BaseFacts, tokens_sha256: str, dtype: torch.dtype) -> None:
        """Refuse a dump of another model, other text or another precision.

        Raises:
            DistillError: says which.
        """
        dumped = self.manifest["base"]
        for ours, theirs, what in (
            (base["fingerprint"], dumped["fingerprint"], "weights"),
            (base["config_sha256"], dumped["config_sha256"], "config.json"),
        ):
            if ours != theirs:
                raise DistillError(
                    f"{self.directory}: dumped from {dumped['model']}, whose {what} is not that of"
                    f" {base['model']}; dump the model that the recipe names"
                )
        if self.manifest["tokens_sha256"] != tokens_sha256:
            raise DistillError(
                f"{self.directory}: dumped on other text (tokens sha256"
                f" {self.manifest['tokens_sha256'][:16]}, the recipe's {tokens_sha256[:16]}); dump"
                " the sequences that `distill data` packs"
            )
        wanted = str(dtype).removeprefix("torch.")
        if self.manifest["dtype"] != wanted:
            raise DistillError(
                f"{self.directory}: holds {self.manifest['dtype']}, the recipe runs in {wanted};"
                f" set dtype = {self.manifest['dtype']!r}"
            )

    def read(self, layer: int, name: str, tokens: Tensor, device: torch.device) -> IndexerInputs:
        """One sequence at one layer.

        Args:
            layer: layer id.
            name: ``<split>/<number>``.
            tokens: what must have been run [S].
            device: of the result.

        Raises:
            DistillError: it is not there, or other tokens were run.
        """
        path = self._shards.get((layer, name))
        if path is None:
            raise DistillError(
                f"{self.directory}: no hidden states of {name} at layer {layer}; dump every"
                " sequence, and every layer that trains or teaches in the recipe"
            )
        try:
            with safe_open(path, framework="pt", device=str(device)) as file:
                latent = f"{name}/q_latent"
                inputs = IndexerInputs(
                    tokens=file.get_tensor(f"{name}/tokens"),
                    hidden=file.get_tensor(f"{name}/hidden"),
                    q_latent=file.get_tensor(latent) if latent in file.keys() else None,  # noqa: SIM118
                )
        except (OSError, SafetensorError) as error:
            raise DistillError(f"{path}: damaged: {first_line(error)}; dump it again") from None
        if not torch.equal(inputs.tokens, tokens.to(inputs.tokens)):
            raise DistillError(
                f"{path}: {name} was run with other token ids than the recipe's (a token put in"
                " front, a cut prompt?); give the engine the ids, not the text"
            )
        if len(inputs.hidden) != len(tokens):
            raise DistillError(
                f"{path}: {name} has {len(inputs.hidden)} hidden states for {len(tokens)} tokens"
            )
        return inputs
