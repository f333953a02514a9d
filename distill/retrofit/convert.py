"""Convert a dense model and write the result as a checkpoint directory."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from distill.errors import DistillError, saving
from distill.retrofit.card import card
from distill.retrofit.dense import DenseModel, location
from distill.retrofit.indexers import copied_indexer, empty_indexer, head_groups
from distill.retrofit.rotary import longrope_parameters
from distill.retrofit.weights import Rewriter, latent_width, padded_width
from evalkit.core.errors import in_one_line
from evalkit.dsa.files import follow_umask

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

FAMILIES = ("deepseek_v32", "glm_moe_dsa")


@dataclass(frozen=True, slots=True)
class Converted:
    """What was written.

    Attributes:
        directory: the checkpoint.
        family: its model type.
        parameters: how many, indexers included.
        indexer_parameters: how many of them belong to indexers.
        layers: number of layers, each with an indexer.
        index_topk: positions a query attends to.
        index_head_dim: width of an index head.
        parts: attention heads of each index head; empty for indexers that hold nothing.
        notes: what must be known beside it.
    """

    directory: Path
    family: str
    parameters: int
    indexer_parameters: int
    layers: int
    index_topk: int
    index_head_dim: int
    parts: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Indexers:
    """Which indexers the converted model gets.

    Attributes:
        heads: index heads per layer; None takes one per attention head.
        topk: positions a query attends to; None takes the family's default.
        copied: False leaves indexers that score every key 0, and attention dense at every length.
    """

    heads: int | None = None
    topk: int | None = None
    copied: bool = True


def convert(dense: DenseModel, out: Path, family: str, indexers: Indexers) -> Converted:
    """Write `dense` as a model of a DSA family, in fp32.

    Args:
        dense: from `load_dense`.
        out: must not exist, or be empty; appears whole or not at all.
        family: of `FAMILIES`.
        indexers: which ones.

    Raises:
        DistillError: `out` is in use, or the options do not fit the model.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DistillError(f"{out}: not empty; name another --out")
    if family not in FAMILIES:
        raise DistillError(f"family {family}: use {' or '.join(FAMILIES)}")
    parts = _parts(dense, indexers)
    config = target_config(dense, family, indexers, max(1, len(parts)))
    tensors = rewritten(dense, family, parts)
    tokenizer_note = _write(dense, config, tensors, out, family, parts)
    width = dense.groups * dense.head_dim
    unique = {tensor.data_ptr(): tensor.numel() for tensor in tensors.values()}
    return Converted(
        directory=out,
        family=family,
        parameters=sum(unique.values()),
        indexer_parameters=sum(t.numel() for n, t in tensors.items() if ".indexer." in n),
        layers=config.num_hidden_layers,
        index_topk=config.index_topk,
        index_head_dim=width,
        parts=parts,
        notes=tuple(note for note in (tokenizer_note, _bias_note(dense, parts)) if note),
    )


def target_config(
    dense: DenseModel, family: str, indexers: Indexers, index_heads: int
) -> PreTrainedConfig:
    """Configuration of the converted model."""
    from transformers import AutoConfig

    base, width = dense.config, dense.groups * dense.head_dim
    topk = indexers.topk if indexers.copied else base.max_position_embeddings
    latent = latent_width(dense)
    return AutoConfig.for_model(
        family,
        **({} if topk is None else {"index_topk": topk}),
        vocab_size=base.vocab_size,
        hidden_size=padded_width(base.hidden_size),
        intermediate_size=base.intermediate_size,
        num_hidden_layers=base.num_hidden_layers,
        num_attention_heads=dense.heads,
        num_key_value_heads=dense.heads,
        q_lora_rank=latent,
        kv_lora_rank=latent,
        qk_rope_head_dim=width,
        qk_nope_head_dim=0,
        v_head_dim=dense.head_dim,
        first_k_dense_replace=base.num_hidden_layers,
        n_routed_experts=1,
        num_experts_per_tok=1,
        n_group=1,
        topk_group=1,
        hidden_act=base.hidden_act,
        max_position_embeddings=base.max_position_embeddings,
        rms_norm_eps=0.0,
        tie_word_embeddings=base.tie_word_embeddings,
        attention_bias=dense.biased,
        rope_parameters=longrope_parameters(dense.table, dense.groups),
        index_head_dim=width,
        index_n_heads=index_heads,
        bos_token_id=base.bos_token_id,
        eos_token_id=base.eos_token_id,
        pad_token_id=base.pad_token_id,
    )


def rewritten(
    dense: DenseModel, family: str, parts: tuple[tuple[int, ...], ...]
) -> dict[str, Tensor]:
    """All tensors of the converted model in fp32, by name; tied ones share their memory."""
    rewriter = Rewriter(dense)
    outside = dict(rewriter.outside())
    tied = outside["lm_head.weight"] is outside["model.embed_tokens.weight"]
    tensors = {name: tensor.float() for name, tensor in outside.items()}
    if tied:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    for index in range(dense.config.num_hidden_layers):
        layer, maps = rewriter.layer(index)
        indexer = (
            copied_indexer(dense, maps, parts, family)
            if parts
            else empty_indexer(dense, latent_width(dense))
        )
        prefix = f"model.layers.{index}.self_attn.indexer."
        layer |= {prefix + name: tensor for name, tensor in indexer.items()}
        tensors |= {name: tensor.float().contiguous() for name, tensor in layer.items()}
    return tensors


def _parts(dense: DenseModel, indexers: Indexers) -> tuple[tuple[int, ...], ...]:
    if not indexers.copied:
        return ()
    heads = indexers.heads or dense.heads
    if heads > dense.heads:
        raise DistillError(
            f"--index-heads {heads}: the model has {dense.heads} attention heads to copy from"
        )
    return head_groups(dense.heads, dense.groups, heads)


def _write(
    dense: DenseModel,
    config: PreTrainedConfig,
    tensors: dict[str, Tensor],
    out: Path,
    family: str,
    parts: tuple[tuple[int, ...], ...],
) -> str:
    """Write the directory; returns a note where there is no tokenizer to write."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(tensors, strict=True, assign=True)
    model.tie_weights()
    model.generation_config = dense.model.generation_config
    partial = out.with_name(f".{out.name}.new")
    with saving(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        try:
            model.save_pretrained(partial)
            note = _save_tokenizer(dense, partial)
            text = card(dense, family, config, parts)
            (partial / "README.md").write_text(text, encoding="utf-8")
            follow_umask(partial)
            if out.exists():
                out.rmdir()
            partial.rename(out)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return note


def _save_tokenizer(dense: DenseModel, directory: Path) -> str:
    from transformers import AutoTokenizer

    where, options = location(dense.source)
    try:
        AutoTokenizer.from_pretrained(where, **options).save_pretrained(directory)
    except (OSError, ValueError, KeyError) as error:
        return f"no tokenizer written: {in_one_line(error)}"
    return ""


def _bias_note(dense: DenseModel, parts: tuple[tuple[int, ...], ...]) -> str:
    if not parts or not any(name.endswith("k_proj.bias") for name in dense.tensors):
        return ""
    return "keys have biases, which the copied indexers only approximate"
