"""Peak memory and time of one distillation step, against a plain dense implementation.

`python benchmarks/distill_memory.py [--lengths 2048 8192 32768] [--models tiny v32] [--dry]`

One student, some consumers' frozen indexers as teachers, λ = 0.5 KL + ListMLE at 64 drawn queries.
`chunked` is what distill does; `plain` makes the [queries, heads, keys] products at once and lets
autograd keep them. Every cell is a process of its own. "beyond" is peak resident memory over what
stood there before the step (weights, inputs, gradients of the weights); "products" is the time of
the matrix products that the step cannot do without, timed in the same process.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from distill.losses.kl import KL, kl, self_information
from distill.losses.listmle import ListMLE, list_order, listmle, position_weights
from distill.models.student import in_precision
from distill.objective.loss import Objective, WeightedLoss, student_loss
from distill.objective.teachers import IndexTeacher
from evalkit.dsa import IndexerCall, IndexFeatures
from evalkit.dsa.families.registry import family_of
from evalkit.dsa.families.sites import features_of
from evalkit.dsa.scores import visible

SHAPES: dict[str, dict[str, int]] = {
    "tiny": {
        "hidden_size": 96,
        "q_lora_rank": 48,
        "index_n_heads": 10,
        "index_head_dim": 24,
        "qk_rope_head_dim": 16,
        "index_topk": 32,
    },
    "v32": {
        "hidden_size": 7168,
        "q_lora_rank": 1536,
        "index_n_heads": 64,
        "index_head_dim": 128,
        "qk_rope_head_dim": 64,
        "index_topk": 2048,
    },
    "dry": {
        "hidden_size": 64,
        "q_lora_rank": 32,
        "index_n_heads": 4,
        "index_head_dim": 16,
        "qk_rope_head_dim": 8,
        "index_topk": 16,
    },
}
ROWS, LIST, CHUNK = 64, 512, 2**22  # LIST: positions of ListMLE


class Step:
    """Everything one step needs.

    Attributes:
        student: in fp32.
        call: inputs of the layer [1, S, hidden].
        rows: drawn rows [1, R], rising.
    """

    def __init__(
        self,
        model: str,
        length: int,
        device: str,
        *,
        teachers: int,
        rows: int = ROWS,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        from transformers import DeepseekV32Config
        from transformers.models.deepseek_v32 import modeling_deepseek_v32 as source

        shape = SHAPES[model]
        config = DeepseekV32Config(max_position_embeddings=length, num_hidden_layers=1, **shape)
        torch.manual_seed(0)
        self.project = features_of(family_of("deepseek_v32"))
        with torch.device(device):
            frozen = [source.DeepseekV32Indexer(config, 0) for _ in range(teachers)]
            for module in frozen:
                for parameter in module.parameters():
                    if parameter.dim() == 2:
                        torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
                module.to(dtype).requires_grad_(False)
            self.frozen: list[Any] = frozen
            self.student: Any = copy.deepcopy(frozen[0]).float().requires_grad_(True)
            hidden = torch.randn(1, length, shape["hidden_size"]).to(dtype)
            latent = torch.randn(1, length, shape["q_lora_rank"]).to(dtype)
            positions = torch.arange(length)[None]
            tables = source.DeepseekV32RotaryEmbedding(config)(hidden, positions)
        rope = (tables[0].to(dtype), tables[1].to(dtype))
        self.call = IndexerCall(hidden, latent, rope, None, positions, None, 0)
        count = min(config.index_topk, LIST)
        drawn = torch.randperm(length - count)[:rows].sort().values + count
        self.rows = drawn[None].to(device)
        self.list_length = count
        self.positions = position_weights(count, "uniform", topk=count, band=count)
        losses = WeightedLoss("kl", 0.5, KL()), WeightedLoss("listmle", 0.5, ListMLE(list_length=1))
        self.objective = Objective(losses, count, chunk_elements=CHUNK)

    @property
    def teachers(self) -> list[IndexTeacher]:
        """Features of the consumers at the rows."""
        with torch.no_grad():
            return [IndexTeacher(self.project(m, self.call, self.rows)) for m in self.frozen]

    def features(self) -> IndexFeatures:
        """The student's, attached to its weights."""
        call = in_precision(self.call, self.student)
        return self.project(self.student, call, self.rows)

    def chunked(self) -> float:
        """The step as distill does it."""
        weight = torch.ones(self.rows.shape, device=self.rows.device)
        sums = student_loss(self.features(), self.teachers, self.objective, weight=weight)
        return 0.5 * sums.of("kl").total + 0.5 * sums.of("listmle").total

    def plain(self) -> float:
        """The same losses with nothing chunked."""
        scores = dense(self.features())
        weight = torch.ones(self.rows.shape, device=scores.device)
        support, total = scores.detach() > float("-inf"), scores.new_zeros(())
        for teacher in self.teachers:
            with torch.no_grad():
                own = dense(teacher.features)
                low = torch.finfo(own.dtype).min
                share = own.masked_fill(~support, low).softmax(-1).masked_fill(~support, 0)
                order = list_order(own, support, self.list_length)
            part, _ = kl(share, scores, support, information=self_information(share), weight=weight)
            listed, _ = listmle(order, scores, support, positions=self.positions, weight=weight)
            total = total + (part + listed) / (2 * len(self.frozen))
        total.backward()
        return float(total.detach())

    def products(self) -> None:
        """Matrix products that no implementation can leave out, forward and backward."""
        call = in_precision(self.call, self.student)
        x, latent = call.hidden[0], call.q_resid
        assert latent is not None
        heads, dim = self.student.n_heads, self.student.head_dim
        rows = self.rows[0]
        query_in, key_w = latent[0][rows], self.student.wk.weight.detach()
        query_w = self.student.wq_b.weight.detach()
        for module in self.frozen:  # each teacher: projections and one score product
            frozen_x = self.call.hidden[0]
            key = (frozen_x @ module.wk.weight.T).float()
            query = (self.call.q_resid[0][rows] @ module.wq_b.weight.T).float()  # type: ignore[index]
            for part in query.view(-1, heads, dim).unbind(1):
                part @ key.T
        key = x @ key_w.T
        query = (query_in @ query_w.T).view(-1, heads, dim)
        grad = torch.ones(len(rows), len(key), device=x.device)
        to_key = torch.zeros_like(key)
        for part in query.unbind(1):  # scores, then their gradients to queries and keys
            part @ key.T
            grad @ key
            to_key.addmm_(grad.T, part)
        to_key.T @ x
        query.flatten(1).T @ query_in


