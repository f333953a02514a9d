"""`distill data`."""

from __future__ import annotations

from distill.cli.common import Out, Recipe, Set, load_recipe, run_directory
from evalkit.core.console import echo


def data(recipe: Recipe, out: Out = None, set_: Set = None) -> None:
    """Pack the recipe's text into sequences and print what was taken and what left out."""
    from distill.models.load import resolve_checkpoint
    from distill.setup import pack_text

    config, base_dir = load_recipe(recipe, set_), recipe.resolve().parent
    directory = run_directory(recipe, out) / "data"
    name = resolve_checkpoint(config.model, base_dir)
    packed = pack_text(config.data, name, base_dir, directory, config.evaluation)
    counts = packed.facts["counts"]
    for split, sequences in packed.splits.items():
        tokens = packed.facts["tokens"][split]
        echo(f"{split}: {len(sequences)} sequences, {tokens:,} tokens")
    echo(
        f"{counts['documents']} documents read, {counts['excluded']} excluded for repeating an"
        f" evaluation prompt, {counts['too_short']} too short"
    )
    echo(f"tokenizer sha256 {packed.facts['identity']['tokenizer_sha256'][:16]}")
    echo(f"tokens sha256 {packed.sha256[:16]}: {directory}")
