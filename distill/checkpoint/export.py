"""A complete checkpoint with distilled indexers in it, for transformers, SGLang and vLLM.

Shards that hold a trained tensor are copied and the tensor's bytes overwritten in the copy: same
names, same types, same places, so that header, index and every other byte stay as they are. All
other shards are hard-linked (copied where that cannot be), all small files copied. config.json
carries the schedule, and schedule.json binds it to the tensors by hash.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from distill.checkpoint.fp8 import quantise
from distill.checkpoint.sharded import Checkpoint, overwrite
from distill.errors import DistillError, saving
from distill.models.load import fingerprint, stored_dtypes, weight_files
from distill.models.sizes import meta_model
from evalkit.core.files import write_atomic
from evalkit.dsa import ReuseSchedule, ScheduleError
from evalkit.dsa.engine_config.export import export, read
from evalkit.dsa.exported_checkpoint import export_facts
from evalkit.dsa.families.registry import family_of
from evalkit.dsa.indexer_checkpoint import CARD_FILE, load_indexer
from evalkit.dsa.indexer_metadata import (
    SCHEDULE_FILE,
    IndexerFileError,
    config_sha256,
    indexer_facts,
    read_schedule,
)
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.dsa.layout import layout

BASE_CARD = "README.base.md"
UNSCHEDULED = (
    "transformers alone runs every indexer of this checkpoint, without the schedule; evalkit"
    " applies it, or says which pattern the arm must name"
)
_FREQUENCY = ("index_topk_freq", "index_skip_topk_offset")
# Engines that a checkpoint's config.json is for, besides transformers.
_LAYERS = ("sglang", "vllm", "vllm-ascend")
_C4 = ("vllm-ascend-v4", "vllm-v4-pr51209", "ascend-sglang-v4", "sglang-v4")


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    Attributes:
        directory: the checkpoint.
        rewritten: shards with trained tensors.
        linked: shards that are the base's own files (hard links).
        copied: shards copied unchanged, where linking was not possible.
        tensors: trained tensors written, block scales included.
        requantised: how many of them are FP8 weights with new scales.
        settings: fields of config.json that carry the schedule.
        notes: what must be known beside it.
    """

    directory: Path
    rewritten: tuple[str, ...]
    linked: tuple[str, ...]
    copied: tuple[str, ...]
    tensors: int
    requantised: int
    settings: JsonObject
    notes: tuple[str, ...]


