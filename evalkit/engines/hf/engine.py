"""Transformers in this process: greedy, KV cache, prefill in chunks, batches by length."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

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
from evalkit.engines.hf import distributed
from evalkit.engines.hf.config import HfConfig
from evalkit.engines.hf.greedy_decoder import GreedyDecoder
from evalkit.prompts.tokenizers import load_tokenizer


class HfEngine:
    """One transformers model in memory, run under the schedule of the arm at hand."""

    def __init__(self, config: HfConfig) -> None:
        self.config = config
        self.model: Any = None
        self._seam: IndexerSites | None = None
        self._decoder: GreedyDecoder | None = None
        self._loaded: tuple[str, dict[str, Any]] | None = None
        self._last: AppliedSchedule | None = None
        self._calls: list[int] = []

    def load(self, model: str) -> dict[str, Any]:
        """Load a checkpoint once; a second call with the same name costs nothing."""
        if self._loaded is not None and self._loaded[0] == model:
            return self._loaded[1]
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()  # the run has a bar of its own
        self.model = None  # free the previous one first
        distributed.order(("load", model))
        device = distributed.device()
        where = {"device_map": self.config.device_map} if self.config.device_map else {}
        if where and distributed.processes() > 1:
            raise EvalkitError("engine.device_map spreads one model: launch one process for it")
        try:
            name, more = located(model)
            dtype = self.config.dtype
            loaded = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, **where, **more)
        except Exception as error:  # whatever a damaged checkpoint makes transformers raise
            raise EvalkitError(f"model {model}: cannot be loaded: {in_one_line(error)}") from error
        self.model = loaded.eval() if where else loaded.to(device).eval()
        try:
            self._seam = indexer_sites(self.model)
        except UnsupportedModelError:
            self._seam = None  # a model without indexers can still be a baseline
        self._decoder = GreedyDecoder(
            self.model, load_tokenizer(model), prefill_chunk=self.config.prefill_chunk
        )
        facts = {
            "weights_sha256": weights_hash(model) if Path(model).exists() else None,
            "revision": getattr(self.model.config, "_commit_hash", None),
            "model_type": self.model.config.model_type,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": str(self.model.device),
        }
        self._loaded = (model, facts)
        return facts

    def native(self) -> ReuseSchedule | None:
        """The loaded checkpoint's own schedule."""
        return self._seam.layout.native if self._seam is not None else None

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
        distributed.order(("answer", arm, schedule, left))
        for completions in self._answer(arm, schedule, left):
            yield [c for c in completions if c.sample_id not in done]

    def help(self) -> None:
        """Follow the first process of `accelerate launch` until it has no more work."""
        while (command := distributed.next_order())[0] != "stop":
            if command[0] == "load":
                self.load(command[1])
            else:
                for _ in self._answer(*command[1:]):
                    pass

    def close(self) -> None:
        """Let the other processes go."""
        distributed.order(("stop",))

    def _answer(
        self, arm: ArmConfig, schedule: ReuseSchedule | None, batches: Sequence[Sequence[Prompt]]
    ) -> Iterator[list[Completion]]:
        """Answers of as many batches at a time as there are processes, the same in all of them."""
        decoder = self._decoder
        if decoder is None:
            raise RuntimeError("load a model first")
        step, mine = distributed.processes(), distributed.rank()
        try:
            chunked = self.config.indexer == "chunked"
            with (
                self._indexers(arm, schedule),
                (
                    apply_schedule(self.model, schedule, chunked=chunked)
                    if schedule
                    else nullcontext()
                ) as applied,
            ):
                self._last, self._calls = applied, []
                for start in range(0, len(batches), step):
                    share = batches[start + mine : start + mine + 1]
                    found = _completions(decoder, share[0], applied) if share else []
                    parts = distributed.gather((found, _calls(applied)))
                    self._calls = [sum(layer) for layer in zip(*(c for _, c in parts), strict=True)]
                    yield [completion for some, _ in parts for completion in some]
        except (ScheduleError, IndexerFileError) as error:
            raise EvalkitError(f"arm {arm.name}: {error}") from None
        except torch.OutOfMemoryError as error:
            raise EvalkitError(
                f"arm {arm.name}: out of memory on {self.model.device}: lower engine.batch_tokens"
                f" ({self.config.batch_tokens}) or engine.prefill_chunk"
                f" ({self.config.prefill_chunk}); the same command goes on"
            ) from error

    def _indexers(
        self, arm: ArmConfig, schedule: ReuseSchedule | None
    ) -> AbstractContextManager[None]:
        """The arm's distilled indexers in place of the model's own."""
        if arm.indexer is None:
            return nullcontext()
        return apply_indexer(self.model, Path(arm.indexer), schedule)

    def engagement(self) -> dict[str, Any]:
        """Indexer runs per layer while the last arm answered: shared layers must show none."""
        if self._last is None:
            return {"verdict": "not applicable: the model has no indexers"}
        schedule, calls = self._last.schedule, self._calls
        ran = [count > 0 for count in calls]
        verdict = "engaged" if ran == list(schedule.computes) else "not engaged"
        if not any(calls):
            verdict = "unknown: nothing was generated"
        return {"verdict": verdict, "indexer_calls": calls}

    def _batches(self, prompts: Sequence[Prompt]) -> Iterator[list[Prompt]]:
        """Prompts of like length together, longest first (memory trouble shows at once).

        Depends on `prompts` alone, so that a resumed run forms the same batches.
        """
        padding = self._seam is None or self._seam.family.padding
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
    share = (time.perf_counter() - start) / len(batch)
    return [
        Completion(
            sample_id=prompt.sample.id,
            text=text,
            finish_reason=reason,
            prompt_tokens=len(prompt.token_ids),
            completion_tokens=count,
            seconds=share,
            error=error,
        )
        for prompt, (text, reason, count, error) in zip(batch, answers, strict=True)
    ]


def _calls(applied: AppliedSchedule | None) -> list[int]:
    """Indexer runs per layer."""
    if applied is None:
        return []
    return [applied.calls[i] for i in range(len(applied.schedule))]
