"""`distill search`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distill.cli.common import Out, run_directory
from evalkit.core.console import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distill.data.batch import Batch
    from distill.models.causal_lm import CausalLM
    from distill.search.greedy import GreedySearch, SearchStep
    from evalkit.dsa.json_types import JsonObject


def search(
    recipe: Annotated[Path, typer.Argument(help="Recipe (TOML), see recipes/search.")],
    out: Out = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override, for example retention=1/4.")
    ] = None,
    cost: Annotated[bool, typer.Option("--cost", help="Print the cost and stop.")] = False,
) -> None:
    """Which layers keep their indexer: the pattern with the least loss at every retention."""
    from distill.config.search import SearchConfig
    from distill.models.load import base_facts, load_model, resolve_checkpoint
    from distill.search import output
    from distill.search.greedy import GreedySearch
    from distill.search.log import SearchLog
    from distill.setup import pack_text
    from evalkit.core.recipe import canonical_hash, load
    from evalkit.dsa.families.sites import indexer_sites

    config, directory = load(recipe, SearchConfig, set_ or ()), run_directory(recipe, out)
    base_dir = recipe.resolve().parent
    name = resolve_checkpoint(config.model, base_dir)
    data = pack_text(config.data, name, base_dir, directory / "data")
    model = load_model(name, config.dtype)
    config.begin.require_selectable(indexer_sites(model).layout.topk)
    texts = {s: data.splits[s].batches(config.batch) for s in ("calibration", "held_out")}
    base = base_facts(name, model)
    # not the retention: a search goes on from a higher one to a lower one
    counted = config.model_dump(mode="json", exclude={"model", "data", "retention"})
    identity: JsonObject = {
        "base": base["fingerprint"],
        "tokens": data.sha256,
        "base_config": base["config_sha256"],
        "recipe": counted,
    }
    log = SearchLog(directory / "search.jsonl", identity)
    run = GreedySearch(model, config, texts, log, on_step=_print_step)
    _print_cost(run, model, texts["calibration"], log.resumed)
    if cost:
        return
    began = time.perf_counter()
    steps = run.run()
    seconds = round(time.perf_counter() - began, 1)
    evaluated = sum(step.evaluated for step in steps)
    provenance = {
        "made by": "distill search",
        "base": base,
        "criterion": config.criterion,
        "proposal": config.proposal,
        "evaluations": evaluated,
        "seconds": seconds,
        "calibration tokens": data.facts["tokens"]["calibration"],
        "tokens sha256": data.sha256,
        "recipe sha256": canonical_hash(config),
    }
    output.write(directory, steps, provenance, config.begin.selection)
    echo(
        f"{evaluated} evaluations ({run.most_evaluations} without a proposal),"
        f" {run.layer_runs:,} layer runs, {seconds} s"
    )
    echo(f"arms: {directory / output.ARMS_FILE}")


def _print_cost(run: GreedySearch, model: CausalLM, batches: Sequence[Batch], resumed: int) -> None:
    """What the search will take, before it takes it."""
    from distill.models.causal_lm import decoder_config_of
    from distill.models.forward import final_hidden_states
    from evalkit.dsa.families.sites import indexer_sites

    native = indexer_sites(model).layout.native
    began = time.perf_counter()
    for batch in batches:
        final_hidden_states(model, native, batch)
    once = time.perf_counter() - began
    tokens = sum(int(batch.valid.sum()) for batch in batches)
    text = decoder_config_of(model)
    per_token = text.num_hidden_layers * text.hidden_size * model.dtype.itemsize
    cached = 2 * tokens * per_token / 2**20
    most = run.most_evaluations
    echo(
        f"{run.flips} changes, at most {most} evaluations of {tokens:,} tokens; a whole forward of"
        f" them takes {once:.1f} s, half of it on average is never repeated: about"
        f" {most * once / 2:.0f} s; hidden states kept: {cached:.0f} MiB"
        + (f"; {resumed} numbers are there already" if resumed else "")
    )


def _print_step(step: SearchStep) -> None:
    what = "begin" if step.layer < 0 else f"layer {step.layer}"
    echo(
        f"{what:>9}  {step.schedule!s}  loss {step.loss:.5f}  held-out {step.held_out:.5f}"
        f"  ({step.evaluated} measured)"
    )
