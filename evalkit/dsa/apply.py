"""Run a live model under a ReuseSchedule, and leave it exactly as it was.

Each indexer's forward is overridden on the instance, so the module tree, parameter names, device
placement and hooks stay as they are. A layer that computes runs its own indexer and publishes the
selection; what a layer reads comes from its source. Selections live in a carrier for one forward
of the model and are dropped when the next one begins; layers under gradient checkpointing keep
what they read (`evalkit.dsa.recomputation`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from evalkit.dsa.call import IndexerCall, read_call
from evalkit.dsa.families.sites import IndexerSites, adapter_of, indexer_sites, topk_of
from evalkit.dsa.overrides import override_forward, swap_indexer
from evalkit.dsa.recomputation import (
    ENABLE,
    UNSEEN,
    Read,
    RunningCheckpoint,
    checkpoints_followed,
    may_run_again,
    running_checkpoints,
)
from evalkit.dsa.schedule import Phase, ReuseSchedule, ScheduleError
from evalkit.dsa.scores import select
from evalkit.dsa.selection import SelectionPolicy
from evalkit.dsa.sparse_attention import selected_keys_gathered
from evalkit.dsa.static_cache import static_cache_refused
from evalkit.dsa.temporal_memory import TemporalMemory

_MARK = "_evalkit_applied_schedule"
_ENTER = threading.Lock()

Observer = Callable[[int, IndexerCall, Tensor | None], None]
Forward = Callable[..., Tensor]
Block = Callable[[], AbstractContextManager[None]]
Again = Callable[[], "AbstractContextManager[AppliedSchedule]"]
Run = Callable[[tuple[object, ...], Mapping[str, object]], Tensor]

_OF_A_FORWARD = ("phase", "decode_rows", "given", "calls", "_observe")


class ScheduleInUseError(RuntimeError):
    """The model is already under a schedule, or two threads run it at once."""


class AppliedSchedule:
    """Handle of a model under a schedule.

    Attributes:
        schedule: the schedule in force.
        phase: ``"prefill"`` or ``"decode"`` to say which one a forward belongs to; None (default)
            takes a single query row for decode and several for prefill.
        decode_rows: bool [B, S] for a whole forward that contains both: True rows read the decode
            sources, False rows the prefill sources. Overrides `phase` while set.
        calls: how often each ordinal's indexer selected.
        given: selections [B, S, topk] by ordinal that the next forwards begin with: of layers that
            the caller keeps from running in them or, where `chunked`, from choosing.
    """

    def __init__(
        self,
        schedule: ReuseSchedule,
        sites: IndexerSites,
        observe: Observer | None,
        chunked: bool,
        gathering: Block,
        policy: SelectionPolicy | None,
        again: Again,
    ) -> None:
        self.schedule = schedule
        self.phase: Phase | None = None
        self.decode_rows: Tensor | None = None
        self.calls: Counter[int] = Counter()
        self.given: dict[int, Tensor] = {}
        self._sites = sites
        self._observe = observe
        self._chunked = chunked
        self._gathering = gathering
        self._policy = policy
        reuse = None if policy is None else policy.reuse
        self._memory = None if reuse is None else TemporalMemory(reuse)
        self._carrier: dict[int, Tensor] = {}
        self._thread: int | None = None
        self._sources: Mapping[Phase, tuple[int, ...]] = {
            "prefill": schedule.sources("prefill"),
            "decode": schedule.sources("decode"),
        }
        self._release = _releases(schedule)
        self._forwards: list[Forward | None] = []
        self._recorded: Read | None = None
        self._until_end = ExitStack()
        self._again = again
        self._around = _running()  # they enter the block again themselves
        self._followed: list[object] | None = None

    def keep_rows(self, rows: Tensor) -> None:
        """Go on with some sequences of the batch only: their numbers [R], in the order to come."""
        if self._memory is not None:
            self._memory.keep_rows(rows)

    def _begin(self, *_: object) -> None:
        if self._thread not in (None, threading.get_ident()):
            raise ScheduleInUseError(
                "two threads run this model under one schedule at once: give each its own copy"
            )
        self._thread = threading.get_ident()
        self._carrier.clear()
        self._carrier.update(self.given)
        self._until_end.close()
        self._follow_by_hand()
        if torch.is_grad_enabled() and self._may_run_again():
            following = checkpoints_followed(self._sites.root, self._recording, self._replaying)
            self._until_end.enter_context(following)

    def _follow_by_hand(self) -> None:
        """Let checkpoints around the forward that begins run under the schedule again."""
        then = partial(self._as_now, self.phase, self.decode_rows, dict(self.given))
        running = _running()
        for checkpoint in running:
            if checkpoint.kept not in [around.kept for around in self._around]:
                checkpoint.under(then, self)
        keeps = torch.is_grad_enabled() and not torch.compiler.is_compiling()
        self._followed = [checkpoint.kept for checkpoint in running] if keeps else None

    @contextmanager
    def _as_now(
        self, phase: Phase | None, decode_rows: Tensor | None, given: dict[int, Tensor]
    ) -> Iterator[None]:
        """The schedule once more, as it is now, while the block lasts and after it."""
        lasts = getattr(self._sites.root, _MARK, None) is self
        with nullcontext(self) if lasts else self._again() as applied:
            held = {name: getattr(applied, name) for name in _OF_A_FORWARD}
            values = (phase, decode_rows, given, Counter[int](), None)
            vars(applied).update(zip(_OF_A_FORWARD, values, strict=True))
            try:
                yield
            finally:
                vars(applied).update(held)

    def _may_run_again(self) -> bool:
        root = self._sites.root  # under a compiler, single layers are not asked
        return root.training or (not torch.compiler.is_compiling() and may_run_again(root))

    def _end(self, *_: object) -> None:
        if self._thread not in (None, threading.get_ident()):
            return  # the end of a forward that `_begin` refused, beside the one that goes on
        self._thread = self._followed = None
        self._carrier.clear()
        self._until_end.close()

    @contextmanager
    def _recording(self, read: Read) -> Iterator[None]:
        """Keep in `read` what layers read inside the block."""
        self._recorded = read
        try:
            yield
        finally:
            self._recorded = None

    @contextmanager
    def _replaying(self, read: Read) -> Iterator[None]:
        """Let the layers of `read` read the same again inside the block."""
        with ExitStack() as stack:
            stack.enter_context(self._gathering())
            for ordinal in read:
                again = partial(self._run_again, read, ordinal)
                stack.enter_context(_replaced(self._sites, ordinal, again))
            yield

    def _run_again(
        self, read: Read, ordinal: int, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> Tensor:
        forward = self._forwards[ordinal]
        if forward is not None and self.schedule.computes[ordinal] and not self._chunked:
            forward(*args, **kwargs)  # some families' indexers are part of the graph
        return read[ordinal]

    def _run(
        self,
        ordinal: int,
        forward: Forward | None,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> Tensor:
        """Runs instead of the forward of a layer's indexer; None: the layer has no indexer."""
        sites = self._sites
        if self._followed is not None and self._recorded is None:
            self._refuse_by_hand(self._followed)
        if self._thread is None:
            raise ScheduleError(
                f"layer {sites.layout.layer_ids[ordinal]} runs outside a forward of the model: call"
                " the model itself, not `model.forward` or single layers, and checkpoint by"
                f" {ENABLE}"
            )
        indexer = sites.indexer(ordinal) if forward is not None else None
        call = read_call(sites.family, indexer, sites.layout.layer_ids[ordinal], args, kwargs)
        selection = None
        if forward is not None and indexer is not None:
            if self.schedule.computes[ordinal]:
                if self._chunked:
                    selection = self._select(ordinal, indexer, call)
                else:
                    selection = forward(*args, **kwargs)
                    self.calls[ordinal] += 1
                self._carrier[ordinal] = selection
            else:
                self._advance(indexer, call)
        if self._observe is not None:
            self._observe(ordinal, call, selection)
        result = self._read(ordinal, call.hidden)
        if self._recorded is not None:
            self._recorded[ordinal] = result
        for source in self._release[ordinal]:
            self._carrier.pop(source, None)
        return result

    def _refuse_by_hand(self, followed: Sequence[object]) -> None:
        if any(checkpoint.kept not in followed for checkpoint in _running()):
            raise ScheduleError(UNSEEN)

    @torch.no_grad()
    def _select(self, ordinal: int, indexer: nn.Module, call: IndexerCall) -> Tensor:
        """The layer's selection by our scores: memory linear in the length, less time."""
        features, topk = self._sites.features(indexer, call), topk_of(indexer)
        afresh = partial(select, features, topk, policy=self._policy)
        if ordinal in self.given:
            selection, ran = self.given[ordinal], False
        elif self._memory is None:
            selection, ran = afresh(), True
        else:
            rows = self._decode_rows(call.hidden)
            selection, ran = self._memory.select(ordinal, features, topk, rows, afresh)
        self.calls[ordinal] += ran
        # A row with a gap has the first key; naming it there once more changes nothing.
        return selection if self._sites.family.sentinel else selection.clamp(min=0)

    def _decode_rows(self, hidden: Tensor) -> Tensor:
        """Bool [B, S]: the rows of a forward that are decode steps."""
        if self.decode_rows is not None:
            return self.decode_rows.to(hidden.device)
        return torch.full(hidden.shape[:2], self._phase_of(hidden) == "decode").to(hidden.device)

    def _phase_of(self, hidden: Tensor) -> Phase:
        return self.phase or ("decode" if hidden.shape[1] == 1 else "prefill")

    @torch.no_grad()
    def _advance(self, indexer: nn.Module, call: IndexerCall) -> None:
        adapter = adapter_of(self._sites.family)
        if adapter is not None and adapter.advance is not None:
            adapter.advance(indexer, call)

    def _read(self, ordinal: int, hidden: Tensor) -> Tensor:
        if self.decode_rows is not None:
            prefill = self._selection(self._sources["prefill"][ordinal], ordinal, hidden)
            decode = self._selection(self._sources["decode"][ordinal], ordinal, hidden)
            rows = self.decode_rows.to(hidden.device).unsqueeze(-1)
            return prefill if decode is prefill else torch.where(rows, decode, prefill)
        return self._selection(self._sources[self._phase_of(hidden)][ordinal], ordinal, hidden)

    def _selection(self, source: int, reader: int, hidden: Tensor) -> Tensor:
        if source not in self._carrier:
            ids = self._sites.layout.layer_ids
            raise ScheduleError(
                f"layer {ids[reader]} reads the selection of layer {ids[source]}, which was not"
                " computed in this forward: run the whole model, not single layers"
            )
        return self._carrier[source].to(hidden.device)


