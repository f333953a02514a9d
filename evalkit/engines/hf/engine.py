"""Transformers in this process: greedy, KV cache, prefill in chunks, batches by length."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from evalkit.config.arm import ArmConfig
from evalkit.core.errors import EvalkitError, in_one_line
from evalkit.core.model_info import located, weights_hash
from evalkit.core.types import Completion, Prompt
from evalkit.dsa import (
    AppliedSchedule,
    ReuseSchedule,
    ScheduleError,
    UnsupportedModelError,
    apply_schedule,
)
from evalkit.dsa.families.sites import IndexerSites, indexer_sites
from evalkit.dsa.indexer_checkpoint import apply_indexer
from evalkit.dsa.indexer_metadata import IndexerFileError
from evalkit.dsa.json_types import JsonValue
from evalkit.engines.hf import distributed
from evalkit.engines.hf.config import HfConfig
from evalkit.engines.hf.greedy_decoder import CausalModel, GreedyDecoder
from evalkit.prompts.tokenizers import load_tokenizer


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A checkpoint in memory; `sites` is None for a model without indexers."""

    name: str
    model: CausalModel
    sites: IndexerSites | None
    decoder: GreedyDecoder
    facts: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class _Load:
    """Command to the other processes: load a checkpoint."""

    model: str


@dataclass(frozen=True, slots=True)
class _Answer:
    """Command to the other processes: answer their share of some batches."""

    arm: ArmConfig
    schedule: ReuseSchedule | None
    batches: Sequence[Sequence[Prompt]]


