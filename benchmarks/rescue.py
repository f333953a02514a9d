"""The rescue table: every arm of the small model before and after distilling its indexers.

    python benchmarks/rescue.py runs/rescue                         # all arms
    python benchmarks/rescue.py runs/rescue --arms 1/8 "1/4 k=1"    # some, added to what is there
    python benchmarks/rescue.py runs/rescue --table                 # print what is there

Each arm is distilled by `distill train` from one and the same recipe (`--recipe`). Then one
`evalkit run` answers for the baseline, its repetition (A/A) and, per arm, the undistilled twin and
the distilled arm, on the same samples. What is on disk is not made again: a run that was cut short
goes on with the same command. Scores, differences and intervals are those of `compare.json`; recall
is that of the consumers' own top-k on held-out text; seconds are CPU seconds of `distill train`,
loading, looks at held-out text and saving included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINE, AGAIN = "baseline", "baseline again (A/A)"
TASKS = ("needle@512", "niah_single_1@512", "niah_multikey_2@512")


@dataclass(frozen=True)
class Arm:
    """One row of the table."""

    retention: str
    lag: int = 0

    @property
    def key(self) -> str:
        """How the command line calls it."""
        return self.retention + (f" k={self.lag}" if self.lag else "")

    @property
    def title(self) -> str:
        """How the table calls it."""
        if not self.lag:
            return f"IndexCache {self.retention}"
        return f"MLI k={self.lag}" + (f", {self.retention}" if self.retention != "1" else "")

    @property
    def folder(self) -> str:
        """Where it is distilled."""
        return self.key.replace("/", "-").replace(" k=", "-lag-")

    @property
    def fields(self) -> dict[str, object]:
        """As a recipe names it."""
        return {"retention": self.retention, **({"lag": self.lag} if self.lag else {})}


ARMS = (
    *(Arm(r) for r in ("1/2", "1/4", "1/8", "1/16")),
    *(Arm(r, 1) for r in ("1", "1/2", "1/4", "1/8")),
    *(Arm(r, 2) for r in ("1", "1/2", "1/4", "1/8")),
)


def main() -> None:
    """Distil, evaluate, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--arms", nargs="*", choices=[a.key for a in ARMS])
    parser.add_argument("--recipe", type=Path, default=ROOT / "recipes/distill/tiny-1-8.toml")
    parser.add_argument("--evaluation", type=Path, default=ROOT / "recipes/eval/demo.toml")
    parser.add_argument("--samples", type=int, default=60, help="per task, a multiple of 5")
    parser.add_argument("--set", dest="changes", nargs="*", default=[], help="of the recipe")
    parser.add_argument("--table", action="store_true", help="print what is there")
    args = parser.parse_args()
    if not args.table:
        for arm in ARMS if args.arms is None else [a for a in ARMS if a.key in args.arms]:
            distil(arm, args)
            evaluate(args)
    print(table(args.out))


def distil(arm: Arm, args: argparse.Namespace) -> None:
    """`distill train`, unless its indexers are there."""
    directory = args.out / arm.folder
    if (directory / "indexer" / "README.md").is_file():
        return
    changes = [f"arm={{{', '.join(f'{k} = {json.dumps(v)}' for k, v in arm.fields.items())}}}"]
    command = ["train", str(args.recipe), "--out", str(directory), "--save-anyway"]
    for change in [*changes, *args.changes]:
        command += ["--set", change]
    before = cpu_seconds()
    try:
        subprocess.run([sys.executable, "-m", "distill.cli", *command], cwd=ROOT, check=True)
    finally:
        file = directory / "cpu_seconds"
        earlier = float(file.read_text()) if file.is_file() else 0.0
        directory.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{earlier + cpu_seconds() - before:.1f}\n")


def cpu_seconds() -> float:
    """Of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def evaluate(args: argparse.Namespace) -> None:
    """`evalkit run` over everything that is distilled; known answers are kept."""
    arms: list[dict[str, object]] = [{"name": BASELINE}, {"name": AGAIN}]
    for arm in done(args.out):
        indexer = str((args.out / arm.folder / "indexer").resolve())
        arms.append({"name": arm.title, **arm.fields})
        arms.append({"name": f"{arm.title}, distilled", **arm.fields, "indexer": indexer})
    inline = ", ".join(
        "{" + ", ".join(f"{k} = {json.dumps(v)}" for k, v in arm.items()) + "}" for arm in arms
    )
    command = ["run", str(args.evaluation), "--out", str(args.out / "evaluation")]
    for change in (
        f"arms=[{inline}]",
        f"tasks.needle.repeats={args.samples // 5}",
        f"tasks.ruler.samples={args.samples}",
    ):
        command += ["--set", change]
    with (args.out / "evaluation.log").open("a") as log:
        subprocess.run(
            [sys.executable, "-m", "evalkit.cli", *command], cwd=ROOT, check=True, stdout=log
        )


def done(out: Path) -> list[Arm]:
    """Arms whose indexers are there."""
    return [arm for arm in ARMS if (out / arm.folder / "indexer" / "README.md").is_file()]


def table(out: Path) -> str:
    """Markdown."""
    comparison = json.loads((out / "evaluation" / "compare.json").read_text())
    rows = {(row["arm"], row["task"]): row for row in comparison["rows"]}
    lines = [
        "| arm | needle | RULER single | RULER multikey | Δ undistilled [95 %] |"
        " Δ distilled [95 %] | recall of top-k | CPU s |",
        "|---|---|---|---|---|---|---|---|",
        f"| {BASELINE} | {scores(rows, BASELINE)} | | | 1.00 | |",
        f"| {AGAIN} | {scores(rows, AGAIN)} | {difference(rows[AGAIN, 'macro'])} | | 1.00 | |",
    ]
    for arm in done(out):
        plain, distilled = arm.title, f"{arm.title}, distilled"
        if (distilled, "macro") not in rows:
            continue
        before, after, seconds = probes(out / arm.folder)
        cells = [
            arm.title,
            scores(rows, plain, distilled),
            difference(rows[plain, "macro"]),
            difference(rows[distilled, "macro"]),
            f"{before:.2f} → {after:.2f}",
            f"{seconds:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    n = sum(rows[BASELINE, t]["n"] for t in TASKS)
    lines += ["", f"{n} samples per arm; {comparison['signature']}"]
    return "\n".join(lines)


def scores(rows: dict[tuple[str, str], dict[str, float]], *arms: str) -> str:
    """Cells of the tasks, arms joined by arrows."""
    return " | ".join(" → ".join(f"{rows[a, t]['score']:.3f}" for a in arms) for t in TASKS)


def difference(row: dict[str, float]) -> str:
    """Δ with its interval."""
    return f"{row['delta']:+.3f} [{row['ci_low']:+.3f}, {row['ci_high']:+.3f}]"


def probes(directory: Path) -> tuple[float, float, float]:
    """Recall before, recall of the students that were kept, CPU seconds."""
    state = max((directory / "state").glob("*/state.json"))
    progress = json.loads(state.read_text())["progress"]
    seconds = float((directory / "cpu_seconds").read_text())
    return progress["before"]["recall"], progress["after"]["recall"], seconds


if __name__ == "__main__":
    main()
