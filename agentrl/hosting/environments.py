"""The environments of a run: its tasks, and who plays their episodes.

Invariant: where an episode lives changes no number (8). The same samples, seeds and settings give the
same episodes in this process and with the workers of a controller, whose lists of samples are compared.
A schedule that goes on only when every live episode waits for an engine would wait for ever for one that waits for a
slot, so the workers must have room for all.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.hosting.client import EnvironmentClient
from agentrl.hosting.controller import Controller
from agentrl.tasks.base import Task
from agentrl.tasks.registry import create_task


@dataclass(frozen=True, slots=True)
class Environments:
    tasks: Mapping[str, Task]
    """By name; their samples and experts are used here wherever their episodes live."""
    client: EnvironmentClient


@asynccontextmanager
async def open_environments(
    config: Config, splits: Mapping[str, str], live: int
) -> AsyncIterator[Environments]:
    """All sessions and tasks are ended on the way out.

    Args:
        splits: of each task, whose samples will be played.
        live: episodes at once for which there must be room; 0 where a start may wait for a slot.

    Raises `ConfigError` where the controller's workers serve other samples, or have too few slots.
    """
    controller = Controller({})
    try:
        for name, entry in config.tasks.items():
            controller.tasks[name] = create_task(name, entry, config.data_root)
        if config.hosting.controller is None:
            yield Environments(controller.tasks, controller)
        else:
            async with _remote(config, controller.tasks, splits, live) as client:
                yield Environments(controller.tasks, client)
    finally:
        await controller.close()


@asynccontextmanager
async def _remote(
    config: Config, tasks: Mapping[str, Task], splits: Mapping[str, str], live: int
) -> AsyncIterator[EnvironmentClient]:
    try:
        from agentrl.hosting.network.remote import RemoteController
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"config key 'hosting.controller': {error.name} is not installed: "
            "pip install 'agentrl-reproducible[hosting]'"
        ) from None
    address = config.hosting.controller
    assert address is not None
    token = os.environ.get("AGENTRL_TOKEN") or None
    async with RemoteController(address, token=token, ca=config.hosting.ca) as client:
        room = await client.slots() if live else {}
        for name, task in tasks.items():
            split = splits[name]
            ours, theirs = len(task.samples(split)), await client.indices(name, split)
            if theirs != list(range(ours)):
                raise ConfigError(
                    f"config key 'tasks.{name}': {ours} samples of split {split} here, {len(theirs)} at "
                    f"{address}, or others; start its workers with the same settings: "
                    f"agentrl worker {name} --split {split} --config FILE"
                )
            slots = room.get(f"{name}-{split}", 0)
            if slots < live:
                raise ConfigError(
                    f"config key 'hosting.controller': the workers of {name} at {address} hold {slots} "
                    f"episodes, and {live} may be live at once; give them --concurrency and --processes, or "
                    "lower rollout.concurrency and evaluation.concurrency"
                )
        yield client
