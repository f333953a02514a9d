"""Help comes at once: no command imports a heavy library to print it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = (
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "matplotlib",
    "datasets",
    "httpx2",
    "rich",
    "pydantic",
)
PROGRAM = """
import contextlib, importlib, io, json, sys
import typer
package, heavy = sys.argv[1], set(json.loads(sys.argv[2]))
seen = {}
def note(name):
    seen[name] = sorted(heavy & set(sys.modules))
importlib.import_module(package)
note("import " + package)
app = typer.main.get_command(importlib.import_module(package + ".cli.main").app)
def below(command, path):
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from below(child, [*path, name])
for path in list(below(app, [])):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        app([*path, "--help"], standalone_mode=False)
    assert "Usage:" in said.getvalue(), path
    note(" ".join([*path, "--help"]))
print(json.dumps(seen))
"""


@pytest.mark.parametrize("package", ["evalkit", "distill"])
def test_no_heavy_library_is_imported_for_help(package):
    command = [sys.executable, "-c", PROGRAM, package, json.dumps(HEAVY)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    assert len(seen) > 10
    assert {name: heavy for name, heavy in seen.items() if heavy} == {}
