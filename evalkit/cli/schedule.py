"""`evalkit schedule`: show a schedule, write it for an engine, read an engine's settings."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from evalkit.core.command_line import CommandGroup, command_group
from evalkit.core.console import echo


class _ShowByDefault(CommandGroup):
    """`evalkit schedule MODEL` means `evalkit schedule show MODEL`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # typer's Context is private
        if args and args[0] not in (*self.commands, "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = command_group(
    "Print a schedule (the default), or translate it from and to an engine's settings.",
    _ShowByDefault,
)

Target = Annotated[str, typer.Argument(help="Model directory, hub id, or number of layers.")]
Retention = Annotated[str | None, typer.Option(help="1/n, for example 1/4.")]
Pattern = Annotated[str | None, typer.Option(help="F/S letters, one per indexer layer.")]
Sources = Annotated[str | None, typer.Option(help="σ itself: 0,0,2,2 …")]
Lag = Annotated[str, typer.Option(help="k, or one k per layer: 0,1,1 …")]
LagPhase = Annotated[str, typer.Option(help="decode or all.")]
Published = Annotated[
    str | None, typer.Option(help="A published pattern, see `evalkit schedule published`.")
]
EngineName = Annotated[
    str, typer.Option(help="sglang, sglang==0.5.19, vllm, vllm-ascend, transformers …")
]


@app.command()
def show(
    target: Target,
    retention: Retention = None,
    pattern: Pattern = None,
    sources: Sources = None,
    lag: Lag = "0",
    lag_phase: LagPhase = "decode",
    published: Published = None,
) -> None:
    """Print pattern, layer ids, σ, consumers and retention of a schedule."""
    from evalkit.cli.schedule_text import lines, pattern_named

    letters = pattern_named(published, pattern)
    for line in lines(target, retention, letters, sources, lag, lag_phase):
        echo(line)


@app.command()
def export(
    target: Target,
    engine: EngineName,
    retention: Retention = None,
    pattern: Pattern = None,
    sources: Sources = None,
    lag: Lag = "0",
    published: Published = None,
    freq: Annotated[int | None, typer.Option(help="Frequency, by this engine's own rule.")] = None,
    offset: Annotated[int | None, typer.Option(help="Offset of the frequency.")] = None,
    stages: Annotated[
        str | None, typer.Option(help="First layers of pipeline stages: 0,20,40.")
    ] = None,
    enabled: Annotated[
        bool | None,
        typer.Option("--enabled/--off", help="Reuse on though every layer is full, or off."),
    ] = None,
) -> None:
    """The exact overrides and the launch line that make an engine run a schedule."""
    from evalkit.cli.schedule_text import export_lines, layout_of, pattern_named, resolve
    from evalkit.dsa.engine_config.export import from_freq
    from evalkit.dsa.engine_config.versions import choose

    if freq is None:
        letters = pattern_named(published, pattern)
        _, schedule = resolve(target, retention, letters, sources, lag, "decode")
    else:
        model = layout_of(target)
        name = choose(engine, model_type=model.model_type).name
        schedule = from_freq(model.layer_ids, freq, engine=name, offset=offset)
    for line in export_lines(target, schedule, engine, enabled=enabled, stages=stages):
        echo(line)


@app.command("import")
def import_(
    target: Target,
    engine: EngineName,
    settings: Annotated[str, typer.Argument(help="JSON, or a JSON file: the overrides.")],
) -> None:
    """The layers that an engine really keeps for its settings."""
    from evalkit.cli.schedule_text import import_lines

    for line in import_lines(target, engine, settings):
        echo(line)


@app.command("published")
def published_() -> None:
    """Patterns that were published, with their origin."""
    from evalkit.cli.schedule_text import published_lines

    for line in published_lines():
        echo(line)
