"""What every engine makes of its index-reuse settings: one row per engine, data only.

Layers are counted from 0. Where an engine knows frequencies, layer i is full if and only if

    max(i − shift, 0) mod frequency == 0

and engines differ in `shift`. Equal settings therefore keep different layers: 61 layers at
frequency 4 are {0, 1, 5, …, 57} for SGLang, vLLM and transformers, {0, 4, …, 60} for prime-rl.
Each row says where it was read. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Source = Literal["types", "pattern", "freq"]
Gate = Literal["none", "documented", "required"]
OffsetRule = Literal["unread", "shift", "one_based"]
Short = Literal["error", "full", "exact"]
Stages = Literal[
    "carried", "first full", "forced full", "forced by frequency", "unknown", "one process"
]
Launch = Literal["sglang", "vllm", "transformers", "megatron", "prime-rl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one engine reads its settings.

    Attributes:
        title: the engine in words, with what was read.
        space: ``layers`` counts all backbone layers, ``c4`` the compressed-sparse ones.
        reads: what decides, first found first; empty: the engine has no reuse for these models.
        gate: whether ``use_index_cache`` must be true (``documented``: by its documentation only).
        offset_rule: how the offset moves the frequency rule: ``shift`` = offset − 1,
            ``one_based`` = max(offset, 1) − 1, ``unread``: the offset is not read.
        offset: used where none is given (for ``unread``: what the built-in shift amounts to).
        least_offset: smaller ones are refused by the engine; None: not checked.
        fixed_freq: the only frequency, where it is built in.
        freq_known: False where the rule could not be read.
        short: layers beyond the end of a pattern: ``full``, an ``error``, or the length must be
            ``exact`` (then too long is an error as well; elsewhere letters too many are ignored).
        checks_first: refuses a pattern whose first layer is shared; others run into it.
        stages: pipeline stages: selections are ``carried`` on, a stage must begin on a ``first
            full`` layer, its first layer is ``forced full`` (``by frequency``: a pattern is
            refused instead), or nothing is known.
        mtp: what multi-token-prediction layers do.
        shared_indexer: what becomes of the indexer of a shared layer.
        launch: how settings are handed over; None: not written here.
        names: spelling of frequency and offset.
    """

    title: str
    space: Literal["layers", "c4"] = "layers"
    reads: tuple[Source, ...] = ("pattern", "freq")
    gate: Gate = "none"
    offset_rule: OffsetRule = "shift"
    offset: int = 2
    least_offset: int | None = None
    fixed_freq: int | None = None
    freq_known: bool = True
    short: Short = "full"
    checks_first: bool = False
    stages: Stages = "unknown"
    mtp: str = "not said"
    shared_indexer: str = "not said"
    launch: Launch | None = None
    names: tuple[str, str] = ("index_topk_freq", "index_skip_topk_offset")

    def shift(self, offset: int | None) -> int:
        """The shift of the frequency rule for an offset (None: not given)."""
        used = self.offset if offset is None or self.offset_rule == "unread" else offset
        return max(used, 1) - 1 if self.offset_rule == "one_based" else used - 1


_MTP_VLLM = "always builds an indexer; computes at draft step 0, switched at run time after that"
_MTP_OUT = "left out: the schedule covers the backbone only"
_MTP_SGLANG = "computes where no earlier selection is handed in, else reuses it"

