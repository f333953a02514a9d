"""Processor time of `import evalkit` and of the help of every command.

    python benchmarks/import_time.py [--rounds 5]

Every call is a process of its own on one thread, its bytecode compiled before; medians.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import typer


def commands() -> Iterator[tuple[str, list[str]]]:
    """Package and words of every command."""
    from distill.cli.main import app as distill
    from evalkit.cli.main import app as evalkit

    def below(command: Any, words: list[str]) -> Iterator[list[str]]:
        yield words
        for name, child in getattr(command, "commands", {}).items():
            yield from below(child, [*words, name])

    for package, app in (("evalkit", evalkit), ("distill", distill)):
        for words in below(typer.main.get_command(app), []):
            yield package, words


def seconds(rounds: int, *call: str) -> float:
    """CPU seconds of a Python process, the median of some."""
    taken = []
    for _ in range(rounds + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *call],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
            capture_output=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(taken[1:])


def main() -> None:
    """Print the times, the slowest help last."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    found = {"import": seconds(rounds, "-c", "import evalkit")}
    print(
        f"import evalkit {found['import']:.2f} (an empty program {seconds(rounds, '-c', ''):.2f})"
    )
    helps = {
        " ".join([package, *words]): seconds(rounds, "-m", f"{package}.cli", *words, "--help")
        for package, words in commands()
    }
    for command, taken in sorted(helps.items(), key=lambda item: item[1]):
        print(f"{command} --help {taken:.2f}")
    print(json.dumps({**found, "help": max(helps.values())}))


if __name__ == "__main__":
    main()
