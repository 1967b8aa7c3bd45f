"""The engines of a run inside this process: one a role, each with its own copy of the weights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from renderers import Renderer

from agentrl.config import Config
from agentrl.rollout.agent_loop import EpisodeSettings
from agentrl.rollout.conductor import Conductor
from agentrl.rollout.cross_policy import CURRENT, STALE, PolicyPool
from agentrl.rollout.transformers_engine import TransformersEngine


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
