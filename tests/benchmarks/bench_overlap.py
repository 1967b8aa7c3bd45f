"""Overlap efficiency of the training loop, on a virtual clock: how close a step comes to the limit.

The real loop, buffer, admission and episodes; an engine whose completions are sleeps out of a stored
list of durations, and a learner whose step is a sleep. Every mode replays the same list, over and over,
in one process, and is measured over whole rounds of it between a warm-up and the end.

    G*  engine seconds of a step over places (retried work included): nobody can generate faster
    T   seconds of a step of training
    t   seconds of a step
    efficiency = max(G*, T) / t         recovered = (t_sync - t) / (t_sync - max(G*, T))

`waits` is the share of the time in which the learner waits for episodes, `queue` the mean number of
finished episodes that wait for their step. It is the efficiency of the controller, not of an engine: the
clock charges sleeps only, and places do not slow each other down.

    python tests/benchmarks/bench_overlap.py [--rounds 1]
"""

import argparse
import asyncio
import math
import random
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "unit")]

import looptime  # noqa: E402
from pipeline_toys import ToyRun, echo_renderer  # noqa: E402

from agentrl.errors import InfrastructureError  # noqa: E402

MODES = ("sync", "one-step-off", "async")
GROUPS, SIZE = 4, 4
EPISODES = GROUPS * SIZE
ROUND = 20
"""Steps after which the list of durations begins again."""


@dataclass(frozen=True)
class Load:
    """Durations of episodes are log-normal with `sigma` and a mean for which G* is 1 s on `places`."""

    name: str
    train: float
    """T, in seconds"""
    sigma: float = 0.6
    places: int = 4
    staleness: int = 2
    failing: float = 0.0
    """Share of episodes whose first try breaks: half of them at their end, half hang for four times
    the mean until a limit ends them."""

    def durations(self) -> list[float]:
        draws = random.Random(0)
        found = [draws.lognormvariate(0, self.sigma) for _ in range(EPISODES * ROUND)]
        scale = self.places * ROUND / sum(found)
        return [scale * value for value in found]

    def breaks(self) -> dict[int, str]:
        """Places in the list whose first try fails, and how."""
        draws = random.Random(1)
        count = round(self.failing * EPISODES * ROUND)
        chosen = draws.sample(range(EPISODES * ROUND), count)
        return {place: ("raises", "hangs")[i % 2] for i, place in enumerate(chosen)}


LOADS = (
    Load("G:T 0.5", train=2.0),
    Load("G:T 1", train=1.0),
    Load("G:T 1, 4 steps ahead", train=1.0, staleness=4),
    Load("G:T 2", train=0.5),
    Load("heavy tail, 2 steps ahead", train=0.5, sigma=1.2, places=16),
    Load("heavy tail, 16 steps ahead", train=0.5, sigma=1.2, places=16, staleness=16),
    Load("G:T 1, 10% failing", train=1.0, failing=0.1),
    Load("G:T 2, 10% failing", train=0.5, failing=0.1),
)


@dataclass
class Measured:
    t: float
    limit: float
    generation: float
    waits: float
    queue: float
    staleness: float

    @property
    def efficiency(self) -> float:
        return self.limit / self.t


class TimedRun(ToyRun):
    """Remembers when each step of training began and ended."""

    async def train_step(self, trajectories):
        clock = asyncio.get_running_loop().time
        started = clock()
        report = await super().train_step(trajectories)
        self.trained_at.append((started, clock()))
        return report


def measure(load: Load, mode: str, rounds: int, renderer, folder: Path) -> Measured:
    # Whole rounds, behind a round of warm-up (at G = T a queue fills slowly), and before the places run out of episodes.
    first = ROUND + load.staleness + 2
    last = first + rounds * ROUND
    steps = last + load.staleness + 2
    durations, breaks = load.durations(), load.breaks()
    mean = sum(durations) / len(durations)
    tries: dict[tuple[int, int], int] = {}

    def broken(group, member):
        place = (group * SIZE + member) % len(durations)
        return breaks.get(place) if tries[group, member] == 1 else None

    def seconds(task, group, member):
        tries[group, member] = tries.get((group, member), 0) + 1
        place = (group * SIZE + member) % len(durations)
        return 4 * mean if broken(group, member) == "hangs" else durations[place]

    def fails(task, group, member):
        if broken(group, member):
            raise InfrastructureError("broke")

    run = TimedRun(
        folder,
        renderer,
        {"echo": 1000},
        steps=steps,
        groups_per_task=GROUPS,
        group_size=SIZE,
        concurrency=load.places,
        max_staleness=load.staleness,
        train_seconds=load.train,
        seconds=seconds,
        fails=fails,
        pipeline={"mode": mode},
    )
    run.trained_at = []
    with closing(looptime.new_event_loop(start=0)) as loop:
        assert loop.run_until_complete(run.run())
    began, ended = run.trained_at[first][1], run.trained_at[last][1]
    t = (ended - began) / (last - first)
    worked = sum(
        durations[place]
        + {None: 0.0, "raises": durations[place], "hangs": 4 * mean}[breaks.get(place)]
        for place in range(len(durations))
    )
    generation = worked / load.places / ROUND
    idle = sum(
        run.trained_at[step][0] - run.trained_at[step - 1][1] for step in range(first + 1, last + 1)
    )
    whole = [row for row in run.rows if row["task"] == "*"][first:last]
    return Measured(
        t,
        max(generation, load.train),
        generation,
        idle / (ended - began),
        sum(row["buffered_episodes"] for row in whole) / len(whole),
        max(row["staleness_max"] for row in whole),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1)
    rounds = parser.parse_args().rounds
    renderer = echo_renderer()
    print(f"{EPISODES} episodes a step, {rounds * ROUND} steps measured; seconds are virtual")
    print(
        f"{'load':28}{'mode':14}{'G*':>6}{'T':>6}{'t':>7}{'efficiency':>12}{'recovered':>11}"
        f"{'speed-up':>10}{'waits':>7}{'queue':>7}{'stale':>7}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for load in LOADS:
            found = {m: measure(load, m, rounds, renderer, Path(folder)) for m in MODES}
            sync = found["sync"]
            for mode, one in found.items():
                gap = sync.t - one.limit
                recovered = (sync.t - one.t) / gap if not math.isclose(gap, 0) else math.nan
                print(
                    f"{load.name:28}{mode:14}{one.generation:6.2f}{load.train:6.2f}{one.t:7.3f}"
                    f"{one.efficiency:12.3f}{recovered:11.3f}{sync.t / one.t:10.2f}"
                    f"{one.waits:7.0%}{one.queue:7.1f}{one.staleness:7.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
