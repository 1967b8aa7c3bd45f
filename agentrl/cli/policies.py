"""`agentrl policy create`, `agentrl warm-start`: policies before reinforcement learning."""

from __future__ import annotations

import asyncio

import typer

from agentrl.cli.options import STOPPED, ConfigFile, Output, PolicyDir, Seed, State
from agentrl.config import load

app = typer.Typer(no_args_is_help=True, help="Policies.")


@app.command("create")
def create(config: ConfigFile, seed: Seed, output: Output) -> None:
    """Make the policy that every run starts from: a tiny one, or a converted pre-trained one."""
    settings = load([config])
    from agentrl.training.base_policy import create_base_policy

    create_base_policy(settings, seed, output)


def warm_start(
    config: ConfigFile, policy: PolicyDir, seed: Seed, state: State, output: Output
) -> None:
    """Clone the experts: behaviour cloning on fresh expert episodes."""
    settings = load([config])
    from agentrl.provenance import code_digest
    from agentrl.training.warm_start import run_warm_start

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
