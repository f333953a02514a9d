"""`distill search`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distill.data.batch import Batch
    from distill.search.greedy import Search, Step


def search(
    recipe: Annotated[Path, typer.Argument(help="Recipe (TOML), see recipes/search.")],
    out: Annotated[
        Path | None, typer.Option(help="Directory; default: runs/<recipe name>.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override, for example retention=1/4.")
    ] = None,
    cost: Annotated[bool, typer.Option("--cost", help="Print the cost and stop.")] = False,
) -> None:
    """Which layers keep their indexer: the pattern with the least loss at every retention."""
    from distill.config.search import SearchConfig
    from distill.config.train import resolve_model
    from distill.data.packing import prepare
    from distill.models.load import base_facts, load_model, load_tokenizer
    from distill.search import output
    from distill.search.greedy import Search
    from distill.search.log import SearchLog
    from evalkit.core.recipe import canonical_hash, load

    config, where = load(recipe, SearchConfig, set_ or ()), out or Path("runs") / recipe.stem
    base_dir = recipe.resolve().parent
    where.mkdir(parents=True, exist_ok=True)
    name = resolve_model(config.model, base_dir)
    data = prepare(config.data, load_tokenizer(name), base_dir, where / "data", None)
    model = load_model(name, config.dtype)
    texts = {s: data.splits[s].batches(config.batch) for s in ("calibration", "held_out")}
    base = base_facts(name, model)
    counted = {"retention"}  # a search goes on from a higher retention to a lower one
    identity = {
        "base": base["fingerprint"],
        "tokens": data.sha256,
        "recipe": config.model_dump(mode="json", exclude={"model", "data", *counted}),
    }
    log = SearchLog(where / "search.jsonl", identity)
    run = Search(model, config, texts, log, on_step=_say)
    _print_cost(run, model, texts["calibration"], log.resumed)
    if cost:
        return
    began = time.perf_counter()
    steps = run.run()
    seconds = round(time.perf_counter() - began, 1)
    evaluated = sum(step.evaluated for step in steps)
    output.write(where, steps, {
        "made by": "distill search", "base": base, "criterion": config.criterion,
        "proposal": config.proposal, "evaluations": evaluated, "seconds": seconds,
        "calibration tokens": data.facts["tokens"]["calibration"], "tokens sha256": data.sha256,
        "recipe sha256": canonical_hash(config),
    })  # fmt: skip
    typer.echo(
        f"{evaluated} evaluations ({run.most_evaluations} without a proposal),"
        f" {run.layer_runs:,} layer runs, {seconds} s"
    )
    typer.echo(f"arms: {where / output.ARMS_FILE}")


def _print_cost(run: Search, model: Any, batches: Sequence[Batch], resumed: int) -> None:
    """What the search will take, before it takes it."""
    from distill.models.forward import run as forward
    from evalkit.dsa.families.sites import indexer_sites

    native = indexer_sites(model).layout.native
    began = time.perf_counter()
    for batch in batches:
        forward(model, native, batch, lambda *_: None, layers=(), output=True)
    once = time.perf_counter() - began
    tokens = sum(int(batch.valid.sum()) for batch in batches)
    hidden = model.config.get_text_config().hidden_size
    layers, size = len(indexer_sites(model).root.layers), model.dtype.itemsize  # type: ignore[arg-type]
    kept = 2 * tokens * layers * hidden * size / 2**20
    most = run.most_evaluations
    typer.echo(
        f"{run.flips} changes, at most {most} evaluations of {tokens:,} tokens; a whole forward of"
        f" them takes {once:.1f} s, half of it on average is never repeated: about"
        f" {most * once / 2:.0f} s; hidden states kept: {kept:.0f} MiB"
        + (f"; {resumed} numbers are there already" if resumed else "")
    )


def _say(step: Step) -> None:
    what = "begin" if step.layer < 0 else f"layer {step.layer}"
    typer.echo(
        f"{what:>9}  {step.schedule!s}  loss {step.loss:.5f}  held-out {step.held_out:.5f}"
        f"  ({step.evaluated} measured)"
    )