def export_checkpoint(indexer: Path, base: str, out: Path, *, copy: bool = False) -> Exported:
    """Write `base` with the indexers of a directory and their schedule to `out`.

    Args:
        indexer: from `distill train`.
        base: the model they were trained for: a directory, or a hub id in the cache.
        out: must not exist, or be empty; appears whole or not at all.
        copy: copy untouched shards even where they could be linked.

    Raises:
        DistillError: another base, a damaged file, a schedule no engine can be told, or `out` is
            in use.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DistillError(f"{out}: not empty; name another --out")
    try:
        facts, trained = indexer_facts(indexer), load_indexer(indexer)
        schedule = read_schedule(indexer)
    except IndexerFileError as error:
        raise DistillError(str(error)) from None
    checkpoint = Checkpoint(base)
    _same_base(facts["indexer_base"], base, checkpoint.directory, indexer)
    settings, notes = settings_for(checkpoint.config, schedule)
    writes, requantised = _writes(checkpoint, trained, indexer)
    new = out.parent / f".{out.name}.new"
    with saving(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(new, ignore_errors=True)
        try:
            linked, copied = _write_weights(new, checkpoint, writes, copy)
            _write_texts(new, checkpoint, settings, indexer)
            written = export_facts(new, schedule, writes, facts["indexer_base"])
            text = json.dumps(written, indent=2, ensure_ascii=False) + "\n"
            write_atomic(new / SCHEDULE_FILE, text)
            _verify(new, writes)
            if out.exists():
                out.rmdir()
            new.rename(out)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
    return Exported(
        directory=out,
        rewritten=tuple(sorted({checkpoint.entries[name].file.name for name in writes})),
        linked=tuple(linked),
        copied=tuple(copied),
        tensors=len(writes),
        requantised=requantised,
        settings=settings,
        notes=tuple(notes),
    )


def settings_for(
    config: JsonObject, schedule: ReuseSchedule
) -> tuple[dict[str, JsonValue], list[str]]:
    """Fields of config.json that make every engine of a model run a schedule, and notes.

    Raises:
        DistillError: the schedule is for other layers, or no engine can be told it.
    """
    try:
        base = layout(config)
        native = base.native
    except ScheduleError as error:
        raise DistillError(str(error)) from None
    if schedule.source != schedule.nearest:
        raise DistillError(
            f"schedule {schedule}: no engine's configuration carries a lag, so a checkpoint of it"
            " would run as another arm. Run it with evalkit (an arm with this schedule and"
            ' indexer = "…"), or load its tensors into an engine that implements the lag itself'
        )
    if schedule.layer_ids != native.layer_ids:
        raise DistillError(
            f"the schedule counts layers {list(schedule.layer_ids[:4])}…, the base has its indexers"
            f" in layers {list(native.layer_ids[:4])}…"
        )
    everywhere = schedule.layer_ids == tuple(range(len(schedule)))
    settings: dict[str, JsonValue] = {}
    ours = family_of(base.model_type).dialect
    notes, engines = [], [*(_LAYERS if everywhere else _C4), *([ours] if ours else [])]
    for engine in engines:
        try:
            fields = export(schedule, engine=engine, native=native, enabled=True).overrides
        except ScheduleError as error:
            notes.append(str(error) if str(error).startswith(engine) else f"{engine}: {error}")
            if engine == ours:
                notes.append(UNSCHEDULED)
            continue
        settings |= {k: v for k, v in fields.items() if k not in _FREQUENCY and "freq" not in k}
    if everywhere:  # together, whoever reads which
        settings["index_topk_pattern"] = schedule.pattern
        settings["indexer_types"] = ["full" if full else "shared" for full in schedule.computes]
    if not settings:
        raise DistillError(f"schedule {schedule}: no engine can be told it ({'; '.join(notes)})")
    for engine in engines:
        try:
            runs = read(settings, engine=engine, layers=schedule.layer_ids, native=native).schedule
        except ScheduleError:
            continue  # named among the notes already
        if runs != schedule and not any(note.startswith(engine) for note in notes):
            notes.append(f"{engine}: would run {runs}")
    return settings, notes


def _same_base(trained_on: JsonObject, base: str, directory: Path, indexer: Path) -> None:
    wanted = str(trained_on.get("fingerprint") or "")
    if wanted and wanted != fingerprint(weight_files(base)):
        name = trained_on.get("model", "another model")
        raise DistillError(
            f"{indexer} was trained on {name} with weights {wanted[:12]}; those of {base} are"
            " others. Indexers fit the very model they were trained on"
        )
    config = directory / "config.json"
    known = trained_on.get("config_sha256")
    if known and known != config_sha256(config):
        raise DistillError(
            f"{indexer} was trained on {trained_on.get('model')} under another configuration than"
            f" {config}: name the base as it was, or train again"
        )


def _writes(
    checkpoint: Checkpoint, trained: Mapping[str, Tensor], indexer: Path
) -> tuple[dict[str, Tensor], int]:
    """Tensors by their names in the files, as the files store them; how many were requantised."""
    names = checkpoint_names(checkpoint, trained)
    writes: dict[str, Tensor] = {}
    requantised = 0
    for name, tensor in trained.items():
        stored = names.get(name)
        if stored is None:
            raise DistillError(f"{indexer}: the base has no tensor {name}")
        entry = checkpoint.entries[stored]
        if entry.shape != tuple(tensor.shape):
            raise DistillError(
                f"{indexer}: {name} is {list(tensor.shape)}, the base's is {list(entry.shape)}"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise DistillError(f"{indexer}: {name} holds NaN or infinite values")
        scale = checkpoint.scale_of(stored)
        if scale is not None:
            kind = checkpoint.read(scale).dtype
            writes[stored], writes[scale] = quantise(
                tensor, checkpoint.block, kind, power_of_two=checkpoint.scales_are_powers
            )
            requantised += 1
            continue
        wanted = stored_dtypes([entry.file]).get(stored)
        if wanted is None:
            raise DistillError(f"{entry.file}: {stored} is stored as {entry.dtype}: not known here")
        writes[stored] = tensor.to(wanted)
    return writes, requantised


def checkpoint_names(checkpoint: Checkpoint, names: Mapping[str, Tensor]) -> dict[str, str]:
    """Names in the files of tensors that go by the names of the live model.

    They are the same for most families; for the others transformers knows the way back.
    """
    stored_names = {name: name for name in names if name in checkpoint}
    rest = {name: tensor for name, tensor in names.items() if name not in stored_names}
    if not rest:
        return stored_names
    from transformers import AutoConfig
    from transformers.core_model_loading import revert_weight_conversion

    model = meta_model(AutoConfig.from_pretrained(checkpoint.directory))
    for name, tensor in rest.items():
        for stored in revert_weight_conversion(model, {name: tensor}):
            for spelling in (stored, stored.removeprefix("model.")):
                if spelling in checkpoint:
                    stored_names[name] = spelling
    return stored_names


def _files(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.rglob("*")):
        inside = path.relative_to(directory).parts
        if path.is_file() and not any(part.startswith(".") for part in inside):
            yield path


def _write_weights(
    new: Path, checkpoint: Checkpoint, writes: Mapping[str, Tensor], copy: bool
) -> tuple[list[str], list[str]]:
    """The base's files with the trained tensors in them; names of shards linked, and copied."""
    touched = {checkpoint.entries[name].file.name for name in writes}
    linked, copied = [], []
    for path in _files(checkpoint.directory):
        target = new / path.relative_to(checkpoint.directory)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.name in touched or path.suffix != ".safetensors":
            shutil.copyfile(path.resolve(), target)
        elif _link(path, target, copy):
            linked.append(target.name)
        else:
            copied.append(target.name)
    for name, tensor in writes.items():
        entry = checkpoint.entries[name]
        overwrite(entry, tensor, new / entry.file.name)
    return linked, copied


