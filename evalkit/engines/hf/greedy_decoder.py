"""Greedy decoding of a batch with a KV cache, the prompt fed in chunks."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from evalkit.core.model_info import positions_of
from evalkit.core.reasoning import answer_start, marker_tokens, still_reasons
from evalkit.core.types import Prompt
from evalkit.dsa import AppliedSchedule, Phase
from evalkit.dsa.call import IndexerCache
from evalkit.dsa.transformers_model import (
    TransformersModel,
    cache_argument,
    text_config_of,
)
from evalkit.engines.hf.growing_cache import growing_cache
from evalkit.engines.hf.likelihood import read_texts
from evalkit.prompts.tokenizers import ChatTokenizer

NOT_FINITE = "the model returned non-finite logits"
_NO_TOKEN = -1
"""In the place of a token whose logits are not finite."""


class Answer(NamedTuple):
    """What was decoded for one prompt.

    Attributes:
        text: of the answer; of a text that was read, its `Likelihood`.
        reason: ``stop``, ``length`` or ``error``.
        tokens: generated.
        error: one line where the reason is ``error``.
    """

    text: str
    reason: str
    tokens: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Prefill:
    """A batch of prompts that the model has read.

    Attributes:
        batch: its prompts.
        problems: why a prompt was not read, in their order; None: it was.
        mask: of the prompts read, left-padded [B, S].
        logits: after their last tokens, fp32 [B, vocabulary].
        cache: keys and values of their tokens.
    """

    batch: Sequence[Prompt]
    problems: Sequence[str | None]
    mask: Tensor
    logits: Tensor
    cache: IndexerCache

    @property
    def read(self) -> list[Prompt]:
        """The prompts that were read."""
        return [p for p, problem in zip(self.batch, self.problems, strict=True) if not problem]

    @torch.inference_mode()
    def copy(self) -> Prefill:
        """The same with a cache of its own: decoding fills the cache."""
        return replace(self, cache=copy.deepcopy(self.cache))


@dataclass(slots=True)
class _Row:
    """One answer while it is decoded.

    Attributes:
        prompt: what is answered.
        tokens: generated so far.
        reason: why it ended, as in `Answer`; None while it goes on.
    """

    prompt: Prompt
    tokens: list[int] = field(default_factory=list)
    reason: str | None = None


class _GenerationConfig(Protocol):
    eos_token_id: int | list[int] | None


class CausalModel(TransformersModel):
    """A transformers causal language model, for type checkers: no model inherits from it."""

    generation_config: _GenerationConfig


class GreedyDecoder:
    """Decodes batches of prompts with one model.

    The whole prompt, its last token included, is prefill; the first generated token comes out of
    it, and every later one is a decode step. That is what serving engines do, and it decides where
    a decode-only lag acts.
    """

    def __init__(self, model: CausalModel, tokenizer: ChatTokenizer, *, prefill_chunk: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.prefill_chunk = prefill_chunk
        self.limit = positions_of(text_config_of(model))
        self.stop_ids = _stop_ids(model, tokenizer)

    @torch.inference_mode()
    def prefill(self, batch: Sequence[Prompt], applied: AppliedSchedule | None) -> Prefill:
        """Read the prompts; one that cannot run is a problem of its own, not a crash."""
        problems, good = self._readable(batch)
        ids, mask = self._padded(good)
        cache = growing_cache(self.model)
        _set_phase(applied, "prefill")
        logits = self._prefill(ids, mask, _positions(mask), cache) if good else mask.float()
        _set_phase(applied, None)
        return Prefill(batch, problems, mask, logits, cache)

    def answer(self, prefill: Prefill, applied: AppliedSchedule | None) -> list[Answer]:
        """Answers in the order of the batch, decoded from its prefill, whose cache is used up."""
        return _in_order(prefill.problems, self._decode(prefill, applied) if prefill.read else [])

    def read(self, batch: Sequence[Prompt], applied: AppliedSchedule | None) -> list[Answer]:
        """What the model says of texts that are only read (`Sample.scored_from`)."""
        problems, good = self._readable(batch)
        if not good:
            return _in_order(problems, [])
        ids, mask = self._padded(good)
        texts = read_texts(
            self.model, good, (ids, mask), _positions(mask), applied, self.prefill_chunk
        )
        failed = Answer("", "error", 0, NOT_FINITE)
        said = (failed if one is None else Answer(one.text(), "stop", 0) for one in texts)
        return _in_order(problems, said)

    def _readable(self, batch: Sequence[Prompt]) -> tuple[list[str | None], list[Prompt]]:
        """Why each prompt cannot run, None where it can; and those that can."""
        problems = [self._problem(prompt) for prompt in batch]
        return problems, [p for p, problem in zip(batch, problems, strict=True) if not problem]

    def _problem(self, prompt: Prompt) -> str | None:
        if not prompt.token_ids:
            return "empty prompt"
        if self.limit is not None and prompt.size > self.limit:
            return f"over-length: {prompt.size} tokens, the model has {self.limit} positions"
        return None

    @torch.inference_mode()
    def _decode(self, prefill: Prefill, applied: AppliedSchedule | None) -> list[Answer]:
        rows = [_Row(prompt) for prompt in prefill.read]
        live, mask, logits = rows, prefill.mask, prefill.logits
        positions = _positions(mask)[:, -1:]
        _set_phase(applied, "decode")
        for _ in range(max(row.prompt.max_new_tokens for row in rows)):
            token = logits.argmax(dim=-1)
            known = token.where(torch.isfinite(logits).all(dim=-1), _NO_TOKEN).tolist()
            for row, taken in zip(live, known, strict=True):
                self._take(row, taken)
            going = [i for i, row in enumerate(live) if row.reason is None]
            if not going:
                break
            if len(going) < len(live):  # those that have ended leave the batch
                live, kept = [live[i] for i in going], torch.tensor(going, device=mask.device)
                token, mask, positions = token[kept], mask[kept], positions[kept]
                prefill.cache.reorder_cache(kept)
                if applied is not None:
                    applied.keep_rows(kept)
            mask = torch.cat([mask, mask.new_ones(len(live), 1)], dim=1)
            positions = positions + 1
            logits = self._forward(token.unsqueeze(1), mask, positions, prefill.cache)
        _set_phase(applied, None)
        return [self._result(row) for row in rows]

    def _take(self, row: _Row, token: int) -> None:
        """Add a token to a row, and note whether it is done."""
        if token == _NO_TOKEN:
            row.reason = "error"
            return
        if token in self.stop_ids:
            row.reason = "stop"
            return
        row.tokens.append(token)
        stop = row.prompt.sample.stop
        if stop and any(s in self._text(row.tokens) for s in stop):
            row.reason = "stop"
        elif self._spent(row.prompt, row.tokens):
            row.reason = "length"

    def _spent(self, prompt: Prompt, row: list[int]) -> bool:
        """Whether the answer's budget is used up; a reasoning block has a budget of its own."""
        if len(row) < prompt.sample.max_new_tokens:
            return False
        if not prompt.reasoning_tokens or len(row) >= prompt.max_new_tokens:
            return True
        text = self._text(row)
        if still_reasons(text, opened=prompt.reasoning_opened):
            return False
        start = answer_start(text)
        if not start:
            return True
        spent = len(self.tokenizer.encode(text[start:], add_special_tokens=False))
        return spent >= prompt.sample.max_new_tokens

    def _result(self, row: _Row) -> Answer:
        if row.reason == "error":
            return Answer("", "error", len(row.tokens), NOT_FINITE)
        text = self._text(row.tokens)
        cuts = [text.find(s) for s in row.prompt.sample.stop if s in text]
        return Answer(text[: min(cuts)] if cuts else text, row.reason or "length", len(row.tokens))

    def _text(self, row: list[int]) -> str:
        if self._hidden is None:
            return str(self.tokenizer.decode(row, skip_special_tokens=True))
        return str(self.tokenizer.decode([i for i in row if i not in self._hidden]))

    @cached_property
    def _hidden(self) -> frozenset[int] | None:
        """Special tokens without those that delimit reasoning; None where no such one is."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        special = {i: token.content for i, token in added.items() if token.special}
        markers = marker_tokens(special.values())
        if not markers:
            return None
        return frozenset(i for i, text in special.items() if text not in markers)

    def _padded(self, batch: Sequence[Prompt]) -> tuple[Tensor, Tensor]:
        """Left-padded ids and mask [B, S] on the model's device."""
        width = max((len(prompt.token_ids) for prompt in batch), default=0)
        pad = self.tokenizer.pad_token_id or 0
        ids = torch.full((len(batch), width), pad, dtype=torch.long)
        mask = torch.zeros((len(batch), width), dtype=torch.long)
        for row, prompt in enumerate(batch):
            ids[row, width - len(prompt.token_ids) :] = torch.tensor(prompt.token_ids)
            mask[row, width - len(prompt.token_ids) :] = 1
        return ids.to(self.model.device), mask.to(self.model.device)

    def _prefill(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: IndexerCache) -> Tensor:
        logits = None
        for start in range(0, ids.shape[1], self.prefill_chunk):
            end = min(start + self.prefill_chunk, ids.shape[1])
            logits = self._forward(ids[:, start:end], mask[:, :end], positions[:, start:end], cache)
        if logits is None:
            raise ValueError("empty prompt")
        return logits

    def _forward(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: IndexerCache) -> Tensor:
        """Logits of the last position [B, vocabulary], in fp32."""
        result = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{cache_argument(self.model): cache},
        )
        logits: Tensor = result.logits[:, -1].float()
        return logits


def _in_order(problems: Sequence[str | None], answers: Iterable[Answer]) -> list[Answer]:
    """One for every prompt: an error where there is a problem, else the next answer."""
    left = iter(answers)
    return [Answer("", "error", 0, problem) if problem else next(left) for problem in problems]


def _positions(mask: Tensor) -> Tensor:
    """Of left-padded tokens [B, S]."""
    return (mask.cumsum(1) - 1).clamp(min=0)


def _set_phase(applied: AppliedSchedule | None, phase: Phase | None) -> None:
    if applied is not None:
        applied.phase = phase


def _stop_ids(model: CausalModel, tokenizer: ChatTokenizer) -> frozenset[int]:
    """End-of-text ids of the generation configuration and of the tokenizer."""
    ids: set[int] = set()
    for source in (getattr(model.generation_config, "eos_token_id", None), tokenizer.eos_token_id):
        if isinstance(source, int):
            ids.add(source)
        elif source is not None:
            ids.update(int(i) for i in source)
    return frozenset(ids)
