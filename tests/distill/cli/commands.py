"""The `distill` command in this process, and a recipe for a random model."""

from __future__ import annotations

import sys

from accelerate.state import AcceleratorState

from distill.cli.main import main

RECIPE = """
model = "{model}"
dtype = "float32"
licence = "apache-2.0"
{more}
[arm]
retention = "1/4"
[data]
source = {{ kind = "tiny" }}
length = 48
train = 4
held_out = 2
calibration = 2
shortest = 24
[queries]
per_sequence = 8
[train]
steps = 2
batch = 2
micro_batch = 2
evaluate_every = 1
"""


def write_recipe(folder, model, more=""):
    """A recipe in a folder; `more` are further lines at its top level."""
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(model=model, more=more))
    return path


def distill(*words):
    """Exit code of the command."""
    AcceleratorState._reset_state(reset_partial_state=True)
    old = sys.argv
    sys.argv = ["distill", *map(str, words)]
    try:
        main()
    except SystemExit as exit_:
        return exit_.code or 0
    finally:
        sys.argv = old
    return 0
