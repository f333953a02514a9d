"""How long two published LongBench runs take to be imported, scored and compared.

    python benchmarks/longbench_compare.py FOLDER_OF_RUN_A FOLDER_OF_RUN_B

Measured with the two runs of 4 750 predictions each, 21 tasks, one thread of a busy machine:
1.3 s and 0.6 s of processor time to import, 2.9 s to score both, 0.6 s to compare (5, 3, 11 and 2 s
of wall time beside eight other processes).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from evalkit.analysis.compare import compare_run, write_json
from evalkit.importers import import_predictions
from evalkit.run.scoring import score_run
from evalkit.run.store import RunStore


def timed(what: str, action: Callable[[], object]) -> None:
    wall, processor = time.perf_counter(), time.process_time()
    action()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(f"{what:<28} {wall:6.1f} s, {processor:6.1f} s of processor time")


def main() -> None:
    paths = [Path(argument) for argument in sys.argv[1:]]
    if len(paths) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(Path(folder))
        for path in paths:
            timed(
                f"import {path.name[:20]}",
                lambda path=path: import_predictions("longbench", path, path.name, store),
            )
        timed("score both", lambda: score_run(store))
        timed("compare", lambda: write_json(store, compare_run(store, paths[0].name)))


if __name__ == "__main__":
    main()
