"""Speed of the LongBench scorers beside the official code: same machine, run, records, one core.

    git clone https://github.com/THUDM/LongBench official
    python -m venv official-env
    official-env/bin/pip install jieba==0.42.1 rouge==1.0.1 fuzzywuzzy==0.18.0 numpy
    python benchmarks/scoring_speed.py --official official \
        --official-python official-env/bin/python --records pred/my-model

`--records` is a folder of official predictions, one ``<task>.jsonl`` per task. Both scorers run in
single-threaded processes of their own, one after the other; times are CPU seconds, of cells below
0.2 s the least of many passes (a short cell is over before the clock ticks twice). Every sample's
score is compared. Fails (exit 1) when scores differ, the ratio of all is below `--at-least`, or a
cell is slower than the official code's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

TIMED = """
import json, sys, time
def timed(cell):
    least, passes = float("inf"), 0
    while not passes or (least < 0.2 and passes < 20):
        start = time.process_time()
        value = cell()
        least, passes = min(least, time.process_time() - start), passes + 1
    return least, value
"""
OFFICIAL = """
sys.path.insert(0, sys.argv[1] + "/LongBench")
import eval as official
out = {}
start = time.process_time()
official.rouge_zh_score("a", "a")
out["load"] = time.process_time() - start
out["tasks"] = {}
for line in sys.stdin:
    task, rows = json.loads(line)
    predictions, answers = [r["pred"] for r in rows], [r["answers"] for r in rows]
    classes = rows[-1]["all_classes"]
    seconds, cell = timed(lambda: official.scorer(task, predictions, answers, classes))
    rule = task in ("trec", "triviaqa", "samsum", "lsht")
    metric, scores = official.dataset2metric[task], []
    for p, golds in zip(predictions, answers):
        p = p.lstrip("\\n").split("\\n")[0] if rule else p
        scores.append(max([0.0] + [metric(p, g, all_classes=classes) for g in golds]))
    out["tasks"][task] = [seconds, cell, scores]
print(json.dumps(out))
"""

OURS = """
from evalkit.scorers import scorer
from evalkit.tasks.longbench import scoring_meta, tasks
out = {}
start = time.process_time()
scorer("rouge_zh")("a", ("a",))
out["load"] = time.process_time() - start
out["tasks"] = {}
facts = tasks()
for line in sys.stdin:
    task, rows = json.loads(line)
    judge = scorer(facts[task].metric, edit_distance=sys.argv[1])
    samples = [(r["pred"], tuple(r["answers"]), scoring_meta(task, r["all_classes"])) for r in rows]
    seconds, scores = timed(lambda: [judge(*sample) for sample in samples])
    out["tasks"][task] = [seconds, round(100 * sum(scores) / len(scores), 2), scores]
print(json.dumps(out))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--official", type=Path, required=True, help="checkout of THUDM/LongBench")
    parser.add_argument("--official-python", default=sys.executable)
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--edit-distance", choices=["difflib", "levenshtein"], default="difflib")
    parser.add_argument("--at-least", type=float, default=10.0)
    args = parser.parse_args()
    data = records(args.records)
    ours = run([sys.executable, "-c", TIMED + OURS, args.edit_distance], data)
    official = run([args.official_python, "-c", TIMED + OFFICIAL, str(args.official)], data)
    return report(ours, official, args.at_least)


def records(folder: Path) -> dict[str, list[dict[str, object]]]:
    """The records of every file, by task."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        sys.exit(f"{folder}: no predictions")
    return {
        path.stem: [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for path in files
    }


def run(command: list[str], data: dict[str, list[dict[str, object]]]) -> dict[str, object]:
    """Score everything in another, single-threaded process."""
    lines = "".join(json.dumps(item) + "\n" for item in data.items())
    done = subprocess.run(
        command,
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    found: dict[str, object] = json.loads(done.stdout)
    return found


def report(ours: dict, official: dict, least: float) -> int:
    """Print the table; 1 if scores differ, the ratio is too small, or a cell is slower."""
    print(f"{'task':22} {'n':>5} {'official ms':>11} {'ours ms':>8} {'ratio':>7}  score")
    total, mine, count, differ, slower = 0.0, 0.0, 0, 0, []
    for task, (seconds, cell, scores) in official["tasks"].items():
        own, own_cell, own_scores = ours["tasks"][task]
        wrong = sum(abs(a - b) > 1e-9 for a, b in zip(scores, own_scores, strict=True))
        differ += wrong
        total, mine, count = total + seconds, mine + own, count + len(scores)
        note = f"  {wrong} samples differ" if wrong else ""
        ratio = seconds / max(own, 1e-9)
        if ratio < 1:
            slower.append(task)
            note += "  slower"
        print(
            f"{task:22} {len(scores):5} {1e3 * seconds:11.2f} {1e3 * own:8.2f} {ratio:7.2f}"
            f"  {cell:.2f}"
            f" {'=' if cell == own_cell else own_cell}{note}"
        )
    both = (total + official["load"]) / (mine + ours["load"])
    print(f"all {count} records: {total:.2f} s and {mine:.2f} s, ratio {total / mine:.1f}")
    print(
        f"with loading jieba ({official['load']:.2f} s and {ours['load']:.2f} s): ratio {both:.1f}"
    )
    print(f"samples that differ by more than 1e-9: {differ} of {count}")
    print(f"cells slower than the official code: {', '.join(slower) or 'none'}")
    return int(differ > 0 or both < least or bool(slower))


if __name__ == "__main__":
    sys.exit(main())