class HfEngine:
    """One transformers model in memory, run under the schedule of the arm at hand."""

    def __init__(self, config: HfConfig) -> None:
        self.config = config
        self._loaded: _Loaded | None = None
        self._last: ReuseSchedule | None = None
        self._calls: list[int] = []

    @property
    def model(self) -> CausalModel:
        """The loaded model."""
        return self._ready().model

    @property
    def decoder(self) -> GreedyDecoder:
        """What decodes with the loaded model."""
        return self._ready().decoder

    def load(self, model: str) -> dict[str, JsonValue]:
        """Load a checkpoint once; a second call with the same name costs nothing."""
        if self._loaded is not None and self._loaded.name == model:
            return self._loaded.facts
        self._loaded = None  # free the previous one first
        distributed.send_command(_Load(model))
        live = self._load_model(model)
        sites: IndexerSites | None
        try:
            sites = indexer_sites(live)
        except UnsupportedModelError:
            sites = None  # a model without indexers can still be a baseline
        decoder = GreedyDecoder(
            live, load_tokenizer(model), prefill_chunk=self.config.prefill_chunk
        )
        facts: dict[str, JsonValue] = {
            "weights_sha256": self._weights_hash(model),
            "revision": getattr(live.config, "_commit_hash", None),
            "model_type": live.config.model_type,
            "dtype": str(live.dtype).removeprefix("torch."),
            "device": str(live.device),
        }
        self._loaded = _Loaded(model, live, sites, decoder, facts)
        return facts

    def _weights_hash(self, model: str) -> str | None:
        """None for a hub id, whose revision is known instead."""
        return weights_hash(model) if Path(model).exists() else None

    def _load_model(self, model: str) -> CausalModel:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()  # the run has a bar of its own
        device, device_map = distributed.device(), self.config.device_map
        if device_map and distributed.processes() > 1:
            raise EvalkitError("engine.device_map spreads one model: launch one process for it")
        options = {"device_map": device_map} if device_map else {}
        try:
            name, more = located(model)
            live: CausalModel = AutoModelForCausalLM.from_pretrained(
                name, dtype=self.config.dtype, **options, **more
            )
        except Exception as error:  # whatever a damaged checkpoint makes transformers raise
            raise EvalkitError(f"model {model}: cannot be loaded: {in_one_line(error)}") from error
        return (live if device_map else live.to(device)).eval()

    def native(self) -> ReuseSchedule | None:
        """The loaded checkpoint's own schedule."""
        sites = None if self._loaded is None else self._loaded.sites
        return None if sites is None else sites.layout.native

    def answer(
        self,
        arm: ArmConfig,
        schedule: ReuseSchedule | None,
        prompts: Sequence[Prompt],
        done: Collection[str],
    ) -> Iterator[list[Completion]]:
        """Greedy answers, batch by batch."""
        left = [b for b in self._batches(prompts) if not all(p.sample.id in done for p in b)]
        if not left:
            return
        command = _Answer(arm, schedule, left)
        distributed.send_command(command)
        for completions in self._answer(command):
            yield [c for c in completions if c.sample_id not in done]

    def help(self) -> None:
        """Follow the first process of `accelerate launch` until it has no more work."""
        while (command := distributed.next_command()) is not None:
            if isinstance(command, _Load):
                self.load(command.model)
            elif isinstance(command, _Answer):
                for _ in self._answer(command):
                    pass

    def close(self) -> None:
        """Let the other processes go."""
        distributed.send_command(None)

    def _answer(self, command: _Answer) -> Iterator[list[Completion]]:
        """Answers of as many batches at a time as there are processes, the same in all of them."""
        loaded, arm, batches = self._ready(), command.arm, command.batches
        step, mine = distributed.processes(), distributed.rank()
        try:
            with self._under(loaded.model, arm, command.schedule) as applied:
                self._last, self._calls = command.schedule, []
                for start in range(0, len(batches), step):
                    share = batches[start + mine : start + mine + 1]
                    answers = _completions(loaded.decoder, share[0], applied) if share else []
                    parts = distributed.gather((answers, _calls(applied)))
                    self._calls = [sum(layer) for layer in zip(*(c for _, c in parts), strict=True)]
                    yield [completion for completions, _ in parts for completion in completions]
        except (ScheduleError, IndexerFileError) as error:
            raise EvalkitError(f"arm {arm.name}: {error}") from None
        except torch.OutOfMemoryError as error:
            raise EvalkitError(
                f"arm {arm.name}: out of memory on {loaded.model.device}: lower"
                f" engine.batch_tokens ({self.config.batch_tokens}) or engine.prefill_chunk"
                f" ({self.config.prefill_chunk}); the same command goes on"
            ) from error

    @contextmanager
    def _under(
        self, model: CausalModel, arm: ArmConfig, schedule: ReuseSchedule | None
    ) -> Iterator[AppliedSchedule | None]:
        """The model under the arm's schedule, with its distilled indexers where it names some."""
        with ExitStack() as stack:
            if arm.indexer is not None:
                stack.enter_context(apply_indexer(model, Path(arm.indexer), schedule))
            if schedule is None:
                yield None
            else:
                chunked = self.config.indexer == "chunked"
                yield stack.enter_context(apply_schedule(model, schedule, chunked=chunked))

    def engagement(self) -> dict[str, JsonValue]:
        """Indexer runs per layer while the last arm answered: shared layers must show none."""
        if self._last is None:
            return {"verdict": "not applicable: the model has no indexers"}
        ran = [count > 0 for count in self._calls]
        verdict = "engaged" if ran == list(self._last.computes) else "not engaged"
        if not any(ran):
            verdict = "unknown: nothing was generated"
        return {"verdict": verdict, "indexer_calls": list(self._calls)}

    def _ready(self) -> _Loaded:
        if self._loaded is None:
            raise RuntimeError("load a model first")
        return self._loaded

    def _batches(self, prompts: Sequence[Prompt]) -> Iterator[list[Prompt]]:
        """Prompts of like length together, longest first (memory trouble shows at once).

        Depends on `prompts` alone, so that a resumed run forms the same batches.
        """
        sites = None if self._loaded is None else self._loaded.sites
        padding = sites is None or sites.family.padding
        order = sorted(prompts, key=lambda p: (-_size(p), p.sample.id))
        batch: list[Prompt] = []
        for prompt in order:
            if batch:
                longest = len(batch[0].token_ids)
                full = (
                    len(batch) >= self.config.max_batch
                    or (len(batch) + 1) * _size(batch[0]) > self.config.batch_tokens
                    or (not padding and len(prompt.token_ids) != longest)
                )
                if full:
                    yield batch
                    batch = []
            batch.append(prompt)
        if batch:
            yield batch


def _size(prompt: Prompt) -> int:
    return len(prompt.token_ids) + prompt.max_new_tokens


def _completions(
    decoder: GreedyDecoder, batch: Sequence[Prompt], applied: AppliedSchedule | None
) -> list[Completion]:
    start = time.perf_counter()
    answers = decoder.answer(batch, applied)
    seconds = (time.perf_counter() - start) / len(batch)
    return [
        Completion(
            sample_id=prompt.sample.id,
            text=answer.text,
            finish_reason=answer.reason,
            prompt_tokens=len(prompt.token_ids),
            completion_tokens=answer.tokens,
            seconds=seconds,
            error=answer.error,
        )
        for prompt, answer in zip(batch, answers, strict=True)
    ]


def _calls(applied: AppliedSchedule | None) -> list[int]:
    """Indexer runs per layer."""
    if applied is None:
        return []
    return [applied.calls[i] for i in range(len(applied.schedule))]
