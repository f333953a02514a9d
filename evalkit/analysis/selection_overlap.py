"""Overlap of the layers' top-k selections, and the recall of what each arm's sources supply.

Measured before any generation; see `evalkit.dsa.overlap` for the figures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.analysis.overlap_record import (
    ArmOverlap,
    LengthOverlap,
    MeanInterval,
    OverlapRecord,
)
from evalkit.config.selection import Selection
from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import optional_text
from evalkit.core.provenance import model_name
from evalkit.dsa import ReuseSchedule
from evalkit.engines.hf.config import HfConfig
from evalkit.engines.hf.engine import HfEngine
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import load_tokenizer
from evalkit.run.plan import RunPlan

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from evalkit.dsa.overlap_scan import Matrices

CONFIDENCE = 0.95
METRICS = {
    "jaccard": "|A ∩ B| / |A ∪ B| of two layers' selections",
    "selection_recall": "share of what a layer would select that its source supplies, mean over"
    " the layers that read another one's selection in decode, or all where it selects by a policy",
    "mass_recall": "share of the attention a layer pays that falls on what its source supplies,"
    " same layers",
}


@dataclass(frozen=True, slots=True)
class Document:
    """A long text.

    Attributes:
        name: sample id or file.
        ids: its tokens.
    """

    name: str
    ids: tuple[int, ...]


def task_documents(
    todo: RunPlan, model: str, count: int, task: str | None
) -> tuple[str, list[Document]]:
    """Prompts of the recipe's samples: the longest cell, or the one named.

    Raises:
        EvalkitError: no such cell.
    """
    renderer = ChatRenderer(load_tokenizer(model), todo.config.prompts)
    cells = [cell for cell in todo.tasks if task in (None, cell.name)]
    if not cells:
        known = ", ".join(cell.name for cell in todo.tasks)
        raise EvalkitError(f"--task {task}: not a task of the recipe ({known})")
    first = {cell.name: len(renderer.render(cell.sample(0, renderer)).token_ids) for cell in cells}
    cell = max(cells, key=lambda c: first[c.name])
    samples = [cell.sample(i, renderer) for i in range(min(count, todo.count(cell)))]
    return f"prompts of {cell.name}", [
        Document(sample.id, renderer.render(sample).token_ids) for sample in samples
    ]


def text_documents(paths: Sequence[Path], model: str, count: int) -> tuple[str, list[Document]]:
    """Texts of files: ``.txt`` (one document each) or ``.jsonl`` (field ``text`` or ``context``).

    Raises:
        EvalkitError: a file cannot be read or holds no text.
    """
    tokenizer = load_tokenizer(model)
    texts = [pair for path in paths for pair in _texts(path)][:count]
    names = ", ".join(path.name for path in paths)
    return names, [Document(n, tuple(tokenizer.encode(text))) for n, text in texts]


def _texts(path: Path) -> list[tuple[str, str]]:
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EvalkitError(f"{path}: cannot be read: {error}") from None
    if path.suffix != ".jsonl":
        return [(path.name, content)]
    texts = []
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            raise EvalkitError(f"{path}:{number}: not JSON") from None
        text = row.get("text") or row.get("context") if isinstance(row, dict) else None
        if not isinstance(text, str):
            raise EvalkitError(f"{path}:{number}: no field text or context")
        texts.append((f"{path.name}:{number}", text))
    return texts


def measure(
    todo: RunPlan,
    source: Callable[[str], tuple[str, list[Document]]],
    *,
    lengths: Sequence[int] | None = None,
    rows: int = 32,
    on_document: Callable[[str], None] = lambda _: None,
) -> OverlapRecord:
    """Measure the recipe's first checkpoint.

    Args:
        todo: from `evalkit.run.plan.plan`.
        source: documents for a checkpoint, and what they are.
        lengths: in tokens; default: the length of the shortest document, its half and quarter,
            as far as they exceed what is selected anyway.
        rows: query rows per length and document.
        on_document: called with the name of each document before it is read.

    Raises:
        EvalkitError: another engine, no indexers, or no document that is long enough.
    """
    from evalkit.dsa.attention import sees_attention
    from evalkit.dsa.overlap_scan import scan

    model, engine = next(iter(todo.models.values())), _engine_in_process(todo)
    facts, native = engine.load(model), engine.native()
    if native is None:
        raise EvalkitError(f"{model}: this model has no lightning indexer")
    data, documents = source(model)
    k = int(engine.model.config.get_text_config().index_topk)
    chosen = _lengths(documents, lengths, k)
    mass = sees_attention(engine.model)
    arms = _measured(todo, native)
    policies = list(dict.fromkeys(arm.selection for arm in arms.values() if arm.selection))
    chunk = engine.config.prefill_chunk
    run = partial(scan, engine.model, rows=rows, chunk=chunk, mass=mass, policies=policies)
    layers, scans = _scanned(run, engine.model.device, documents, chosen, on_document)
    return OverlapRecord(
        model=model_name(model),
        weights_sha256=optional_text(facts, "weights_sha256"),
        data=data,
        k=k,
        rows=rows,
        metrics=METRICS if mass else {n: t for n, t in METRICS.items() if n != "mass_recall"},
        layers=tuple(native.layer_ids[ordinal] for ordinal in layers),
        lengths=tuple(
            _at(length, matrices, layers, arms, policies) for length, matrices in scans.items()
        ),
        left_out=tuple(arm.name for arm in todo.config.arms if arm.name not in arms),
    )


def _engine_in_process(todo: RunPlan) -> HfEngine:
    """The engine that holds the model where its indexers can be observed."""
    config = todo.config.engine
    if not isinstance(config, HfConfig):
        raise EvalkitError("overlap needs the model in this process: engine.kind = hf")
    return HfEngine(config)


def _lengths(documents: Sequence[Document], asked: Sequence[int] | None, k: int) -> list[int]:
    """Lengths to measure at; at 2 k and below most of the text is selected whatever the scores."""
    sizes = sorted(len(document.ids) for document in documents)
    if not sizes:
        raise EvalkitError("no documents to measure on")
    if asked is None:
        asked = [n for n in (sizes[0] // 4, sizes[0] // 2, sizes[0]) if n > 2 * k] or [sizes[0]]
    least = min(asked)
    if least <= 2 * k:
        raise EvalkitError(
            f"length {least}: {k} keys are selected, so that overlap says something above"
            f" {2 * k} tokens only; use longer texts"
        )
    if max(asked) > sizes[-1]:
        raise EvalkitError(f"length {max(asked)}: the longest document has {sizes[-1]} tokens")
    return sorted(set(asked))


def _scanned(
    run: Callable[[Tensor, list[int]], tuple[tuple[int, ...], list[dict[int, Matrices]]]],
    device: torch.device,
    documents: Sequence[Document],
    chosen: Sequence[int],
    on_document: Callable[[str], None],
) -> tuple[tuple[int, ...], dict[int, list[list[Matrices]]]]:
    """Layers, and by length the matrices of every document that is as long, by policy."""
    import torch

    layers: tuple[int, ...] = ()
    scans: dict[int, list[list[Matrices]]] = {length: [] for length in chosen}
    for document in documents:
        if not (fitting := [length for length in chosen if length <= len(document.ids)]):
            continue
        on_document(document.name)
        ids = torch.tensor([document.ids[: max(fitting)]], device=device)
        layers, by_policy = run(ids, fitting)
        for length in fitting:
            scans[length].append([matrices[length] for matrices in by_policy])
    return layers, scans


@dataclass(frozen=True, slots=True)
class _Arm:
    """What is measured of an arm."""

    schedule: ReuseSchedule
    selection: Selection | None


def _measured(todo: RunPlan, native: ReuseSchedule) -> dict[str, _Arm]:
    """Arms of the measured checkpoint that a forward of it as trained says something about.

    Distilled indexers select otherwise, and reuse over time shows in decode alone.
    """
    model = next(iter(todo.models.values()))
    return {
        arm.name: _Arm(arm.schedule(native), arm.selection)
        for arm in todo.config.arms
        if arm.indexer is None and todo.models[arm.name] == model
        if arm.selection is None or arm.selection.reuse is None
    }


def _at(
    length: int,
    matrices: Sequence[Sequence[Matrices]],
    layers: Sequence[int],
    arms: Mapping[str, _Arm],
    policies: Sequence[Selection],
) -> LengthOverlap:
    """Mean matrices, adjacent layers, and the arms at one length."""
    trained = [several[0] for several in matrices]
    by_name = {
        "jaccard": [m.jaccard for m in trained],
        "recall": [m.recall for m in trained],
        "mass": [m.mass for m in trained if m.mass is not None],
    }
    place = {policy: k for k, policy in enumerate(policies, start=1)}
    return LengthOverlap(
        length=length,
        documents=len(trained),
        rows=sum(m.rows for m in trained),
        adjacent={
            name: estimate([float(matrix.diagonal(1).mean()) for matrix in by_name[name]])
            for name in ("jaccard", "recall")
        },
        arms=tuple(
            _arm(
                name,
                arm,
                layers,
                [several[place[arm.selection] if arm.selection else 0] for several in matrices],
            )
            for name, arm in arms.items()
        ),
        matrices={name: _rounded(several) for name, several in by_name.items() if several},
    )


def _arm(name: str, arm: _Arm, layers: Sequence[int], matrices: Sequence[Matrices]) -> ArmOverlap:
    """What an arm's sources supply, from the [layers, layers] matrices of every document."""
    mass = [m.mass for m in matrices if m.mass is not None]
    selected, worst_selected = _supplied([m.recall for m in matrices], layers, arm)
    attended, worst_attended = _supplied(mass, layers, arm) if mass else (None, None)
    return ArmOverlap(
        name,
        str(arm.schedule),
        selected,
        worst_selected,
        attended,
        worst_attended,
        None if arm.selection is None else arm.selection.text,
    )


