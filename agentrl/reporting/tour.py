"""What the tour notebook plays and shows: one episode of now, and one recorded in training."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentrl.config import Config, load
from agentrl.hosting.controller import Controller
from agentrl.randomness import derive
from agentrl.reporting.inspect import Decode
from agentrl.rollout.agent_loop import run_episode
from agentrl.rollout.embedded import open_engines
from agentrl.rollout.policy import load_tokenizer
from agentrl.rollout.trajectory import Trajectory
from agentrl.rollout.trajectory_io import read_trajectories
from agentrl.tasks.registry import create_task
from agentrl.training.base_policy import create_base_policy

CONFIGS = (Path("config/config.yaml"), Path("config/scales/mini.yaml"))
POLICIES = (Path("results/mini/train/multi-task/seed0/policy"), Path("published/mini/policy"))


@dataclass(frozen=True, slots=True)
class Shown:
    """An episode with what is needed to read it."""

    trajectory: Trajectory
    decode: Decode
    policy: str
    """Where the policy comes from, for people."""


def settings(path: str = "") -> Config:
    """The settings in `path`; by default those of scale `mini`."""
    return load([Path(path)] if path else CONFIGS)


def find_policy(path: str = "") -> Path | None:
    """`path`, or the policy of a run of one's own, or a published one, or None."""
    if path:
        return Path(path)
    return next((place for place in POLICIES if place.is_dir()), None)


async def play(config: Config, policy: Path | None, task: str, index: int, seed: int = 0) -> Shown:
    """Play one episode of split dev; without a policy, with an untrained one made on the spot."""
    if policy is not None:
        return await _play(config, policy, str(policy), task, index, seed)
    with TemporaryDirectory() as folder:
        made = Path(folder) / "policy"
        await asyncio.to_thread(create_base_policy, config, seed, made)
        return await _play(
            config, made, "an untrained policy: its words are noise", task, index, seed
        )


async def _play(
    config: Config, policy: Path, where: str, task: str, index: int, seed: int
) -> Shown:
    controller = Controller({task: create_task(task, config.tasks[task], config.data_root)})
    sample = controller.tasks[task].samples("dev")[index]
    try:
        engines = open_engines(policy, config, stale_ratio=0.0, slots=1, lockstep=True)
        async with engines as embedded:
            episode = run_episode(
                controller,
                embedded.pool,
                embedded.settings(config, temperature=1.0, validation=True),
                sample,
                seed=derive(seed, "tour", task, index),
                session=1,
            )
            (trajectory,) = await embedded.conductor.run_all([lambda: episode], 1)
    finally:
        await controller.close()
    return Shown(trajectory, load_tokenizer(policy).decode, where)


def recorded(folder: Path) -> Trajectory:
    """A training episode worth looking at: solved, and spoken by more than one policy if there is one."""
    trajectories: Iterable[Trajectory] = (
        trajectory
        for path in sorted(folder.glob("*.parquet"), reverse=True)
        for trajectory in read_trajectories(path)
    )
    return max(trajectories, key=_telling)


def _telling(trajectory: Trajectory) -> tuple[int, float, int]:
    speakers = {turn.role for turn in trajectory.turns}
    return len(speakers), trajectory.reward or 0.0, len(trajectory.turns)
