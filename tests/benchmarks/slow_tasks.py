"""The tasks of scale mini behind an environment that takes its time, for `bench_modes.py`."""

import asyncio
import math

from agentrl.randomness import generator
from agentrl.tasks.alfworld.task import AlfworldTask
from agentrl.tasks.base import Episode
from agentrl.tasks.dbbench.task import DBBenchTask

SHORTEST, LONGEST = 0.2, 2.0
"""Seconds between which 95% of the replies come."""
MEAN = (math.log(SHORTEST) + math.log(LONGEST)) / 2
SIGMA = (math.log(LONGEST) - math.log(SHORTEST)) / (2 * 1.96)


class SlowEpisode(Episode):
    """Every reply comes after a log-normal time, drawn by the episode's seed."""

    def __init__(self, episode: Episode, seed: int) -> None:
        self._episode, self._draws = episode, generator(seed, "latency")
        self.messages = episode.messages

    async def step(self, message):
        await asyncio.sleep(float(self._draws.lognormal(MEAN, SIGMA)))
        return await self._episode.step(message)

    async def close(self):
        await self._episode.close()


class SlowAlfworld(AlfworldTask):
    async def start(self, sample, seed):
        return SlowEpisode(await super().start(sample, seed), seed)


class SlowDBBench(DBBenchTask):
    async def start(self, sample, seed):
        return SlowEpisode(await super().start(sample, seed), seed)
