"""Every performance goal of the project in one table: what was measured, the goal, met or not.

    python benchmarks/run_all.py [--quick] [--only NAME ...] [--before DIR] [--longbench DIR
        --records DIR] [--ruler DIR --tokenizer DIR] [--official-python PATH]

Each benchmark runs as a process of its own and prints its ratios as JSON in its last line. Every
ratio is one of medians, or of processor times, within one run, beside the anchor of its row.
Rows come as they are known, the quick ones first. `--quick` takes small sizes: a goal that is
stated for a size is neither met nor missed there. What a benchmark lacks (a checkout of the
official code, a package) is the reason in its row. Fails (exit 1) where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Goal:
    """One row.

    Attributes:
        says: what the number is.
        anchor: beside which it was measured.
        key: of the number in what the benchmark prints.
        least: the number is to be at least this.
        most: or at most this.
        needs: a module or program that this number takes beside the others.
        size: what the goal is stated for, where another size has another number.
    """

    says: str
    anchor: str
    key: str
    least: float = -math.inf
    most: float = math.inf
    needs: str = ""
    size: str = ""

    @property
    def text(self) -> str:
        """The goal in signs."""
        return f"≥ {self.least:g}" if self.least > -math.inf else f"≤ {self.most:g}"

    def met(self, value: float) -> bool:
        """Whether the number is within."""
        return self.least <= value <= self.most

    def digits(self, value: float) -> str:
        """The number with two decimals, or as many more as show on which side of the goal it is."""
        texts = [f"{value:.{places}f}" for places in range(2, 7)]
        return next((text for text in texts if self.met(float(text)) == self.met(value)), texts[-1])


@dataclass(frozen=True)
class Benchmark:
    """One script with its goals.

    Attributes:
        name: of the script.
        goals: rows of the table.
        quick: its options for a small size.
        folders: options of this program that it needs, and its own names for them.
        optional: likewise, what it can do without.
    """

    name: str
    goals: tuple[Goal, ...]
    quick: str = ""
    folders: tuple[tuple[str, str], ...] = ()
    optional: tuple[tuple[str, str], ...] = ()


ALL = (
    Benchmark(
        "import_time",
        (
            Goal("import evalkit, s", "", "import", most=0.3),
            Goal("slowest --help, s", "", "help", most=0.3),
        ),
        "--rounds 1",
    ),
    Benchmark(
        "bootstrap_speed",
        (
            Goal("BCa of 12 arms, times as fast", "SciPy", "scipy", least=10),
            Goal("BCa of 12 arms, s", "", "seconds", most=1),
        ),
        "--repeats 1",
    ),
    Benchmark(
        "client_overhead",
        (
            Goal("requests a second, in times", "bare HTTP", "bare loop", least=0.9),
            Goal("requests a second, in times", "lm-evaluation-harness", "harness", least=1,
                 needs="lm_eval"),
        ),
        "--requests 100 --repeats 1 --concurrency 1 16",
    ),
    Benchmark(
        "report_page",
        (
            Goal("page of 16 arms x 4,750 answers, MB", "", "megabytes", most=6),
            Goal("its first sample shown, CPU s", "", "seconds", most=2, needs="chromium"),
        ),
    ),
    Benchmark(
        "worst_inputs",
        (Goal("worst inputs, share of their limits", "limits", "limit", most=1),),
    ),
    Benchmark(
        "scoring_speed",
        (Goal("LongBench scored, times as fast", "official scorer", "scorer", least=10),),
        folders=(("longbench", "--official"), ("records", "--records")),
        optional=(("official_python", "--official-python"),),
    ),
    Benchmark(
        "shared_prefill",
        (Goal("baseline and k = 1, 2, 3, in times of one arm", "one arm", "arms", most=1.6,
              size="prompts of 8k"),),
        "--length 2048 --answer 8 --layers 4",
    ),
    Benchmark(
        "ruler_speed",
        (Goal("RULER made, slowest task, times as fast", "official scripts", "least", least=10,
              size="131,072 tokens"),),
        "--length 16384 --samples 2 --own-samples 20",
        folders=(("ruler", "--official"), ("tokenizer", "--tokenizer")),
        optional=(("official_python", "--official-python"),),
    ),
    Benchmark(
        "decoding_speed",
        (
            Goal("one arm on the demo, tokens a second", "generate", "demo", least=1.3),
            Goal("answers of 8 to 128 tokens, likewise", "generate", "long", least=1.3),
        ),
        "--prompts 6 --rounds 1 --longest 64",
    ),
    Benchmark(
        "sweep_speed",
        (Goal("demo's sweep, times as fast", "version 14b2bb4", "sweep", least=2),),
        "--rounds 1",
        folders=(("before", ""),),
    ),
    Benchmark(
        "distill_memory",
        (
            Goal("a step of distillation, times its products", "matrix products", "products",
                 most=1.5),
            Goal("its memory per doubling", "half the length", "doubling", most=2),
        ),
        "--models v32 --lengths 1024 4096",
    ),
    Benchmark(
        "attention",
        (
            Goal("sparse attention, times as fast", "sdpa", "small, sdpa", least=4, size="32k"),
            Goal("memory beyond the cache per doubling", "half the length", "small, doubling",
                 most=1.1, size="8k and up"),
            Goal("memory of four V3.2-shaped layers at 32k, MiB", "", "v32, MiB", most=4096,
                 size="32k"),
        ),
        "--shapes small --lengths 1024 4096",
    ),
)  # fmt: skip


def rows(benchmark: Benchmark, args: argparse.Namespace) -> Iterator[tuple[Goal, str, str]]:
    """Goal, what was measured, and met or not or why not."""
    command, lacking = command_of(benchmark, args)
    if lacking:
        yield from ((goal, "–", f"skipped: no {lacking}") for goal in benchmark.goals)
        return
    path = os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))
    one = {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **one}
    )
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        why = (done.stderr.strip().splitlines() or ["it printed no ratios"])[-1]
        yield from ((goal, "–", f"failed: {why}") for goal in benchmark.goals)
        return
    for goal in benchmark.goals:
        if goal.key not in found:
            lacking = (
                f"skipped: {goal.needs} is not installed" if goal.needs else "not at this size"
            )
            yield goal, "–", lacking
            continue
        value = found[goal.key]
        verdict = "met" if goal.met(value) else "**missed**"
        if args.quick and goal.size:
            verdict = f"goal is for {goal.size}"
        yield goal, goal.digits(value), verdict


def command_of(benchmark: Benchmark, args: argparse.Namespace) -> tuple[list[str], str]:
    """The program to run, and which option of this one is missing for it."""
    command, given = [sys.executable, str(HERE / f"{benchmark.name}.py")], vars(args)
    for option, name in (*benchmark.folders, *benchmark.optional):
        if given[option] is not None:
            command += [*([name] if name else []), str(given[option])]
        elif (option, name) in benchmark.folders:
            return command, f"--{option.replace('_', '-')}"
    return command + (benchmark.quick.split() if args.quick else []), ""


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", nargs="+", choices=[b.name for b in ALL], metavar="NAME")
    parser.add_argument("--before", type=Path, help="checkout of version 14b2bb4")
    parser.add_argument("--longbench", type=Path, help="checkout of THUDM/LongBench")
    parser.add_argument("--records", type=Path, help="predictions of LongBench")
    parser.add_argument("--ruler", type=Path, help="checkout of NVIDIA/RULER")
    parser.add_argument("--tokenizer", type=Path, help="folder of a tokenizer, for RULER")
    parser.add_argument("--official-python", type=Path, help="with what the official code needs")
    args = parser.parse_args()
    print("| benchmark | measured | beside | ratio | goal | |\n|---|---|---|---:|---|---|")
    missed = 0
    for benchmark in ALL:
        if args.only and benchmark.name not in args.only:
            continue
        size = f" {benchmark.quick}" if args.quick and benchmark.quick else ""
        for goal, value, verdict in rows(benchmark, args):
            missed += "missed" in verdict or "failed" in verdict
            cells = (f"`{benchmark.name}.py{size}`", goal.says, goal.anchor, value, goal.text)
            print("|", " | ".join(cells), "|", verdict, "|", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
