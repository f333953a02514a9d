"""`evalkit data`: what is fetched from elsewhere, pinned, checked and cached."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalkit.cli.common import Recipe
from evalkit.core.command_line import command_group
from evalkit.core.console import echo

app = command_group("Outside data: pinned, checked, cached.")


@app.command()
def prepare(
    names: Annotated[
        list[str], typer.Argument(help="Data sets or kinds of tasks, for example ruler; or all.")
    ],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Take the files from this folder or file, not the network."),
    ] = None,
) -> None:
    """Fetch and verify what tasks need, so that later runs work offline."""
    from evalkit.data import sources

    wanted = sources.names() if names == ["all"] else [_data_set(name) for name in names]
    for name in dict.fromkeys(wanted):
        (paths,) = sources.prepare([name], source).values()
        for path in paths:
            echo(f"{name}: {path}")
        if not paths:
            echo(f"{name}: generated, nothing to fetch")


@app.command()
def show(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; default: all.")] = None,
) -> None:
    """List every data set: files, origin, licence, revision, sha256, and whether it is here."""
    from evalkit.data import cards, sources

    chosen = [_data_set(name) for name in names or ()] or list(cards.load_all())
    rows = sources.show()
    for name in dict.fromkeys(chosen):
        card = cards.load(name)
        origin = "generated here; " if card.generated else ""
        echo(f"{name}: {card.pretty_name} ({origin}licence {card.license})")
        for used in card.uses:
            echo(f"  uses the files of {used}")
        for row in rows:
            if row.name == name:
                size = f", {row.bytes:,} bytes".replace(",", " ") if row.bytes else ""
                echo(f"  {row.file}: {row.state}{size}")
                echo(f"    origin    {row.origin}")
                echo(f"    revision  {row.revision}")
                echo(f"    sha256    {row.sha256 or 'of the first download, once it is here'}")
                echo(f"    path      {row.path}")


@app.command()
def exclude(
    recipe: Recipe,
    out: Annotated[Path, typer.Option(help="File to write; default: prompts.jsonl.")] = Path(
        "prompts.jsonl"
    ),
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override, for example model=DIR.")
    ] = None,
) -> None:
    """Write the prompts of a recipe, one JSON object a line: what no training text may repeat.

    `distill` reads the file (`data.exclude`), and makes it by itself for its own evaluation.
    """
    import json

    from evalkit.config.run import RunConfig
    from evalkit.core.recipe import load
    from evalkit.dsa.files import replacing
    from evalkit.run.plan import plan
    from evalkit.run.prompt_texts import prompt_texts

    todo = plan(load(recipe, RunConfig, set_ or ()), recipe.resolve().parent)
    count = 0
    with replacing(out) as new_file, new_file.open("w", encoding="utf-8") as lines:
        for sample, text in prompt_texts(todo):
            lines.write(json.dumps({"id": sample, "text": text}) + "\n")
            count += 1
    echo(f"{out}: {count} prompts")


def _data_set(name: str) -> str:
    """The data set of a name, which may be that of a task or a kind of tasks.

    Raises:
        EvalkitError: it is neither.
    """
    from evalkit.data import sources
    from evalkit.tasks.registry import describe

    known = sources.names()
    if name in known:
        return name
    kind = next((k for k, task, *_ in describe() if name in (k, task, f"{k}/{task}")), name)
    if kind not in known:
        kind = next((k for k in known if kind.startswith(f"{k}_")), kind)
    if kind not in known:
        sources.prepare([name])  # unknown: suggests the nearest name
    return kind
