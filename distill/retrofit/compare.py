"""Logit difference between a dense model and its conversion on text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from distill.errors import DistillError
from distill.retrofit.dense import DenseModel
from evalkit.core.errors import in_one_line

WINDOW = 512  # tokens of one forward
WINDOWS = 4


@dataclass(frozen=True, slots=True)
class LogitDifference:
    """How far two models' next-token logits are apart.

    Attributes:
        tokens: positions compared.
        max: largest absolute difference of a logit.
        mean: mean absolute difference.
        spread: standard deviation of the first model's logits, for scale.
        agreement: share of positions with the same most likely token.
        kl: mean KL divergence of the second model's predictions from the first's, in nats.
    """

    tokens: int
    max: float
    mean: float
    spread: float
    agreement: float
    kl: float


def compare_on_text(
    dense: DenseModel, directory: Path, text: Path
) -> tuple[LogitDifference, LogitDifference | None]:
    """Compare in fp32 with every token selected, then with the conversion's own selections.

    The text is cut into at most four windows of 512 tokens.

    Args:
        dense: the base.
        directory: its conversion, tokenizer included.
        text: UTF-8 file.

    Returns:
        Both differences; the second is None where no window is longer than `index_topk`.

    Raises:
        DistillError: the text cannot be read or is empty, or there is no tokenizer.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(directory)
        ids = tokenizer(text.read_text(encoding="utf-8"))["input_ids"]
    except (OSError, ValueError) as error:
        raise DistillError(f"--check {text}: {in_one_line(error)}") from None
    if not ids:
        raise DistillError(f"--check {text}: no text in it")
    ids = ids[: WINDOW * WINDOWS]
    windows = [torch.tensor(ids[at : at + WINDOW]) for at in range(0, len(ids), WINDOW)]
    load = AutoModelForCausalLM.from_pretrained
    sparse = load(directory, dtype=torch.float32).eval()
    selecting_all = load(directory, dtype=torch.float32, index_topk=WINDOW).eval()
    exact = difference(dense.model, selecting_all, windows)
    if len(windows[0]) <= sparse.config.index_topk:
        return exact, None
    return exact, difference(dense.model, sparse, windows)


@torch.no_grad()
def difference(first: nn.Module, second: nn.Module, windows: Sequence[Tensor]) -> LogitDifference:
    """Difference of two causal language models over windows of token ids [T]."""
    gaps, agree, kl, logits = [], [], [], []
    for ids in windows:
        one, other = first(ids[None]).logits[0].float(), second(ids[None]).logits[0].float()
        gaps.append((one - other).abs())
        agree.append(one.argmax(-1) == other.argmax(-1))
        before, after = one.log_softmax(-1), other.log_softmax(-1)
        kl.append((before.exp() * (before - after)).sum(-1))
        logits.append(one)
    gap = torch.cat(gaps)
    return LogitDifference(
        tokens=len(gap),
        max=float(gap.max()),
        mean=float(gap.mean()),
        spread=float(torch.cat(logits).std()),
        agreement=float(torch.cat(agree).float().mean()),
        kl=float(torch.cat(kl).mean()),
    )