DIALECTS: Mapping[str, Dialect] = {
    "sglang": Dialect(
        title="SGLang (DeepSeek-V3.2, GLM-5), dsa_layer_skips_topk",
        least_offset=1,
        stages="carried",
        mtp=_MTP_SGLANG,
        shared_indexer="dropped with its index-key cache (sgl-project/sglang#30531)",
        launch="sglang",
    ),
    "sglang-2026-06": Dialect(
        title="SGLang of June 2026, models/deepseek_v2.py",
        least_offset=1,
        short="error",
        stages="carried",
        mtp=_MTP_SGLANG,
        shared_indexer="kept (uninitialised for GLM-5.2)",
        launch="sglang",
    ),
    "thudm-patch": Dialect(
        title="THUDM/IndexCache patch for SGLang and vLLM (March 2026)",
        offset_rule="unread",
        short="error",
        stages="first full",
        mtp="always full",
        shared_indexer="kept and loaded",
        launch="sglang",
    ),
    "vllm": Dialect(
        title="vLLM (DeepSeek-V3.2, GLM-5), models/deepseek_v2.py",
        gate="documented",
        stages="first full",
        mtp=_MTP_VLLM,
        shared_indexer="not built; its checkpoint weights are dropped (vllm-project/vllm#46600)",
        launch="vllm",
    ),
    "vllm-ascend": Dialect(
        title="vllm-ascend (DeepSeek-V3.2, GLM-5), patch_deepseek_v2.py",
        gate="documented",
        stages="first full",
        mtp="keeps its indexer",
        shared_indexer="removed only where the checkpoint's indexer_types says shared",
        launch="vllm",
    ),
    "vllm-ascend-v4": Dialect(
        title="vllm-ascend (DeepSeek-V4), models/deepseek_v4",
        space="c4",
        gate="required",
        offset_rule="unread",
        checks_first=True,
        stages="first full",
        mtp=_MTP_OUT,
        shared_indexer="built; reads the shared buffer and does not update its index-key cache",
        launch="vllm",
    ),
    "vllm-v4-pr51209": Dialect(
        title="vLLM (DeepSeek-V4), vllm-project/vllm#51209, open",
        space="c4",
        gate="required",
        offset_rule="unread",
        offset=1,
        short="exact",
        checks_first=True,
        stages="forced by frequency",
        mtp="left out: trailing compress_ratios are ignored",
        shared_indexer="its KV cache stays allocated",
        launch="vllm",
    ),
    "vllm-v4-pr49085": Dialect(
        title="vLLM (DeepSeek-V4 on Hopper), vllm-project/vllm#49085, closed",
        space="c4",
        least_offset=1,
        short="exact",
        checks_first=True,
        stages="forced full",
        mtp=_MTP_OUT,
        shared_indexer="weights filtered; runs the main compressor, not the indexer",
        launch="vllm",
    ),
    "ascend-sglang-v4": Dialect(
        title="Ascend SGLang (DeepSeek-V4), Ascend/sglang#1332 at 63bc105",
        space="c4",
        gate="required",
        offset_rule="unread",
        offset=1,
        checks_first=True,
        mtp="left out (NextN layers are excluded in the constructor)",
        shared_indexer="still updates its compressor; query, weights, scores and top-k are skipped",
        launch="sglang",
    ),
    "sglang-v4-pr26229": Dialect(
        title="SGLang (DeepSeek-V4), sgl-project/sglang#26229, closed",
        space="c4",
        offset_rule="unread",
        offset=1,
        short="exact",
        checks_first=True,
        mtp="left out (None for NextN)",
        shared_indexer="logical ids are mapped again per layer",
        launch="sglang",
    ),
    "sglang-v4-pr26274": Dialect(
        title="SGLang (DeepSeek-V4), sgl-project/sglang#25276, #26274, #32771",
        space="c4",
        freq_known=False,
        short="error",
        mtp="tolerates what NextN returns",
        shared_indexer="skips its own compressor, query, weights, scores and top-k",
        launch="sglang",
    ),
    "sglang-v4": Dialect(
        title="SGLang main (DeepSeek-V4): settings are ignored (sgl-project/sglang#36083)",
        space="c4",
        reads=(),
        launch="sglang",
    ),
    "transformers": Dialect(
        title="transformers (glm_moe_dsa)",
        reads=("types", "pattern", "freq"),
        short="error",
        checks_first=True,
        stages="one process",
        mtp="not instantiated",
        shared_indexer="None",
        launch="transformers",
    ),
    "transformers-v32": Dialect(
        title="transformers (deepseek_v32): no sharing",
        reads=(),
        stages="one process",
        launch="transformers",
    ),
    "transformers-v4": Dialect(
        title="transformers (deepseek_v4): no sharing",
        space="c4",
        reads=(),
        stages="one process",
        launch="transformers",
    ),
    "transformers-hy-v4": Dialect(
        title="transformers (hy_v4)",
        reads=("types", "freq"),
        offset_rule="unread",
        fixed_freq=4,
        short="error",
        checks_first=True,
        stages="one process",
        shared_indexer="None",
        launch="transformers",
    ),
    "megatron": Dialect(
        title="Megatron-LM and Megatron-Bridge; layers are counted from 1 there",
        reads=("freq",),
        offset_rule="one_based",
        offset=0,
        least_offset=0,
        stages="first full",
        shared_indexer="None",
        launch="megatron",
        names=("dsa_indexer_topk_freq", "dsa_indexer_skip_topk_offset"),
    ),
    "slime": Dialect(
        title="slime; layers are counted from 1 there",
        reads=("freq",),
        offset=0,
        stages="first full",
        shared_indexer="on computing layers only",
    ),
    "prime-rl": Dialect(
        title="prime-rl (glm_moe_dsa)",
        reads=("pattern", "types", "freq"),
        gate="required",
        offset_rule="unread",
        offset=1,
        shared_indexer="None",
        launch="prime-rl",
    ),
    "nemo-automodel": Dialect(
        title="NeMo Automodel",
        reads=("types", "pattern", "freq"),
        offset_rule="unread",
        short="error",
        checks_first=True,
        stages="carried",
        shared_indexer="as transformers",
    ),
    "atom": Dialect(
        title="ROCm ATOM, ROCm/ATOM#1260",
        reads=("types", "pattern", "freq"),
        gate="required",
        offset=1,
        mtp="reuses where index_share_for_mtp_iteration is set",
        shared_indexer="not built",
    ),
    "trtllm-pr15513": Dialect(
        title="TensorRT-LLM, PR 15513, closed: index_topk_pattern is a list of layer ids there",
        reads=("freq",),
    ),
    "lmdeploy": Dialect(title="lmdeploy", short="error", checks_first=True),
}
