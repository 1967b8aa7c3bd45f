"""Options that several commands have, and what they mean for the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentrl.config import Config
from agentrl.errors import ConfigError

STOPPED = 143
"""Exit status of a training that was asked to stop and has saved its state."""

ConfigFile = Annotated[
    Path, typer.Option("--config", help="YAML file with the run's resolved settings.")
]
PolicyDir = Annotated[Path, typer.Option("--policy", help="Folder of a policy.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Run seed.")]
Tasks = Annotated[list[str] | None, typer.Option("--tasks", help="Tasks; default: all.")]
State = Annotated[Path, typer.Option("--state", help="Folder for snapshots; deleted at the end.")]
Output = Annotated[Path, typer.Option("--output", help="Where the result goes.")]


def only(config: Config, tasks: list[str] | None) -> Config:
    """The same settings for some of the tasks."""
    if not tasks:
        return config
    unknown = [task for task in tasks if task not in config.tasks]
    if unknown:
        raise ConfigError(f"--tasks {unknown[0]!r}: not in the config; it has {list(config.tasks)}")
    return config.model_copy(update={"tasks": {task: config.tasks[task] for task in tasks}})
