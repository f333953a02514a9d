"""Peak memory of one selection: the installed library's indexer beside `evalkit.dsa.select`.

    python benchmarks/index_memory.py [--lengths 2048 8192 32768] [--heads 64] [--dim 128]
    python benchmarks/index_memory.py --policies hisa misa fp8 ... # and `select` under these

Each cell runs in a process of its own; peak memory is what the process used above an empty one that
only loaded the libraries. The stock indexer is left out where its [query, head, key] tensor alone
would pass --limit GiB. Both select over the same random inputs; rows differ only where two
scores at the top-k border are equal to rounding. Time of a policy is beside that of `select`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

POLICIES = {
    "hisa": {"kind": "hisa", "block": 64, "blocks": 64},
    "misa": {"kind": "misa", "heads": 4, "block": 1024},
    "fp8": {"kind": "precision", "keys": "fp8", "queries": "fp8"},
}


def measure(
    method: str, length: int, heads: int, dim: int, topk: int, keep: Path
) -> dict[str, float]:
    """Run one selection in this process and keep it for the comparison."""
    import torch
    from transformers import DeepseekV32Config
    from transformers.models.deepseek_v32.modeling_deepseek_v32 import DeepseekV32Indexer

    from evalkit.config.selection import SELECTIONS
    from evalkit.dsa import IndexerCall, select
    from evalkit.dsa.families.registry import family_of
    from evalkit.dsa.families.sites import features_of

    torch.manual_seed(0)
    config = DeepseekV32Config(
        hidden_size=512, q_lora_rank=256, index_n_heads=heads, index_head_dim=dim,
        qk_rope_head_dim=dim // 2, index_topk=topk, num_hidden_layers=1,
    )  # fmt: skip
    indexer = DeepseekV32Indexer(config, 0).eval()
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    hidden = torch.randn(1, length, 512)
    latent = torch.randn(1, length, 256)
    angle = torch.arange(length)[:, None] * (1e-4 ** torch.linspace(0, 1, dim // 4))
    rope = tuple(torch.cat([f(angle)] * 2, -1)[None] for f in (torch.cos, torch.sin))
    with torch.no_grad():
        if method == "library":
            mask = torch.ones(1, length, length, dtype=torch.bool).tril()
            chosen = indexer(hidden, latent, rope, mask, None).long()
        else:
            call = IndexerCall(hidden, latent, rope, None, None, None, 0)
            section = POLICIES.get(method)
            policy = None if section is None else SELECTIONS[section["kind"]].config(**section)
            features = features_of(family_of("deepseek_v32"))(indexer, call)
            chosen = select(features, topk, policy=policy)
    result = {
        "mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024,
        "seconds": time.perf_counter() - start,
    }
    # The library leaves positions that a row cannot see in early rows; select marks them -1.
    chosen = chosen.masked_fill(chosen > torch.arange(length)[:, None], -1)
    torch.save(chosen.sort(-1).values.int(), keep)
    return result


def same_rows(folder: Path) -> str:
    """Share of query rows in which both selected the same keys, and of keys."""
    import torch

    library, ours = (torch.load(folder / m, weights_only=True) for m in ("library", "select"))
    rows = (library == ours).all(-1).double().mean()
    both = torch.stack(
        [torch.isin(a, b).double().mean() for a, b in zip(library[0], ours[0], strict=True)]
    )
    return f"{rows:.4%} / {both.mean():.5%}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 8192, 32768])
    parser.add_argument("--heads", type=int, default=64)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--topk", type=int, default=2048)
    parser.add_argument("--policies", nargs="*", choices=POLICIES, default=[])
    parser.add_argument("--limit", type=float, default=5.0, help="GiB for one stock tensor")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        method, length, keep = args.one
        shape = (int(length), args.heads, args.dim, args.topk)
        print(json.dumps(measure(method, *shape, Path(keep))))
        return
    with tempfile.TemporaryDirectory() as folder:
        table(args, Path(folder))


def table(args: argparse.Namespace, folder: Path) -> None:
    """One line per length."""
    print(f"{args.heads} heads x {args.dim}, top-{args.topk}, fp32, one sequence")
    head = f"{'tokens':>7} {'library MiB':>12} {'select MiB':>11} {'time ratio':>11}"
    print(f"{head}  same rows / same keys")
    for length in args.lengths:
        stock = args.heads * length * length * 4 / 2**30
        found = {}
        for method in ("library", "select", *args.policies):
            if method == "library" and stock > args.limit:
                continue
            command = [sys.executable, __file__, "--one", method, str(length), folder / method]
            for key in ("heads", "dim", "topk"):
                command += [f"--{key}", str(getattr(args, key))]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[method] = json.loads(done.stdout.splitlines()[-1])
        library = f"{found['library']['mib']:.0f}" if "library" in found else f"({stock:.0f} GiB)"
        same, ratio = "–", "–"
        if "library" in found:
            same = same_rows(folder)
            ratio = f"{found['library']['seconds'] / found['select']['seconds']:.1f}x"
        ours = f"{found['select']['mib']:.0f}"
        print(f"{length:>7} {library:>12} {ours:>11} {ratio:>11}  {same}", flush=True)
        for name in args.policies:
            times = found[name]["seconds"] / found["select"]["seconds"]
            print(f"{name:>20} {found[name]['mib']:>11.0f} {times:>10.1f}x", flush=True)


if __name__ == "__main__":
    main()
