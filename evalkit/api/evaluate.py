"""`evaluate`: a model, tasks and arms; and the steps that `evalkit run` takes, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.analysis.compare import compare_run, write_json
from evalkit.api.result import Comparison
from evalkit.config.run import CompareConfig, RunConfig
from evalkit.core.console import open_console
from evalkit.core.errors import EvalkitError
from evalkit.core.progress import open_counter
from evalkit.core.recipe import overridden, parse
from evalkit.core.toml import document
from evalkit.engines.base import Engine
from evalkit.report import markdown
from evalkit.run.answer_cache import AnswerCache
from evalkit.run.haystack_plan import undecidable
from evalkit.run.plan import RunPlan, plan
from evalkit.run.runner import StoppingRule
from evalkit.run.runner import run as generate
from evalkit.run.scoring import score_run
from evalkit.run.shared_prefill import prefills
from evalkit.run.short_recipe import SAMPLES, Section, short_recipe
from evalkit.run.store import RunStore

if TYPE_CHECKING:
    from rich.console import Console

    from evalkit.engines.hf.loaded import LoadedModel
    from evalkit.prompts.tokenizers import ChatTokenizer


def evaluate(
    model: str | Path | LoadedModel,
    *,
    tasks: Sequence[str | Section],
    arms: Sequence[str | Section] = (),
    samples: int = SAMPLES,
    tokenizer: ChatTokenizer | None = None,
    engine: Section | str | None = None,
    settings: Sequence[str] = (),
    out: str | Path | None = None,
) -> Comparison:
    """Answer, score and compare; the same call goes on where an earlier one was interrupted.

    Args:
        model: directory, .gguf file or hub id, or a transformers model that is loaded already.
        tasks: such as ``ruler:vt@8192``, ``longbench:qasper`` or ``needle@16k``, or sections of a
            recipe as dictionaries.
        arms: such as ``1/4``, ``k1`` or ``1/4+k1``, or sections; the baseline and its repeat are
            always there.
        samples: of every cell.
        tokenizer: of a loaded model; it is needed there, and nowhere else.
        engine: the section, or the address of a server; default: transformers in this process.
        settings: as `--set`, such as ``compare.margin=0.03``.
        out: run directory; default: ``runs/<model name>``. Its recipe.toml is what was asked for.

    Raises:
        EvalkitError: something cannot be asked, answered or compared; says what to do.
    """
    live = None if isinstance(model, str | Path) else model
    if (live is None) != (tokenizer is None):
        raise EvalkitError("a tokenizer goes with a model that is loaded, and only with it")
    if live is not None and engine is not None:
        raise EvalkitError("a model that is loaded answers by itself: leave engine out")
    name = str(model) if live is None else str(live.config.name_or_path or live.config.model_type)
    store = RunStore(Path(out) if out is not None else default_directory(name))
    opened = None
    if live is not None and tokenizer is not None:
        from evalkit.engines.hf.loaded import LoadedModelEngine

        opened = LoadedModelEngine(live, tokenizer, store.path / "model")
        name = str(opened.directory)
    recipe = short_recipe(
        name,
        tasks,
        arms,
        samples=samples,
        urls=[engine] if isinstance(engine, str) else [],
        engine=engine if isinstance(engine, Mapping) else None,
    )
    todo = short_plan(recipe, settings, store)
    console = open_console()
    with store.lock(), ExitStack() as stack:
        if opened is not None:
            stack.enter_context(opened)
        refused = carry_out(todo, store, console, engine=opened)
    if refused:
        raise EvalkitError("; ".join(f"arm {arm}: {why}" for arm, why in refused.items()))
    return compared(store)


def default_directory(model: str) -> Path:
    """Where a run without a recipe goes: ``runs/<last part of the model's name>``."""
    return Path("runs") / (Path(model).expanduser().resolve().name.removesuffix(".gguf") or "model")


def short_plan(recipe: Mapping[str, object], settings: Sequence[str], store: RunStore) -> RunPlan:
    """The plan of a recipe that is in no file yet; its text goes into the run directory.

    Raises:
        EvalkitError: a key or value of it is none, or see `plan`.
    """
    whole = overridden(recipe, settings)
    config = parse(whole, RunConfig, "the recipe of these arguments")
    return replace(plan(config, store.path.resolve()), recipe_text=document(whole))


def carry_out(
    todo: RunPlan,
    store: RunStore,
    console: Console,
    *,
    stopping: StoppingRule | None = None,
    engine: Engine | None = None,
    cache: AnswerCache | None = None,
) -> dict[str, str]:
    """Answer what is missing under a progress bar with the time left, and score it.

    Args:
        todo: the plan.
        store: the run directory; the caller holds its lock.
        console: where progress is shown.
        stopping: see `evalkit.run.runner.run`.
        engine: one that is open already.
        cache: answers of other runs.

    Returns:
        arms that got no answers because their server does not run their schedule, and why.
    """
    for line in (*prefills(todo), *undecidable(todo)):
        console.print(f"· {line}", style="dim", markup=False)
    with open_counter(console, todo.total) as advance:
        refused = generate(
            todo, store, on_answer=advance, stopping=stopping, engine=engine, cache=cache
        )
    score_run(store, todo.config.scoring)
    return refused


def compared(
    store: RunStore, baseline: str | None = None, settings: CompareConfig | None = None
) -> Comparison:
    """Compare the arms of a run as `compare_run` does, and write compare.json and report.md."""
    comparison = compare_run(store, baseline, settings)
    write_json(store, comparison)
    markdown.write(store, comparison)
    return Comparison(store.path, comparison)
