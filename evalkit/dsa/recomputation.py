"""Gradient checkpointing under a schedule: what runs again reads what it read the first time.

A checkpointed layer runs again in backward, when its forward is over and perhaps the block of
`apply_schedule` too. Every such call therefore keeps the selections that its layers read, and puts
them back for as long as it runs again; the indexers of full layers run again beside them, so that
the graph is the same, and what they select is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

from torch import Tensor, nn

from evalkit.dsa.schedule import ScheduleError

ENABLE = "model.activation_checkpointing_enable()"
_FUNCTION = "_gradient_checkpointing_func"  # of transformers, on every module that may checkpoint
_WRAPPED = "_checkpoint_wrapped_module"  # of torch's wrapper, which runs a layer as it finds it

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

    def run(checkpoint: Checkpoint, function: Callable[..., object], *args: object) -> object:
        return checkpoint(CheckpointedCall(function, recording, replaying), *args)

    with ExitStack() as stack:
        for module in root.modules():
            checkpoint: Checkpoint | None = vars(module).get(_FUNCTION)
            unseen = checkpoint is None and getattr(module, "gradient_checkpointing", False)
            if unseen or _WRAPPED in module._modules:
                raise ScheduleError(
                    "layers of this model are checkpointed in a way that is not followed here: what"
                    " runs again in backward would not read the schedule's selections; use"
                    f" {ENABLE} instead"
                )
            if checkpoint is not None:
                setattr(module, _FUNCTION, partial(run, checkpoint))
                stack.callback(setattr, module, _FUNCTION, checkpoint)
        yield
