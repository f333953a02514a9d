"""The buffers of a rank, and the copy that merges decode and prefill rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from evalkit.vllm_plugin.routing import Route, Routes

if TYPE_CHECKING:
    from torch import Tensor


class SelectionBuffers:
    """Slots for selections, shaped as the engine's own buffer.

    Nothing here waits for the device or depends on values: shapes are those of the engine's batch,
    which are fixed in a CUDA graph, and the split between decode and prefill is a mask that
    `split` fills before the forward, outside of any graph.

    Attributes:
        slots: int32 [tokens, top-k] each; the first is the engine's buffer.
        decode_rows: bool [tokens, 1], True for tokens that read the decode source.
    """

    def __init__(self, routes: Routes, buffer: Tensor) -> None:
        """Make the slots that are needed beside the engine's own buffer.

        Args:
            routes: of the schedule.
            buffer: the engine's buffer [tokens, top-k].
        """
        import torch

        self.routes = routes
        self.slots: list[Tensor] = [buffer]
        self.slots += [torch.full_like(buffer, -1) for _ in range(1, routes.slots)]
        self.decode_rows = torch.zeros((buffer.shape[0], 1), dtype=torch.bool, device=buffer.device)

    def split(self, decode_tokens: int, prompts: Iterable[slice] = ()) -> None:
        """Say which rows of the next forward are decode steps.

        Rows of speculative verification count as decode.

        Args:
            decode_tokens: tokens that the engine treats as decode steps; it sorts them first.
            prompts: rows among them that are pieces of prompts, as short as a decode step.
        """
        self.decode_rows[:decode_tokens].fill_(True)
        self.decode_rows[decode_tokens:].fill_(False)
        for rows in prompts:
            self.decode_rows[rows].fill_(False)

    def merge(self, route: Route, rows: int) -> None:
        """Bring a layer's selection together before its attention reads it, if there is need.

        Args:
            route: of the layer.
            rows: tokens of this forward, padding included.
        """
        if route.merge is None:
            return
        import torch

        decode, prefill = (self.slots[slot][:rows] for slot in route.merge)
        torch.where(self.decode_rows[:rows], decode, prefill, out=self.slots[route.read][:rows])


def prompt_rows(requests: int, batch: Any) -> list[slice]:
    """Rows of prompts among the requests that the engine treats as decode steps.

    A piece of a prompt comes out as short as a decode step where the text before it was cached, or
    filled the pieces before: how a prompt was cut must not change what it reads.

    Args:
        requests: how many the engine treats so, the first of the batch.
        batch: vLLM's `CommonAttentionMetadata`; what is read of it lies on the host.
    """
    if batch is None or batch.is_prefilling is None:
        return []
    starts = batch.query_start_loc_cpu
    short = batch.is_prefilling[:requests].nonzero().flatten().tolist()
    return [slice(int(starts[r]), int(starts[r + 1])) for r in short]
