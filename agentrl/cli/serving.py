"""`agentrl serve`: vLLM servers for a policy, which trainings and evaluations attach to."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer

from agentrl.config import Config, load
from agentrl.errors import ConfigError


def serve(
    policy: Annotated[Path | None, typer.Option("--policy", help="Folder of a policy.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="YAML file with the run's resolved settings.")
    ] = None,
    install: Annotated[
        Path | None,
        typer.Option("--install", help="Only make an environment with vLLM for CPUs there (3 GB)."),
    ] = None,
) -> None:
    """Start vLLM servers, current and stale, print their addresses, and serve until stopped.

    The addresses go under rollout.vllm.servers of the run that is to use them. Without this command a run
    whose rollout.engine is vllm starts servers of its own.
    """
    from agentrl.rollout import vllm_process

    if install is not None:
        vllm_process.install(install)
        return
    if policy is None or config is None:
        raise ConfigError("serve needs --policy and --config, or --install; see --help")
    asyncio.run(_serve(policy, load([config])))


async def _serve(policy: Path, config: Config) -> None:
    from agentrl.rollout.vllm_process import open_replicas

    rollout = config.rollout
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with AsyncExitStack() as stack:
        for role in ("current", "stale") if rollout.cross_policy.stale_ratio else ("current",):
            if role in rollout.vllm.servers:
                raise ConfigError(
                    f"config key 'rollout.vllm.servers': {role} is served already; take it out to serve it"
                )
            replicas = await open_replicas(
                rollout.vllm,
                role,
                policy,
                Path("logs"),
                dtype=rollout.dtype,
                max_tokens=rollout.max_total_tokens,
                concurrency=rollout.concurrency,
            )
            for replica in replicas:
                stack.push_async_callback(replica.server.close)
                if replica.process is not None:
                    stack.push_async_callback(replica.process.close)
            print(f"{role}: {' '.join(replica.server.url for replica in replicas)}", flush=True)
        await stopped.wait()
