"""Transformers in this process: greedy, KV cache, prefill in chunks, batches by length."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, zip_longest
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
from evalkit.dsa.transformers_model import text_config_of
from evalkit.engines.base import Ask
from evalkit.engines.hf import distributed
from evalkit.engines.hf.config import HfConfig
from evalkit.engines.hf.greedy_decoder import Answer, CausalModel, GreedyDecoder
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

    asks: Sequence[Ask]
    batches: Sequence[Sequence[Prompt]]


@dataclass(slots=True)
class _Ran:
    """What the last answers of an arm were made under, and how often its indexers ran."""

    schedule: ReuseSchedule | None
    selection: str | None = None
    calls: list[int] = field(default_factory=list)

    def add(self, calls: Sequence[int]) -> None:
        """Count further runs, per layer."""
        self.calls = [sum(pair) for pair in zip_longest(self.calls, calls, fillvalue=0)]


class HfEngine:
    """One transformers model in memory, run under the schedule of the arm at hand."""

    def __init__(self, config: HfConfig) -> None:
        self.config = config
        self._loaded: _Loaded | None = None
        self._ran: dict[str, _Ran] = {}

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
            "accelerator": _accelerator(live.device),
            "attention": self._attention(live, sites),
        }
        self._loaded = _Loaded(model, live, sites, decoder, facts)
        return facts

    def _attention(self, live: CausalModel, sites: IndexerSites | None) -> str:
        """What attends: ours, or the installed library's implementation by its name."""
        if self.config.attention == "sparse" and sites is not None and sites.family.sparse:
            return "sparse"
        return text_config_of(live)._attn_implementation

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
        for _, completions in self.answer_together([Ask(arm, schedule, done)], prompts):
            yield completions

    def answer_together(
        self, asks: Sequence[Ask], prompts: Sequence[Prompt]
    ) -> Iterator[tuple[str, list[Completion]]]:
        """Answers of arms that select alike in prefill: every batch of prompts is read once."""
        command = _Answer(
            asks, [b for b in self._batches(prompts) if any(_left(a, b) for a in asks)]
        )
        if command.batches:
            distributed.send_command(command)
            yield from self._answer(command)

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

    def _answer(self, command: _Answer) -> Iterator[tuple[str, list[Completion]]]:
        """Answers of as many batches at a time as there are processes, the same in all of them."""
        loaded, asks, batches = self._ready(), command.asks, command.batches
        step, mine = distributed.processes(), distributed.rank()
        self._ran = {ask.arm.name: _Ran(ask.schedule, _selection(ask)) for ask in asks}
        try:
            with ExitStack() as stack:
                indexer = asks[0].arm.indexer  # the arms have it in common
                if indexer is not None:
                    files = Path(indexer)
                    stack.enter_context(apply_indexer(loaded.model, files, asks[0].schedule))
                for start in range(0, len(batches), step):
                    share = batches[start + mine : start + mine + 1]
                    parts = distributed.gather(
                        self._answers(loaded, asks, share[0]) if share else []
                    )
                    for name, completions, calls in chain.from_iterable(parts):
                        self._ran[name].add(calls)
                        yield name, completions
        except (ScheduleError, IndexerFileError) as error:
            names = ", ".join(ask.arm.name for ask in asks)
            raise EvalkitError(f"arm {names}: {error}") from None
        except torch.OutOfMemoryError as error:
            raise EvalkitError(
                f"arm {asks[0].arm.name}: out of memory on {loaded.model.device}: lower"
                f" engine.batch_tokens ({self.config.batch_tokens}) or engine.prefill_chunk"
                f" ({self.config.prefill_chunk}); the same command goes on"
            ) from error

    def _answers(
        self, loaded: _Loaded, asks: Sequence[Ask], batch: Sequence[Prompt]
    ) -> list[tuple[str, list[Completion], list[int]]]:
        """Answers of one batch by arm, with the indexer runs that each arm needs for them."""
        asks = [ask for ask in asks if _left(ask, batch)]
        if any(prompt.sample.scored_from for prompt in batch):  # a batch is of one cell
            return [self._read(loaded, ask, batch) for ask in asks]
        start = time.perf_counter()
        with self._under(loaded.model, asks[0]) as applied:
            prefill, read = loaded.decoder.prefill(batch, applied), _calls(applied)
        shared, by_arm = (time.perf_counter() - start) / len(asks), []
        for ask in asks:
            start = time.perf_counter()
            mine = prefill if ask is asks[-1] else prefill.copy()
            with self._under(loaded.model, ask) as applied:
                answers, calls = loaded.decoder.answer(mine, applied), _calls(applied)
            completions = _completions(ask, batch, answers, shared + time.perf_counter() - start)
            by_arm.append(
                (ask.arm.name, completions, [sum(c) for c in zip(read, calls, strict=True)])
            )
        return by_arm

    def _read(
        self, loaded: _Loaded, ask: Ask, batch: Sequence[Prompt]
    ) -> tuple[str, list[Completion], list[int]]:
        """As `_answers`, of texts that one arm reads: what is scored is decode from the start."""
        start = time.perf_counter()
        with self._under(loaded.model, ask) as applied:
            answers, calls = loaded.decoder.read(batch, applied), _calls(applied)
        completions = _completions(ask, batch, answers, time.perf_counter() - start)
        return ask.arm.name, completions, list(calls)

    @contextmanager
    def _under(self, model: CausalModel, ask: Ask) -> Iterator[AppliedSchedule | None]:
        """The model under schedule and selection of an arm, if any."""
        if ask.schedule is None:
            yield None
            return
        chunked, sparse = self.config.indexer == "chunked", self.config.attention == "sparse"
        policy = ask.arm.selection
        with apply_schedule(
            model, ask.schedule, policy=policy, chunked=chunked, sparse=sparse
        ) as applied:
            yield applied

    def engagement(self) -> dict[str, JsonValue]:
        """Indexer runs per layer while the last arm answered: shared layers must show none."""
        return self.engagement_of(next(reversed(self._ran), ""))

    def engagement_of(self, arm: str) -> dict[str, JsonValue]:
        """The same of an arm of the last answers."""
        ran = self._ran.get(arm)
        if ran is None or ran.schedule is None:
            return {"verdict": "not applicable: the model has no indexers"}
        called = [count > 0 for count in ran.calls]
        verdict = "engaged" if called == list(ran.schedule.computes) else "not engaged"
        if not any(called):
            verdict = "unknown: nothing was generated"
        proof: dict[str, JsonValue] = {"verdict": verdict, "indexer_calls": list(ran.calls)}
        return proof if ran.selection is None else {**proof, "selection": ran.selection}

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
        order = sorted(prompts, key=lambda p: (-p.size, p.sample.id))
        batch: list[Prompt] = []
        for prompt in order:
            if batch:
                longest = len(batch[0].token_ids)
                full = (
                    len(batch) >= self.config.max_batch
                    or (len(batch) + 1) * batch[0].size > self.config.batch_tokens
                    or (not padding and len(prompt.token_ids) != longest)
                )
                if full:
                    yield batch
                    batch = []
            batch.append(prompt)
        if batch:
            yield batch


def _selection(ask: Ask) -> str | None:
    """The policy by which an arm's full layers select, in words."""
    return None if ask.arm.selection is None else ask.arm.selection.text


def _left(ask: Ask, batch: Sequence[Prompt]) -> bool:
    """Whether an arm has not answered all of a batch."""
    return not all(prompt.sample.id in ask.done for prompt in batch)


def _completions(
    ask: Ask, batch: Sequence[Prompt], answers: Sequence[Answer], seconds: float
) -> list[Completion]:
    """What an arm had not answered of a batch that took so many seconds."""
    return [
        Completion(
            sample_id=prompt.sample.id,
            text=answer.text,
            finish_reason=answer.reason,
            prompt_tokens=len(prompt.token_ids),
            completion_tokens=answer.tokens,
            seconds=seconds / len(batch),
            error=answer.error,
        )
        for prompt, answer in zip(batch, answers, strict=True)
        if prompt.sample.id not in ask.done
    ]


def _calls(applied: AppliedSchedule | None) -> list[int]:
    """Indexer runs per layer."""
    if applied is None:
        return []
    return [applied.calls[i] for i in range(len(applied.schedule))]


def _accelerator(device: torch.device) -> str | None:
    """What kind of GPU it is; None for others."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None
