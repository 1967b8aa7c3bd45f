"""Overlap efficiency of the training loop: how close a step comes to the limit, on two clocks.

The real loop, buffer, admission and episodes; an engine whose completions are sleeps out of a stored
list of durations, and a learner whose step is a sleep. Every mode replays the same list, over and over,
and is measured over whole rounds of it between a warm-up and the end.

    G*  engine seconds of a step over places (retried work included): nobody can generate faster
    T   seconds of a step of training
    t   seconds of a step
    efficiency = max(G*, T) / t         recovered = (t_sync - t) / (t_sync - max(G*, T))

`waits` is the share of the time in which the learner waits for episodes, `queue` the mean number of
finished episodes that wait for their step. It is the efficiency of the controller, not of an engine: the
clock charges sleeps only, and places do not slow each other down.

On the virtual clock (an event loop whose time jumps) nothing but the order of events counts. On the wall
clock a virtual second lasts 0.3 real ones, what the loop itself computes counts too, and `async` is the
median of three runs; each has a process of its own, two a core at a time.

    python tests/benchmarks/bench_overlap.py [--clock virtual|wall|both] [--rounds 1] [--quick]
"""

import argparse
import asyncio
import math
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
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
UNIT = 0.3
"""Real seconds of a virtual one on the wall clock."""
TIMES = 3
"""Runs of `async` on the wall clock, whose median counts."""


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
    round: int = ROUND
    warm_up: int = ROUND
    """Steps before the first that counts; at G = T a queue fills slowly."""
    unit: float = 1.0
    """Seconds of the clock in one of these."""
    wall: bool = False

    @property
    def aim(self) -> float:
        """Least efficiency of `async` that is wanted, where something is."""
        if self.sigma > 1 and self.staleness < 16:
            return math.nan
        return (0.9 if self.failing else 0.95) if self.wall else 0.99

    def durations(self) -> list[float]:
        draws = random.Random(0)
        found = [draws.lognormvariate(0, self.sigma) for _ in range(EPISODES * self.round)]
        scale = self.unit * self.places * self.round / sum(found)
        return [scale * value for value in found]

    def breaks(self) -> dict[int, str]:
        """Places in the list whose first try fails, and how."""
        draws = random.Random(1)
        count = round(self.failing * EPISODES * self.round)
        chosen = draws.sample(range(EPISODES * self.round), count)
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
    # Whole rounds, behind the warm-up, and before the places run out of episodes.
    first = load.warm_up + load.staleness + 2
    last = first + rounds * load.round
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
        train_seconds=load.train * load.unit,
        seconds=seconds,
        fails=fails,
        pipeline={"mode": mode},
    )
    run.trained_at = []
    clock = asyncio.new_event_loop() if load.wall else looptime.new_event_loop(start=0)
    with closing(clock) as loop:
        assert loop.run_until_complete(run.run())
    began, ended = run.trained_at[first][1], run.trained_at[last][1]
    t = (ended - began) / (last - first) / load.unit
    worked = sum(
        durations[place]
        + {None: 0.0, "raises": durations[place], "hangs": 4 * mean}[breaks.get(place)]
        for place in range(len(durations))
    )
    generation = worked / load.places / load.round / load.unit
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


HEAD = (
    f"{'load':28}{'mode':14}{'G*':>6}{'T':>6}{'t':>7}{'efficiency':>12}{'aim':>6}{'recovered':>11}"
    f"{'speed-up':>10}{'waits':>7}{'queue':>7}{'stale':>7}"
)


def table(load: Load, found: dict[str, Measured]) -> None:
    sync = found["sync"]
    for mode, one in found.items():
        gap = sync.t - one.limit
        recovered = (sync.t - one.t) / gap if not math.isclose(gap, 0) else math.nan
        aim = load.aim if mode == "async" else math.nan
        print(
            f"{load.name:28}{mode:14}{one.generation:6.2f}{load.train:6.2f}{one.t:7.3f}"
            f"{one.efficiency:12.3f}{'' if math.isnan(aim) else f'{aim:.2f}':>6}{recovered:11.3f}"
            f"{sync.t / one.t:10.2f}{one.waits:7.0%}{one.queue:7.1f}{one.staleness:7.0f}",
            flush=True,
        )


def virtual(loads, rounds: int, renderer, folder: Path) -> None:
    print(f"virtual clock: {EPISODES} episodes a step, {rounds * loads[0].round} steps measured")
    print(HEAD)
    for load in loads:
        table(load, {mode: measure(load, mode, rounds, renderer, folder) for mode in MODES})


def wall(loads, rounds: int, renderer, folder: Path, times: int) -> None:
    print(
        f"wall clock: {EPISODES} episodes a step, {rounds * loads[0].round} steps measured, seconds of "
        f"{loads[0].unit} s, async: median of {times}"
    )
    print(HEAD)
    # Forked, so that nothing is imported again; the processes sleep nearly all of the time.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2 * (os.cpu_count() or 1), mp_context=context) as pool:
        jobs = {
            (load.name, mode, n): pool.submit(_in_a_folder, load, mode, rounds, renderer, folder)
            for load in loads
            for mode in MODES
            for n in range(times if mode == "async" else 1)
        }
        for load in loads:
            found = {}
            for mode in MODES:
                runs = [
                    jobs[load.name, mode, n].result()
                    for n in range(times if mode == "async" else 1)
                ]
                middle = statistics.median_low(run.t for run in runs)
                found[mode] = next(run for run in runs if run.t == middle)
            table(load, found)


def _in_a_folder(load: Load, mode: str, rounds: int, renderer, folder: Path) -> Measured:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        return measure(load, mode, rounds, renderer, Path(own))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clock", choices=("virtual", "wall", "both"), default="both")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="one load, short, a run of seconds")
    options = parser.parse_args()
    renderer = echo_renderer()
    loads = LOADS[1:2] if options.quick else LOADS
    # A heavy tail is the virtual clock's: its slowest episode alone would take half a minute.
    real = [load for load in loads if load.sigma < 1 and load.staleness == 2]
    # Two steps ahead of each other are reached within a few steps; a whole round would be minutes.
    short = {"round": 4 if options.quick else 12, "warm_up": 2 if options.quick else 6}
    if options.quick:
        loads = [replace(load, **short) for load in loads]
    real = [replace(load, wall=True, unit=0.1 if options.quick else UNIT, **short) for load in real]
    with tempfile.TemporaryDirectory() as folder:
        if options.clock != "wall":
            virtual(loads, options.rounds, renderer, Path(folder))
        if options.clock != "virtual":
            wall(real, options.rounds, renderer, Path(folder), 1 if options.quick else TIMES)


if __name__ == "__main__":
    main()