def _link(path: Path, target: Path, copy: bool) -> bool:
    """Hard-link a file (the blob itself, where the hub cache links to it), or copy it."""
    if not copy:
        try:
            os.link(path.resolve(), target)
        except OSError:
            pass  # another file system, or one without links
        else:
            return True
    shutil.copyfile(path.resolve(), target)
    return False


def _write_texts(
    directory: Path, checkpoint: Checkpoint, settings: JsonObject, indexer: Path
) -> None:
    """config.json with the schedule, the cards, and where the indexers came from."""
    config = json.loads(json.dumps(checkpoint.config))
    text = config.get("text_config") or config
    for name in _FREQUENCY:
        text.pop(name, None)  # a pattern says it all; two statements could contradict each other
    text.update(settings)
    card = directory / CARD_FILE
    if card.is_file():
        card.rename(directory / BASE_CARD)
    texts = {"config.json": json.dumps(config, indent=2, ensure_ascii=False) + "\n"}
    if (indexer / CARD_FILE).is_file():
        texts[CARD_FILE] = (indexer / CARD_FILE).read_text(encoding="utf-8")
    for name, content in texts.items():
        write_atomic(directory / name, content)


def _verify(directory: Path, writes: Mapping[str, Tensor]) -> None:
    """Read back what was written."""
    checkpoint = Checkpoint(str(directory))
    for name, tensor in writes.items():
        stored = checkpoint.read(name)
        if stored.dtype != tensor.dtype or not torch.equal(
            stored.view(torch.uint8), tensor.contiguous().view(torch.uint8)
        ):
            raise DistillError(f"{checkpoint.entries[name].file}: {name} reads back differently")
