"""`agentrl check-published`: a new run beside the published one. `agentrl plan`: what a run would take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def check_published(
    results: Annotated[Path, typer.Argument(help="A finished run: results/SCALE.")],
    published: Annotated[Path, typer.Argument(help="What to compare with: published/SCALE.")],
    level: Annotated[
        float, typer.Option("--level", help="Of the test, over all comparisons together.")
    ] = 0.95,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Also write every comparison here.")
    ] = None,
) -> None:
    """Say what a new run's rates differ in from the published ones; status 1 where one differs or is missing."""
    from rich.console import Console

    from agentrl.reporting.check_published import check, to_rich, write_csv

    found = check(results, published, level)
    console = Console()
    if not console.is_terminal:
        console.width = 160  # of a log; a terminal knows its own
    console.print(to_rich(found))
    typer.echo(str(found))
    if csv is not None:
        write_csv(found, csv)
    if not found.passed:
        raise typer.Exit(1)


def plan(context: typer.Context) -> None:
    """Say what `snakemake ARGUMENTS` would run here, and about how long; runs nothing.

    `agentrl plan --config matrix=full` takes the arguments of Snakemake, targets too. Times come from
    published/SCALE and scale with the settings' steps and episodes.
    """
    from rich.console import Console

    from agentrl.reporting.plan import make_plan, pending, settings_of, to_rich

    arguments = context.args
    config = settings_of(arguments, Path())
    made = make_plan(pending(arguments), config, Path("published") / config.scale)
    Console().print(to_rich(made))
    typer.echo(str(made))
