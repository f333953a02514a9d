"""What the LongBench scorer tests share."""

import json

from evalkit.scorers import score
from evalkit.tasks.longbench import scoring_meta, tasks


def scored(task, prediction, answers, all_classes=None, **more):
    """The score of one answer to a LongBench task."""
    meta = scoring_meta(task, all_classes)
    return score(tasks()[task].metric, prediction, tuple(answers), meta=meta, **more)


def lines(path):
    """Records of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