def dense(features: IndexFeatures) -> Tensor:
    """Scores [B, R, T] by one product over all heads."""
    product = torch.einsum("brhd,btd->brht", features.query, features.key).relu()
    scores = torch.einsum("brht,brh->brt", product, features.weight * features.scale)
    return scores.masked_fill(~visible(features, features.positions), float("-inf"))


def timed(run: Callable[[], Any], device: str, repeats: int = 1) -> float:
    """Seconds of one call, device work included."""
    if device != "cpu":
        torch.accelerator.synchronize()
    began = time.perf_counter()
    cpu = time.process_time()
    for _ in range(repeats):
        run()
    if device != "cpu":
        torch.accelerator.synchronize()
        return (time.perf_counter() - began) / repeats
    return (time.process_time() - cpu) / repeats  # other work on the machine does not count


def peak() -> float:
    """Largest resident memory so far in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one_cell(model: str, length: int, how: str, teachers: int) -> dict[str, Any]:
    """One measurement, in this process."""
    torch.set_num_threads(1)
    step = Step(model, length, "cpu", teachers=teachers)
    small = copy.copy(step)  # first use of every kernel, at a length that does not count
    size = step.list_length + 64
    rope, places = tuple(t[:, :size] for t in step.call.rope), step.call.position_ids[:, :size]
    small.call = replace(
        step.call,
        hidden=step.call.hidden[:, :size],
        q_resid=step.call.q_resid[:, :size],
        rope=rope,
        position_ids=places,
    )
    small.rows = torch.arange(size - 64, size)[None]
    getattr(small, how)()
    before = peak()
    seconds = timed(getattr(step, how), "cpu")
    beyond = peak() - before
    return {"seconds": seconds, "beyond": beyond, "products": timed(step.products, "cpu")}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 8192, 32768])
    parser.add_argument("--models", nargs="+", default=["tiny", "v32"])
    parser.add_argument("--teachers", type=int, default=2)
    parser.add_argument("--dry", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        model, length, how = given.cell
        print(json.dumps(one_cell(model, int(length), how, given.teachers)))
        return
    models, lengths = (["dry"], [256, 512]) if given.dry else (given.models, given.lengths)
    print("| indexer | keys | how | beyond inputs, MiB | step, CPU s | products, CPU s | ratio |")
    print("|---|---|---|---|---|---|---|")
    chunked: dict[int, dict[str, float]] = {}
    for model in models:
        for length in lengths:
            for how in ("chunked", "plain"):
                cell = ["--cell", model, str(length), how, "--teachers", str(given.teachers)]
                done = subprocess.run(
                    [sys.executable, __file__, *cell],
                    capture_output=True,
                    text=True,
                    check=False,
                    cwd=Path(__file__).parent.parent,
                )
                if done.returncode:
                    print(f"| {model} | {length} | {how} | does not fit | | | |", flush=True)
                    continue
                found = json.loads(done.stdout.splitlines()[-1])
                ratio = found["seconds"] / found["products"]
                print(
                    f"| {model} | {length} | {how} | {found['beyond']:.0f} |"
                    f" {found['seconds']:.2f} | {found['products']:.2f} | {ratio:.2f} |",
                    flush=True,
                )
                if how == "chunked":
                    chunked[length] = found
    print(json.dumps(ratios(chunked)))


def ratios(cells: dict[int, dict[str, float]]) -> dict[str, float]:
    """Of the last indexer, chunked: times its products, and memory per doubling of the length."""
    lengths = sorted(cells)
    last = cells[lengths[-1]]
    found = {"products": last["seconds"] / last["products"]}
    if len(lengths) > 1:
        times = last["beyond"] / cells[lengths[-2]]["beyond"]
        found["doubling"] = times ** (1 / math.log2(lengths[-1] / lengths[-2]))
    return found


if __name__ == "__main__":
    main()
