"""The model card of a converted model: base, licence, what it is good for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distill.retrofit.dense import DenseModel

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def card(
    dense: DenseModel, family: str, config: PreTrainedConfig, parts: tuple[tuple[int, ...], ...]
) -> str:
    """README.md with the front matter of a model card."""
    return "\n".join(
        [
            "---",
            f"base_model: {dense.name}",
            f"license: {dense.licence}",
            "library_name: transformers",
            "tags: [deepseek-sparse-attention, retrofit]",
            "---",
            "",
            f"# {dense.name} as a `{family}` model",
            "",
            f"The weights of {dense.name} (licence: {dense.licence}), rewritten by `distill"
            f" retrofit` for the class that transformers has for `{family}`: plain"
            " `from_pretrained`, no code of its own. Where every token is selected, at lengths up"
            f" to `index_topk` = {config.index_topk}, it computes the base model's function to fp32"
            " rounding.",
            "",
            "## Indexers",
            "",
            *_indexer_lines(config, parts),
            "",
            "## What it is good for",
            "",
            "- To measure what sparse attention, index reuse across layers (IndexCache) and a lag"
            " (MLI) do to the answers of this base model, and what training its indexers brings"
            " back.",
            "- Not for speed: index heads are as wide as all key-value heads together, so that"
            " selecting costs about as much as the dense model's attention.",
            "- Not as evidence about models that were trained with sparse attention: here neither"
            " the indexers nor the attention have been.",
            "",
        ]
    )


def _indexer_lines(config: PreTrainedConfig, parts: tuple[tuple[int, ...], ...]) -> list[str]:
    if not parts:
        return [
            "None: they score every key 0, and `index_topk` is the maximum length, so that"
            " attention stays dense until indexers have been trained.",
        ]
    if all(len(heads) == 1 for heads in parts):
        return [
            f"In each of {config.num_hidden_layers} layers, index head i is a copy of attention"
            f" head i ({len(parts)} heads of {config.index_head_dim} dims); nothing was trained.",
        ]
    return [
        f"{len(parts)} heads of {config.index_head_dim} dims in each of"
        f" {config.num_hidden_layers} layers, copied from the layer's attention and not trained:",
        "",
        "| index head | queries of attention heads |",
        "|---|---|",
        *(f"| {number} | {', '.join(map(str, heads))} |" for number, heads in enumerate(parts)),
    ]
