"""`agentrl bench …`: measurements of the system itself."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrl.cli.options import Output

app = typer.Typer(no_args_is_help=True, help="Measurements of the system itself.")


@app.callback()
def _group() -> None:
    """So that the one command there is keeps its name."""


@app.command()
def scaling(
    output: Output,
    latency: Annotated[
        list[float] | None,
        typer.Option("--latency", help="Mean seconds of an environment's answer; may be repeated."),
    ] = None,
    concurrency: Annotated[
        list[int] | None,
        typer.Option("--concurrency", help="Episodes live at once; may be repeated."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many draws of durations.")] = 3,
    steps: Annotated[int, typer.Option("--steps", help="That are measured.")] = 8,
) -> None:
    """Tokens a second of the training loop by mode, latency and concurrency, on a virtual clock.

    The loop and the episodes are real; engine, environment and learner are sleeps. No policy is needed.
    """
    from agentrl.pipeline.sweep import CONCURRENCIES, LATENCIES, sweep, write_csv

    rows = sweep(latency or LATENCIES, concurrency or CONCURRENCIES, range(seeds), steps)
    write_csv(output, rows)
