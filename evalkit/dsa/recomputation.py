"""Gradient checkpointing under a schedule: what runs again reads what it read the first time.

A checkpointed layer runs again in backward, when its forward is over and perhaps the block of
`apply_schedule` too. Every such call therefore keeps the selections that its layers read, and puts
them back for as long as it runs again; the indexers of full layers run again beside them, so that
the graph is the same, and what they select is not looked at.

A checkpoint by hand around the whole model keeps its function for backward in an object of
torch's. There the function is replaced by one that runs under the schedule again: nothing stays on
the model, what is kept goes with the graph.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType

from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointFunction, checkpoint

from evalkit.dsa.schedule import ScheduleError

ENABLE = "model.activation_checkpointing_enable()"
_FUNCTION = "_gradient_checkpointing_func"  # of transformers, on every module that may checkpoint
_WRAPPED = "_checkpoint_wrapped_module"  # of torch's wrapper, which runs a layer as it finds it
_REENTRANT = CheckpointFunction.forward.__code__
_NOT_REENTRANT = inspect.unwrap(checkpoint).__code__
UNSEEN = (
    "layers of this model are checkpointed in a way that is not followed here: what runs again in"
    f" backward would not read the schedule's selections; use {ENABLE} instead"
)

Checkpoint = Callable[..., object]
Read = dict[int, Tensor]
"""Selections [B, S, topk] by ordinal of the layer that read them."""
Following = Callable[[Read], AbstractContextManager[None]]
"""A block in which such selections are noted, or given."""


class CheckpointedCall:
    """A function that a checkpoint runs now, and again in backward."""

    def __init__(
        self, function: Callable[..., object], recording: Following, replaying: Following
    ) -> None:
        self._function = function
        self._recording, self._replaying = recording, replaying
        self._read: Read | None = None

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Run it: the first time noting what layers read, then giving them the same."""
        if self._read is None:
            self._read = {}
            under = self._recording(self._read)
        else:
            under = self._replaying(self._read)
        with under:
            return self._function(*args, **kwargs)


def may_run_again(root: nn.Module) -> bool:
    """Whether layers may be checkpointed: each goes by its own mode, torch's wrapper by none."""
    return any(module.training or _WRAPPED in module._modules for module in root.modules())


@contextmanager
def checkpoints_followed(
    root: nn.Module, recording: Following, replaying: Following
) -> Iterator[None]:
    """Let every checkpoint of transformers below `root` run a `CheckpointedCall` inside the block.

    Raises:
        ScheduleError: something else checkpoints layers; what it runs again is not seen.
    """

    def run(keeping: Checkpoint, layer: Callable[..., object], *args: object) -> object:
        return keeping(CheckpointedCall(layer, recording, replaying), *args)

    with ExitStack() as stack:
        for module in root.modules():
            function: Checkpoint | None = vars(module).get(_FUNCTION)
            unseen = function is None and getattr(module, "gradient_checkpointing", False)
            if unseen or _WRAPPED in module._modules:
                raise ScheduleError(UNSEEN)
            if function is not None:
                setattr(module, _FUNCTION, partial(run, function))
                stack.callback(setattr, module, _FUNCTION, function)
        yield


# -- checkpoints by hand --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RunningCheckpoint:
    """A call of `torch.utils.checkpoint` whose function runs now.

    Attributes:
        kept: what torch keeps of it for backward.
        name: attribute of `kept` that holds the function which then runs.
    """

    kept: object
    name: str

    def under(self, block: Callable[[], AbstractContextManager[object]], owner: object) -> None:
        """Let the function run within `block` in backward; once for each `owner`."""
        function = getattr(self.kept, self.name)
        inner = function
        while isinstance(inner, _Under):
            if inner.owner is owner:
                return
            inner = inner.function
        setattr(self.kept, self.name, _Under(function, block, owner))


class _Under:
    """A function within a block."""

    def __init__(
        self,
        function: Callable[..., object],
        block: Callable[[], AbstractContextManager[object]],
        owner: object,
    ) -> None:
        self.function, self.block, self.owner = function, block, owner

    def __call__(self, *args: object) -> object:
        with self.block():
            return self.function(*args)


def running_checkpoints() -> list[RunningCheckpoint]:
    """The checkpoints in whose functions the caller runs for the first time, innermost first.

    Read from the call stack: torch tells the function nothing.

    Raises:
        ScheduleError: this version of torch keeps something else than was read.
    """
    running: list[RunningCheckpoint] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        checkpointing = _checkpoint_of(frame)
        if checkpointing is not None:
            if not callable(getattr(checkpointing.kept, checkpointing.name, None)):
                raise ScheduleError(UNSEEN)
            running.append(checkpointing)
        frame = frame.f_back
    return running


def _checkpoint_of(frame: FrameType) -> RunningCheckpoint | None:
    """The checkpoint that a call is; its names are those of torch 2.13."""
    if frame.f_code is _REENTRANT:
        return RunningCheckpoint(frame.f_locals.get("ctx"), "run_function")
    if frame.f_code is _NOT_REENTRANT and not frame.f_locals.get("use_reentrant"):
        inner = getattr(frame.f_locals.get("gen"), "gi_frame", None)
        kept = None if inner is None else inner.f_locals.get("new_frame")
        return RunningCheckpoint(kept, "recompute_fn")
    return None