def _running() -> list[RunningCheckpoint]:
    """Checkpoints by hand; none where nothing can run again."""
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
        return []
    return running_checkpoints()


def _releases(schedule: ReuseSchedule) -> list[list[int]]:
    """Per ordinal, the selections that no later layer reads: they are dropped there."""
    last = {f: f for f in schedule.full_layers}
    for sources in (schedule.sources("prefill"), schedule.sources("decode")):
        for reader, source in enumerate(sources):
            last[source] = max(last[source], reader)
    return [[s for s, reader in last.items() if reader == i] for i in range(len(schedule))]


class _SharedIndexer(nn.Module):
    """Takes the place of the indexer that a natively shared layer does not have."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        return self._run(args, kwargs)


@contextmanager
def apply_schedule(
    model: nn.Module,
    schedule: ReuseSchedule,
    *,
    policy: SelectionPolicy | None = None,
    chunked: bool = False,
    sparse: bool = False,
    observe: Observer | None = None,
) -> Iterator[AppliedSchedule]:
    """Run `model` under `schedule` inside the block; undo exactly at its end, errors included.

    Gradients are those of the schedule, also where backward comes after the block and where
    `model.activation_checkpointing_enable()`, or `torch.utils.checkpoint` around the model, makes
    layers run again (`observe` sees them once).

    Args:
        model: a transformers model of a supported family.
        schedule: over the model's indexer-bearing layers.
        policy: how full layers select; they then do so by `evalkit.dsa.select`. None: as trained.
        chunked: let full layers select by `evalkit.dsa.select` instead of the installed library's
            indexer, which holds a [query, head, key] tensor. The two differ where scores at the
            top-k border are equal to rounding.
        sparse: let attention gather the selected keys instead of masking all others, where the
            family's takes positions (`Family.sparse`); elsewhere it stays as it is. Equal up to
            rounding. With `chunked`, memory is linear in the length.
        observe: called per layer as (ordinal, call, own selection or None), before attention.

    Raises:
        UnsupportedModelError: the model's family is not supported, or a policy has no index scores
            of it to choose by.
        ScheduleError: wrong number of layers or layer ids, or a full layer where the checkpoint
            has no indexer.
        ScheduleInUseError: nested or concurrent use on one model.
    """
    sites = indexer_sites(model)
    _check_fit(schedule, sites)
    if policy is not None:
        _, chunked = sites.features, True
    gathering: Block = nullcontext
    if sparse and sites.family.sparse:
        gathering = partial(selected_keys_gathered, model, sites, linear_masks=chunked)
    again = partial(apply_schedule, model, schedule, policy=policy, chunked=chunked, sparse=sparse)
    applied = AppliedSchedule(schedule, sites, observe, chunked, gathering, policy, again)
    _mark(sites.root, applied)
    with ExitStack() as stack:
        stack.callback(object.__delattr__, sites.root, _MARK)
        stack.enter_context(gathering())
        stack.enter_context(static_cache_refused(model, sites))
        stack.callback(applied._end)  # an interrupt comes past the hook
        stack.callback(sites.root.register_forward_pre_hook(applied._begin).remove)
        stack.callback(sites.root.register_forward_hook(applied._end, always_call=True).remove)
        for ordinal in range(len(schedule)):
            indexer = sites.indexer(ordinal)
            # Another library's hook may sit there: run through it.
            forward: Forward | None = None if indexer is None else indexer.forward
            applied._forwards.append(forward)
            run = partial(applied._run, ordinal, forward)
            stack.enter_context(_replaced(sites, ordinal, run))
        yield applied


def _mark(root: nn.Module, applied: AppliedSchedule) -> None:
    """Put a model under a schedule, and refuse one that is already."""
    with _ENTER:
        if getattr(root, _MARK, None) is not None:
            raise ScheduleInUseError(
                "this model is already under a schedule: leave that block first (one schedule at"
                " a time; combine reuse and lag in one ReuseSchedule)"
            )
        object.__setattr__(root, _MARK, applied)


def _replaced(sites: IndexerSites, ordinal: int, run: Run) -> AbstractContextManager[None]:
    """`run` in place of one layer's indexer, or where a natively shared layer has none."""
    indexer = sites.indexer(ordinal)
    if indexer is None:
        return swap_indexer(sites.owners[ordinal], _SharedIndexer(run))
    return override_forward(indexer, lambda *args, **kwargs: run(args, kwargs))


def _check_fit(schedule: ReuseSchedule, sites: IndexerSites) -> None:
    ids = sites.layout.layer_ids
    if schedule.layer_ids != ids:
        if len(schedule) != len(ids):
            raise ScheduleError(
                f"the schedule has {len(schedule)} layers, the model {len(ids)} with an indexer"
                f" (layer ids {', '.join(map(str, ids[:8]))}{' …' if len(ids) > 8 else ''})"
            )
        raise ScheduleError(
            f"the schedule is for layers {schedule.layer_ids[:4]}…, the model has its indexers in"
            f" layers {ids[:4]}…: build it with layers={list(ids)}"
        )
    schedule.require_indexers(sites.layout.native)
