"""What each task's expert shows: python tests/benchmarks/bench_tasks.py [--episodes 2000] [--expert 500]

A Markdown row a task and level: samples, the expert's success on generated ones (and on official dev and std where
`AGENTRL_DATA_ROOT` names them), its episodes a second, memory over many episodes, and what is left behind. One process,
many episodes at once; prints, asserts nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from os_sandboxes import TREES, groups_of_the_dead, held

from agentrl.config.models import TaskConfig
from agentrl.errors import AgentRLError, InfrastructureError
from agentrl.tasks.base import Sample, Task
from agentrl.tasks.play import play_expert
from agentrl.tasks.registry import TASKS, create_task

TOGETHER = {"os_interaction": 4}
"""Episodes at once; a sandbox is a few processes."""
OPTIONS = {"os_interaction": {"sandbox": "namespaces", "tree": "host"}}
OFFICIAL = {
    "os_interaction": {
        "sandbox": "namespaces",
        "tree": "debian",
        "cache": str(TREES),
        "init_timeout": 90.0,
    }
}
ROOT = os.environ.get("AGENTRL_DATA_ROOT")


def resident() -> float:
    """MiB of this process."""
    gc.collect()
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def name_of(sample: Sample) -> str:
    return f"{sample.task} {sample.split}/{sample.index}"


async def solved(task: Task, samples: list[Sample], together: int) -> int:
    """How many of them the expert solves. An episode that fails otherwise is not solved."""
    slots = asyncio.Semaphore(together)

    async def one(sample: Sample) -> bool:
        async with slots:
            try:
                return (await play_expert(task, sample, seed=sample.index)).last.reward == 1.0
            except InfrastructureError as error:
                print(f"{name_of(sample)}: {error}", file=sys.stderr)
                return False

    return sum(await asyncio.gather(*map(one, samples)))


async def generated(name: str, level: str, experts: int, episodes: int) -> str:
    before, together = held(), TOGETHER.get(name, 32)
    task = create_task(name, TaskConfig(level=level, options=OPTIONS.get(name, {})), None)
    try:
        counts = "/".join(f"{len(task.samples(split)):,}" for split in ("train", "dev", "std"))
        won = await solved(task, [task.samples("train")[i] for i in range(experts)], together)
        first, start = resident(), time.perf_counter()
        await solved(task, [task.samples("train")[i % 100_000] for i in range(episodes)], together)
        rate, last = episodes / (time.perf_counter() - start), resident()
    finally:
        await task.close()
    gc.collect()
    now = held()
    left = [f"{now[key] - before[key]} {key}" for key in ("files", "threads", "children")]
    left += [
        f"{len(now['mounts']) - len(before['mounts'])} mounts",
        f"{len(groups_of_the_dead())} groups",
    ]
    return f"| {name} | {level} | {counts} | {won}/{experts} | {rate:.1f} | {first:.0f} → {last:.0f} | {', '.join(left)} |"


async def official(name: str) -> str:
    config = TaskConfig(
        source="official", prompt="agentbench", max_turns=30, options=OFFICIAL.get(name, {})
    )
    parts = []
    task = create_task(name, config, Path(str(ROOT)))
    try:
        for split in ("dev", "std"):
            samples = list(task.samples(split))
            parts.append(
                f"{split} {await solved(task, samples, TOGETHER.get(name, 32))}/{len(samples)}"
            )
    finally:
        await task.close()
    return f"| {name} | official | | {', '.join(parts)} | | | |"


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--expert", type=int, default=500)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    chosen = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| task | level | train/dev/std | expert | episodes/s | MiB | left |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name in chosen.tasks:
        for level in ("easy", "medium", "hard"):
            episodes = chosen.episodes if level == "easy" else 100
            print(await generated(name, level, chosen.expert, episodes), flush=True)
        if ROOT is not None:
            try:
                print(await official(name), flush=True)
            except AgentRLError as error:
                print(f"| {name} | official | | {error} | | | |", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
