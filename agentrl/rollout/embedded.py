"""The engines of a run, one a role: inside this process with weights of their own, or on vLLM servers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from renderers import Renderer

from agentrl.config import Config
from agentrl.rollout.agent_loop import EpisodeSettings
from agentrl.rollout.conductor import Conductor
from agentrl.rollout.cross_policy import CURRENT, STALE, PolicyPool
from agentrl.rollout.policy import load_tokenizer, read_card
from agentrl.rollout.rendering import create_renderer
from agentrl.rollout.transformers_engine import TransformersEngine
from agentrl.rollout.vllm_engine import VllmEngine
from agentrl.rollout.vllm_process import open_replicas


@dataclass(frozen=True, slots=True)
class Embedded:
    """A pool, and what drives its engines."""

    pool: PolicyPool
    conductor: Conductor
    renderer: Renderer

    def settings(self, config: Config, *, temperature: float, validation: bool) -> EpisodeSettings:
        return EpisodeSettings(
            self.renderer,
            temperature=temperature,
            max_new_tokens=config.rollout.max_new_tokens,
            max_total_tokens=config.rollout.max_total_tokens,
            validation=validation,
        )


@asynccontextmanager
async def open_engines(
    policy: Path, config: Config, *, stale_ratio: float, slots: int, lockstep: bool
) -> AsyncIterator[Embedded]:
    """Load `policy` into its engines; on exit every episode is cancelled and the engines closed.

    Args:
        stale_ratio: above 0 there is an engine for the stale copy too.
        slots: episodes whose cache each engine keeps.
        lockstep: the conductor steps the engines; otherwise each steps in a thread of its own.
    """
    roles = (CURRENT, STALE) if stale_ratio else (CURRENT,)
    if config.rollout.engine == "vllm":
        async with _open_vllm(policy, config, roles, stale_ratio, slots) as served:
            yield served
        return
    engines = {
        role: TransformersEngine(
            policy,
            slots=slots,
            max_tokens=config.rollout.max_total_tokens,
            dtype=config.rollout.dtype,
        )
        for role in roles
    }
    refresh_every = config.rollout.cross_policy.refresh_every
    pool = PolicyPool(engines, stale_ratio=stale_ratio, refresh_every=refresh_every)
    conductor = Conductor(list(engines.values()), lockstep=lockstep)
    drivers = [] if lockstep else [asyncio.create_task(e.run()) for e in engines.values()]
    for driver in drivers:
        conductor.watch(driver)
    try:
        yield Embedded(pool, conductor, engines[CURRENT].renderer)
    finally:
        await conductor.close()
        for driver in drivers:
            driver.cancel()
        await asyncio.gather(*drivers, return_exceptions=True)
        await pool.close()


@asynccontextmanager
async def _open_vllm(
    policy: Path, config: Config, roles: Sequence[str], stale_ratio: float, slots: int
) -> AsyncIterator[Embedded]:
    rollout = config.rollout
    engines: dict[str, VllmEngine] = {}
    with tempfile.TemporaryDirectory(prefix="agentrl-vllm-", ignore_cleanup_errors=True) as scratch:
        try:
            for role in roles:
                replicas = await open_replicas(
                    rollout.vllm,
                    role,
                    policy,
                    Path("logs"),
                    dtype=rollout.dtype,
                    max_tokens=rollout.max_total_tokens,
                    concurrency=slots,
                )
                engines[role] = await VllmEngine.start(
                    replicas, policy, Path(scratch), max_tokens=rollout.max_total_tokens, role=role
                )
            pool = PolicyPool(
                engines,
                stale_ratio=stale_ratio,
                refresh_every=rollout.cross_policy.refresh_every,
            )
            conductor = Conductor([], lockstep=False)
            renderer = create_renderer(read_card(policy).chat_format, load_tokenizer(policy))
            try:
                yield Embedded(pool, conductor, renderer)
            finally:
                await conductor.close()
        finally:
            for engine in engines.values():
                await engine.close()
