"""What tests of the OS task in real sandboxes share: tasks that skip visibly, and what is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentrl.config.models import TaskConfig
from agentrl.errors import InfrastructureError, UnavailableError
from agentrl.sandbox.cgroups import PREFIX, _places
from agentrl.sandbox.trees import debian_folder
from agentrl.tasks.base import Sample, Step
from agentrl.tasks.os_interaction.task import OSTask
from agentrl.tasks.play import play_expert

ROOT = Path(
    os.environ.get("AGENTRL_DATA_ROOT", Path(__file__).parents[2].parent / "shared/data/agentbench")
)
TREES = Path(os.environ.get("AGENTRL_TREES", Path.home() / ".cache" / "agentrl" / "trees"))
"""Where the Debian tree is kept between runs; making it takes a network and a minute."""


def debian() -> dict[str, Any]:
    """Options for the Debian tree, which is made where it is missing; skips where it cannot be."""
    from agentrl.sandbox.trees import debian_tree

    if not debian_folder(TREES).is_dir():
        try:
            debian_tree(TREES)
        except UnavailableError as error:
            pytest.skip(str(error))
    return {"sandbox": "namespaces", "tree": "debian", "cache": str(TREES)}


async def ready(task: OSTask) -> OSTask:
    try:
        await task.provider()
    except UnavailableError as error:
        pytest.skip(str(error))
    return task


def make(options: dict[str, Any], **settings: Any) -> OSTask:
    """A task that waits for a busy machine, unless told otherwise."""
    patient = {"command_timeout": 900.0, "init_timeout": 900.0, **options}
    config = TaskConfig(**{"max_turns": 8, "options": patient, **settings})
    return OSTask(config, ROOT if config.source == "official" else None)


async def play_all(
    task: OSTask, samples: Sequence[Sample], noise: float = 0.0, together: int = 4
) -> dict[Sample, Step | str]:
    """The expert's last step on each sample; a text where the environment failed."""
    gate = asyncio.Semaphore(together)

    async def one(sample: Sample) -> Step | str:
        async with gate:
            try:
                return (await play_expert(task, sample, sample.index, noise)).last
            except InfrastructureError as error:
                return str(error)

    return dict(zip(samples, await asyncio.gather(*map(one, samples)), strict=True))


def unsolved(played: dict[Sample, Step | str]) -> set[tuple[str, int]]:
    return {
        (sample.split, sample.index)
        for sample, step in played.items()
        if isinstance(step, str) or step.reward < 1.0
    }


def held() -> dict[str, Any]:
    """What this process holds of the machine: its own, for others work on it too."""
    gc.collect()  # what earlier tests dropped is not ours, and would close in between
    me = os.getpid()
    children = Path(f"/proc/self/task/{me}/children").read_text().split()
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return {
        "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "threads": threading.active_count(),
        "children": len(children),
        "mounts": [line for line in mounts if "/box" in line],
    }


def groups() -> list[Path]:
    """Control groups of launchers, below the group of this process."""
    return [group for place, _, _ in _places(Path("/")) for group in place.glob(f"{PREFIX}[0-9]*")]


def groups_of_the_dead() -> list[str]:
    """Control groups whose launcher is no more."""
    return [
        str(path) for path in groups() if not Path("/proc", path.name.removeprefix(PREFIX)).exists()
    ]
