"""`agentrl train`, `agentrl evaluate`, `agentrl audit`: runs, and what is measured of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from agentrl.cli.options import STOPPED, ConfigFile, Output, PolicyDir, Seed, State, Tasks, only
from agentrl.config import load
from agentrl.errors import ConfigError


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
    settings = only(load([config]), tasks)  # a wrong one is refused before torch is loaded
    from agentrl.pipeline.assembly import train as train_run

    finished = asyncio.run(
        train_run(settings, policy=policy, run=run, seed=seed, state_dir=state, output=output)
    )
    if not finished:
        raise typer.Exit(STOPPED)


def evaluate(
    config: ConfigFile,
    name: Annotated[str, typer.Option("--name", help="Row of the table.")],
    seed: Seed,
    output: Output,
    policy: Annotated[
        str | None, typer.Option("--policy", help="Folder of a policy, or 'expert'.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help="Instead of a policy: a model behind an API, of the config's `models`; given several "
            "times, they take turns.",
        ),
    ] = None,
    tasks: Tasks = None,
    split: Annotated[
        str, typer.Option("--split", help="dev while you tune; std once, for the table.")
    ] = "dev",
) -> None:
    """Play a split's samples and write one row an episode."""
    settings = only(load([config]), tasks)
    if (policy is None) == (not model):
        raise ConfigError(
            "give one of --policy (a folder, or 'expert') and --model (of the config)"
        )
    if model:
        from agentrl.evaluation.api.run import evaluate_models_to_file

        work = evaluate_models_to_file(
            settings, models=model, name=name, seed=seed, split=split, output=output
        )
    else:
        from agentrl.evaluation.run import evaluate_to_file

        assert policy is not None
        work = evaluate_to_file(
            settings, policy=policy, name=name, seed=seed, split=split, output=output
        )
    asyncio.run(work)


def audit(
    config: ConfigFile,
    policy: PolicyDir,
    trajectories: Annotated[Path, typer.Option("--trajectories", help="A run's recorded ones.")],
    count: Annotated[int, typer.Option("--count", min=1)] = 500,
) -> None:
    """Check a run's recorded trajectories against its start policy; status 1 where they differ."""
    settings = load([config])
    from agentrl.evaluation.audit import audit_run

    found = audit_run(settings, policy, trajectories, count)
    print(found)
    for mismatch in found.tokens.mismatches[:10]:
        print(mismatch)
    if not found.passed:
        raise typer.Exit(1)