def _supplied(
    matrices: Sequence[torch.Tensor], layers: Sequence[int], arm: _Arm
) -> tuple[MeanInterval, float]:
    """Mean over the layers that read another one's selection, and the worst layer; 1 without.

    Over all layers where the arm selects by a policy.
    """
    import torch

    from evalkit.dsa.overlap_scan import source_values

    every = arm.selection is not None
    values = [source_values(m, layers, arm.schedule, every_layer=every) for m in matrices]
    if not values[0].numel():
        return estimate([1.0] * len(values)), 1.0
    worst = float(torch.stack(values).mean(0).min())
    return estimate([float(value.mean()) for value in values]), worst


def _rounded(matrices: Sequence[torch.Tensor]) -> list[list[float]]:
    """The mean over documents, four decimals."""
    import torch

    mean: list[list[float]] = torch.stack(list(matrices)).mean(0).tolist()
    return [[round(value, 4) for value in row] for row in mean]


def estimate(values: Sequence[float]) -> MeanInterval:
    """Mean over documents with Student's 95 % interval; of one document no interval is known."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return MeanInterval(mean, None, None)
    from scipy.special import stdtrit

    variance = math.fsum((v - mean) ** 2 for v in values) / (n - 1)
    half = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * math.sqrt(variance / n)
    return MeanInterval(mean, max(0.0, mean - half), min(1.0, mean + half))
