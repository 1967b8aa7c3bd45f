"""The asynchronous training loop, on one screen.

Generation never stops for training: while the learner works on step s in its own process, the
engines go on with the episodes of later steps, as far ahead as admission allows (6). New weights
reach the engines between two decode steps, running completions go on under them, and nobody waits
for an environment (pitfall 33). Without `pipeline.partial_rollouts` no episode starts once weights are
there, and they wait for those under way.

When the weights arrive is the schedule's choice. `deterministic`: after a fixed share of a step's
episodes has ended since the training step began - a point of the run, not of the clock, so that two
runs, and a run that was killed and resumed, are equal (8, 9). `eager`: as soon as the learner has them.
Mode `one-step-off` has a barrier in both: weights wait for all episodes of the next step, each of which
is of the version before. `sync` has nothing to wait for.

Snapshots are taken where new weights have just arrived: the engines drop their caches there anyway,
so a resumed run and the unbroken one compute the same from there on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentrl.config import Config
from agentrl.pipeline.history import scalars, step_rows
from agentrl.pipeline.ports import Learner, Recorder, Snapshots
from agentrl.pipeline.rollouts import Rollouts
from agentrl.pipeline.selection import chosen
from agentrl.rollout.trajectory import Trajectory


class TrainingRun:
    """One run from its first step, or from a snapshot, to its last.

    Args:
        learner: trains and publishes; in a process of its own, or here.
        rollouts: the generating half.
        snapshots: where the run's state is kept.
        recorder: takes each step's trajectories and history rows.
    """

    def __init__(
        self,
        config: Config,
        *,
        learner: Learner,
        rollouts: Rollouts,
        snapshots: Snapshots,
        recorder: Recorder,
    ) -> None:
        self.config = config
        self.learner, self.rollouts = learner, rollouts
        self.snapshots, self.recorder = snapshots, recorder
        self.conductor = rollouts.conductor
        self.step = 0
        """Optimiser steps done; also the version of the newest weights."""
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ask the run to end after the step under way, with a snapshot."""
        self._stop.set()

    async def run(self) -> bool:
        """Train to the last step. False when it was asked to stop before."""
        while self.step < self.config.training.steps:
            started = time.monotonic()
            self.rollouts.refill()
            await self.conductor.until(lambda: self.rollouts.buffer.ready(self.step))
            batch = self.rollouts.buffer.take(self.step)
            self.rollouts.learn(batch)
            queues = {
                "buffered_episodes": float(len(self.rollouts.buffer)),
                "live_episodes": float(self.conductor.live),
            }
            trained, left_out = chosen(batch, self.config)
            generated = time.monotonic()
            training = asyncio.create_task(self._train(trained))
            try:
                await self._until_weights_are_due(training)
                waited = time.monotonic()
                report, seconds = await training
            finally:
                training.cancel()
            self.step += 1
            await self._publish()
            now = time.monotonic()
            await self._record(
                batch,
                {**report, **left_out, **queues, **self.rollouts.stream.counts()},
                {
                    "seconds_generate": generated - started,
                    "seconds_train": seconds,
                    "seconds_wait": now - waited,
                    "seconds": now - started,
                },
            )
            stopping = self._stop.is_set()
            if stopping or self.step % self.config.training.snapshot_every == 0:
                # Both at one moment: an episode that ends during the saving is in one of them only.
                state, buffered = self.rollouts.state(), list(self.rollouts.buffer)
                await self.snapshots.save(self.step, state, buffered)
            if stopping and self.step < self.config.training.steps:
                return False
        return True

    async def _train(self, batch: Sequence[Trajectory]) -> tuple[Mapping[str, float], float]:
        started = time.monotonic()
        report = await self.learner.train_step(batch)
        return report, time.monotonic() - started

    async def _until_weights_are_due(self, training: asyncio.Task[Any]) -> None:
        pipeline, rollouts = self.config.pipeline, self.rollouts
        due: Callable[[], bool] = training.done
        if pipeline.schedule == "deterministic":
            size = rollouts.buffer.groups_per_step * rollouts.buffer.group_size
            target = rollouts.finished + pipeline.publish_after * size

            def due() -> bool:
                return rollouts.finished >= target or not self.conductor.live

        if pipeline.mode == "one-step-off" and self.step + 1 < self.config.training.steps:
            deterministic = pipeline.schedule == "deterministic"

            def due() -> bool:
                ready = rollouts.buffer.ready(self.step + 1)
                return ready and (deterministic or training.done())

        training.add_done_callback(lambda _: self.conductor.notify())
        await self.conductor.until(due)

    async def _publish(self) -> None:
        weights = await self.learner.publish(self.step)
        if not self.config.pipeline.partial_rollouts:
            self.rollouts.held = True
            await self.conductor.until(lambda: not self.conductor.live)
            self.rollouts.held = False
        await self.rollouts.pool.load_weights(self.step, weights)
        self.snapshots.prune_weights(self.rollouts.pool.versions)
        self.rollouts.refill()

    async def _record(
        self,
        batch: Sequence[Trajectory],
        report: Mapping[str, float],
        seconds: Mapping[str, float],
    ) -> None:
        rows = step_rows(self.step - 1, batch, report, seconds)
        self.recorder.step(self.step - 1, batch, rows, report)
        if self.config.trackers:
            await self.learner.log(self.step - 1, scalars(rows, report))
