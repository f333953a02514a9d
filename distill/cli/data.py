"""`distill data`."""

from __future__ import annotations

import typer

from distill.cli.common import Out, Recipe, Set, load_recipe, run_directory


def data(recipe: Recipe, out: Out = None, set_: Set = None) -> None:
    """Pack the recipe's text into sequences and say what was taken and what left out."""
    from distill.config.train import resolve_model
    from distill.data.packing import prepare
    from distill.models.load import load_tokenizer
    from distill.setup import forbidden

    config, base_dir = load_recipe(recipe, set_), recipe.resolve().parent
    tokenizer = load_tokenizer(resolve_model(config.model, base_dir))
    directory = run_directory(recipe, out) / "data"
    avoid = forbidden(config, tokenizer, base_dir)
    packed = prepare(config.data, tokenizer, base_dir, directory, avoid)
    counts = packed.facts["counts"]
    for name, split in packed.splits.items():
        tokens = packed.facts["tokens"][name]
        typer.echo(f"{name}: {len(split)} sequences, {tokens:,} tokens")
    typer.echo(
        f"{counts['documents']} documents read, {counts['excluded']} excluded for repeating an"
        f" evaluation prompt, {counts['too_short']} too short"
    )
    typer.echo(f"tokenizer sha256 {packed.facts['identity']['tokenizer_sha256'][:16]}")
    typer.echo(f"tokens sha256 {packed.sha256[:16]}: {directory}")
