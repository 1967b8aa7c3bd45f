"""`agentrl …`: thin commands, and the only place that decides where the parts of a run live.

Every error a person can mend is one line on stderr and exit status 1; a training that is stopped by
SIGTERM or Ctrl-C ends with 143 after it has saved its state.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml

from agentrl import __version__
from agentrl.config import Config, load, resolve
from agentrl.config.stages import to_yaml
from agentrl.errors import AgentRLError, ConfigError

STOPPED = 143
"""Exit status of a training that was asked to stop and has saved its state."""

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
config_app = typer.Typer(no_args_is_help=True, help="Settings.")
policy_app = typer.Typer(no_args_is_help=True, help="Policies.")
notebook_app = typer.Typer(no_args_is_help=True, help="Notebooks.")
app.add_typer(config_app, name="config")
app.add_typer(policy_app, name="policy")
app.add_typer(notebook_app, name="notebook")

ConfigFile = Annotated[
    Path, typer.Option("--config", help="YAML file with the run's resolved settings.")
]
PolicyDir = Annotated[Path, typer.Option("--policy", help="Folder of a policy.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Run seed.")]
Tasks = Annotated[list[str] | None, typer.Option("--tasks", help="Tasks; default: all.")]
State = Annotated[Path, typer.Option("--state", help="Folder for snapshots; deleted at the end.")]
Output = Annotated[Path, typer.Option("--output", help="Where the result goes.")]


@app.callback()
def _setup(verbose: Annotated[bool, typer.Option("--verbose", "-v")] = False) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(name)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    for noisy in ("httpx", "datasets", "urllib3", "filelock", "asyncio", "matplotlib"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


@app.command()
def version() -> None:
    """Print the package's version."""
    print(__version__)


@config_app.command("show")
def config_show(
    files: Annotated[list[Path], typer.Argument(help="YAML files, later ones win.")],
) -> None:
    """Print the settings that the files resolve to."""
    print(to_yaml(load(files).model_dump(mode="json")), end="")


@config_app.command("write")
def config_write(
    settings: Annotated[str, typer.Option(help="Resolved settings as JSON.")], output: Output
) -> None:
    """Check settings and write them as canonical YAML, for the jobs of one stage."""
    data = json.loads(settings)
    resolve(data)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(to_yaml(data), encoding="utf-8")


@policy_app.command("create")
def policy_create(config: ConfigFile, seed: Seed, output: Output) -> None:
    """Make the policy that every run starts from: a tiny one, or a converted pre-trained one."""
    from agentrl.training.base_policy import create_base_policy

    create_base_policy(load([config]), seed, output)


@app.command("warm-start")
def warm_start(
    config: ConfigFile, policy: PolicyDir, seed: Seed, state: State, output: Output
) -> None:
    """Clone the experts: behaviour cloning on fresh expert episodes."""
    from agentrl.provenance import code_digest
    from agentrl.training.warm_start import run_warm_start

    settings = load([config])
    report = asyncio.run(
        run_warm_start(
            settings,
            policy,
            output,
            seed,
            state,
            threads=settings.warm_start.threads,
            code=code_digest("clone", settings.task_modules),
        )
    )
    if not report.finished:
        raise typer.Exit(STOPPED)


@app.command()
def train(
    config: ConfigFile,
    policy: PolicyDir,
    seed: Seed,
    state: State,
    output: Output,
    run: Annotated[str, typer.Option("--run", help="Name of the run.")] = "multi-task",
    tasks: Tasks = None,
) -> None:
    """Train by reinforcement learning; killed and started again, it goes on where it was."""
    from agentrl.pipeline.assembly import train as train_run

    settings = _only(load([config]), tasks)
    finished = asyncio.run(
        train_run(settings, policy=policy, run=run, seed=seed, state_dir=state, output=output)
    )
    if not finished:
        raise typer.Exit(STOPPED)


@app.command()
def evaluate(
    config: ConfigFile,
    policy: Annotated[str, typer.Option("--policy", help="Folder of a policy, or 'expert'.")],
    name: Annotated[str, typer.Option("--name", help="Row of the table.")],
    seed: Seed,
    output: Output,
    tasks: Tasks = None,
    split: Annotated[
        str, typer.Option("--split", help="dev while you tune; std once, for the table.")
    ] = "dev",
) -> None:
    """Play a split's samples and write one row an episode."""
    from agentrl.evaluation.run import evaluate_to_file

    settings = _only(load([config]), tasks)
    asyncio.run(
        evaluate_to_file(settings, policy=policy, name=name, seed=seed, split=split, output=output)
    )


@app.command()
def audit(
    config: ConfigFile,
    policy: PolicyDir,
    trajectories: Annotated[Path, typer.Option("--trajectories", help="A run's recorded ones.")],
    count: Annotated[int, typer.Option("--count", min=1)] = 500,
) -> None:
    """Check a run's recorded trajectories against its start policy; status 1 where they differ."""
    from agentrl.evaluation.audit import audit_run

    found = audit_run(load([config]), policy, trajectories, count)
    print(found)
    for mismatch in found.tokens.mismatches[:10]:
        print(mismatch)
    if not found.passed:
        raise typer.Exit(1)


@notebook_app.command("run", context_settings={"allow_extra_args": False})
def notebook_run(
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


def _only(config: Config, tasks: list[str] | None) -> Config:
    """The same settings for some of the tasks."""
    if not tasks:
        return config
    unknown = [task for task in tasks if task not in config.tasks]
    if unknown:
        raise ConfigError(f"--tasks {unknown[0]!r}: not in the config; it has {list(config.tasks)}")
    return config.model_copy(update={"tasks": {task: config.tasks[task] for task in tasks}})


def main() -> None:
    """Entry point: errors of a person's making become one line."""
    try:
        app()
    except AgentRLError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        sys.exit(
            f"error: {error.strerror}: {error.filename or 'while writing'}; what was saved before is intact"
        )
    except KeyboardInterrupt:
        sys.exit(130)
