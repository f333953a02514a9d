"""The prompts of the recipe's own evaluation, which its text must not repeat.

`evalkit` is run as a command of its own: the two halves meet in files.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from distill.errors import DistillError

ARM = "any"
"""Prompts do not depend on the arm."""


def evaluation_prompts(recipe: Path, model: str, directory: Path) -> Path:
    """JSONL file of the prompts of an evaluation recipe, made unless it is there.

    Args:
        recipe: of `evalkit run`.
        model: whose tokenizer and chat template make the prompts.
        directory: where the file is kept, under a name that tells recipe and model.

    Raises:
        DistillError: the recipe is not there, or its prompts cannot be made.
    """
    if not recipe.is_file():
        raise DistillError(f"evaluation {recipe}: no such recipe")
    made_of = hashlib.sha256(model.encode() + b"\0" + recipe.read_bytes()).hexdigest()
    path = directory / f"evaluation_prompts-{made_of[:16]}.jsonl"
    if path.is_file():
        return path
    directory.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "evalkit.cli", "data", "exclude", str(recipe), "--out", str(path)),
        *("--set", f"model={json.dumps(model)}"),
        *("--set", f'arms=[{{name = "{ARM}"}}]'),
        *("--set", f'compare={{baseline = "{ARM}"}}'),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        *_, reason = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise DistillError(f"the prompts of {recipe}, which no text may repeat: {reason}")
    return path
