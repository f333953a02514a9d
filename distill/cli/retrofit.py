"""`distill retrofit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evalkit.core.console import echo

if TYPE_CHECKING:
    from distill.retrofit.convert import Converted


def retrofit(
    model: Annotated[
        str, typer.Argument(help="Dense model: directory, hub id or GGUF file (Llama, Qwen2 …).")
    ],
    out: Annotated[Path, typer.Option(help="Directory of the new checkpoint; must be empty.")],
    index_heads: Annotated[
        int | None, typer.Option(min=1, help="Index heads; default: one per attention head.")
    ] = None,
    topk: Annotated[
        int | None, typer.Option(min=1, help="index_topk; default: the family's own.")
    ] = None,
    family: Annotated[str, typer.Option(help="deepseek_v32 or glm_moe_dsa.")] = "deepseek_v32",
    format_only: Annotated[
        bool, typer.Option("--format-only", help="Dense attention, no indexers to speak of.")
    ] = False,
    check: Annotated[
        Path | None, typer.Option(help="Text file: compare logits with the base model on it.")
    ] = None,
) -> None:
    """Rewrite a dense model as a sparse-attention model that computes the same."""
    from distill.errors import DistillError
    from distill.retrofit.compare import compare_on_text
    from distill.retrofit.convert import Indexers, convert
    from distill.retrofit.dense import load_dense

    if format_only and (index_heads or topk):
        raise DistillError("--format-only excludes --index-heads and --topk: no indexer is made")
    if check is not None and not check.is_file():
        raise DistillError(f"--check {check}: no such file")
    dense = load_dense(model)
    converted = convert(dense, out, family, Indexers(index_heads, topk, copied=not format_only))
    for line in _lines(converted):
        echo(line)
    if check is not None:
        exact, sparse = compare_on_text(dense, out, check)
        echo(
            f"every token selected, {exact.tokens} tokens, fp32: logits differ by"
            f" {exact.max:.1e} at most, {exact.mean:.1e} on the mean (their spread is"
            f" {exact.spread:.2f}); same argmax at {exact.agreement:.2%}"
        )
        if sparse is not None:
            echo(
                f"index_topk {converted.index_topk}: KL {sparse.kl:.3f} nats a token from the base"
                f" model; same argmax at {sparse.agreement:.2%}"
            )
    echo(f"checkpoint: {converted.directory}")


def _lines(converted: Converted) -> list[str]:
    lines = [
        f"{converted.family}: {converted.parameters / 1e6:.1f} M parameters,"
        f" {converted.indexer_parameters / 1e6:.1f} M of them in the indexers of"
        f" {converted.layers} layers; index_topk {converted.index_topk}",
    ]
    if not converted.parts:
        lines.append("indexers: none; every key scores 0, attention is dense at every length")
    elif all(len(heads) == 1 for heads in converted.parts):
        lines.append(
            f"indexers: in every layer, index head i = attention head i, {len(converted.parts)}"
            f" heads of {converted.index_head_dim} dims"
        )
    else:
        lines.append(f"indexers: in every layer, heads of {converted.index_head_dim} dims")
        lines += [
            f"  index head {number} = attention heads {', '.join(map(str, heads))}"
            for number, heads in enumerate(converted.parts)
        ]
    return lines + [f"note: {note}" for note in converted.notes]
