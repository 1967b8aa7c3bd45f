"""`agentrl notebook …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

app = typer.Typer(no_args_is_help=True, help="Notebooks.")


@app.command("run", context_settings={"allow_extra_args": False})
def run(
    source: Annotated[Path, typer.Argument(help="Percent-format notebook.")],
    executed: Annotated[Path, typer.Option(help="Where the executed copy goes.")],
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="name=value")
    ] = None,
) -> None:
    """Execute a notebook with checked parameters."""
    from agentrl.reporting.notebook import run_notebook

    pairs = [item.partition("=") for item in parameter or ()]
    run_notebook(source, executed, {name: yaml.safe_load(value) for name, _, value in pairs})
