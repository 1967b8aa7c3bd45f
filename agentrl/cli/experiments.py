"""`agentrl train`, `evaluate`, `pass-at-k`, `audit`: runs, and what is measured of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from agentrl.cli.options import STOPPED, ConfigFile, Output, PolicyDir, Seed, Tasks, only
from agentrl.config import Config, load, resolve
from agentrl.errors import ConfigError


class _Given(TypedDict):
    policy: Path
    run: str
    seed: int
    output: Path


def train(
    config: ConfigFile,
    policy: Annotated[Path | None, typer.Option("--policy", help="Folder of a policy.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Run seed.")] = None,
    state: Annotated[
        Path | None, typer.Option("--state", help="Folder for snapshots; deleted at the end.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="Where the result goes.")] = None,
    run: Annotated[str, typer.Option("--run", help="Name of the run.")] = "multi-task",
    tasks: Tasks = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only print the settings, the plan for GPUs, and what is missing."
        ),
    ] = False,
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=2, help="Dry run: how many; default: enough.")
    ] = None,
    gpu_memory: Annotated[
        float, typer.Option("--gpu-memory", min=1, help="Dry run: GiB of each GPU.")
    ] = 80.0,
    replay: Annotated[
        Path | None,
        typer.Option("--replay", help="Train on a run's saved trajectories; plays none."),
    ] = None,
    rollout_only: Annotated[
        bool, typer.Option("--rollout-only", help="Play the steps' episodes; trains nothing.")
    ] = False,
    track: Annotated[
        list[str] | None, typer.Option("--track", help="As config key trackers; may be repeated.")
    ] = None,
) -> None:
    """Train by reinforcement learning; killed and started again, it goes on where it was.

    Under `accelerate launch` every rank runs this command: the first trains, the others are its learner's.
    """
    settings = only(load([config]), tasks)  # a wrong one is refused before torch is loaded
    if track:
        settings = resolve({**settings.model_dump(), "trackers": track})
    if dry_run:
        _print_plan(settings, gpus, gpu_memory)
        return
    if replay is not None and rollout_only:
        raise ConfigError("--replay and --rollout-only: a run has one half at least; give one")
    half = replay is not None or rollout_only
    if policy is None or seed is None or output is None or (state is None and not half):
        raise ConfigError("a training needs --policy, --seed, --state and --output; see --help")
    from agentrl.training.process import follow_launch, launched_rank

    if launched_rank() > 0:
        if not rollout_only:
            follow_launch(policy, settings, seed)
        return
    if half:
        from agentrl.pipeline.halves import replay as replay_run
        from agentrl.pipeline.halves import roll_out

        given = _Given(policy=policy, run=run, seed=seed, output=output)
        asyncio.run(
            roll_out(settings, **given)
            if replay is None
            else replay_run(settings, trajectories=replay, **given)
        )
        return
    assert state is not None
    from agentrl.pipeline.assembly import train as train_run

    finished = asyncio.run(
        train_run(settings, policy=policy, run=run, seed=seed, state_dir=state, output=output)
    )
    if not finished:
        raise typer.Exit(STOPPED)


def _print_plan(settings: Config, gpus: int | None, gpu_memory: float) -> None:
    from agentrl.config.stages import to_yaml
    from agentrl.pipeline.plan import GIB, describe, make_plan, missing

    plan = make_plan(settings, gpu_memory * GIB, gpus)
    print(to_yaml(settings.model_dump(mode="json")))
    print("\n".join(describe(plan, settings)))
    lacks = list(missing(plan, settings))
    print("\nmissing:" if lacks else "\nnothing is missing")
    print("".join(f"- {line}\n" for line in lacks), end="")


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


def pass_at_k(
    config: ConfigFile,
    policy: Annotated[
        list[str],
        typer.Option("--policy", help="NAME=FOLDER; twice, the second is mixed into the first."),
    ],
    seed: Seed,
    output: Annotated[Path, typer.Option("--output", help="Folder of the result.")],
    tasks: Tasks = None,
    split: Annotated[
        str, typer.Option("--split", help="dev while you tune; std once, for the figure.")
    ] = "dev",
) -> None:
    """Play samples many times with two policies, alone and mixed turn by turn: for pass@k."""
    settings = only(load([config]), tasks)
    policies = {}
    for given in policy:
        name, equals, folder = given.partition("=")
        if not equals or not name or not folder:
            raise ConfigError(f"--policy {given!r}: write NAME=FOLDER")
        policies[name] = Path(folder)
    from agentrl.evaluation.mixture import mixture_to_file

    asyncio.run(mixture_to_file(settings, policies=policies, seed=seed, split=split, output=output))


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
