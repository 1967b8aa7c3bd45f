"""`agentrl config …`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from agentrl.cli.options import Output
from agentrl.config import load, resolve
from agentrl.config.stages import to_yaml

app = typer.Typer(no_args_is_help=True, help="Settings.")


@app.command("show")
def show(
    files: Annotated[list[Path], typer.Argument(help="YAML files, later ones win.")],
) -> None:
    """Print the settings that the files resolve to."""
    print(to_yaml(load(files).model_dump(mode="json")), end="")


@app.command("write")
def write(
    settings: Annotated[str, typer.Option(help="Resolved settings as JSON.")], output: Output
) -> None:
    """Check settings and write them as canonical YAML, for the jobs of one stage."""
    data = json.loads(settings)
    resolve(data)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(to_yaml(data), encoding="utf-8")
