"""What the WebShop task costs: python tests/benchmarks/bench_webshop.py [PRODUCTS ...] [--cache FOLDER]

Prints, for each size of shop (level medium, from disk): building, memory, search latency, expert
episodes, and memory after many of them; asserts nothing. CPU time stands beside wall time, for a loaded
machine. A second run finds the shops that the first one built, and prints the same digest of results.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from agentrl.config.models import TaskConfig
from agentrl.randomness import stream
from agentrl.tasks.play import play_expert
from agentrl.tasks.webshop.search import SearchIndex
from agentrl.tasks.webshop.task import WebShopTask

QUERIES = 1_000


def memory() -> str:
    """Resident MiB: all, of which anonymous (the rest is pages of files, which can be dropped)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    values = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.endswith(" kB")}
    names = ("VmRSS", "RssAnon", "VmHWM")
    return ", ".join(f"{name} {values[name] / 1024:.0f}" for name in names) + " MiB"


def percentiles(values: Iterable[float]) -> str:
    ordered = sorted(values)
    middle, late = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"p50 {middle * 1e3:.2f} p99 {late * 1e3:.2f} max {ordered[-1] * 1e3:.2f} ms"


def timed(function: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def searches(task: WebShopTask, found: hashlib._Hash) -> None:
    goals = [task.goal(task.samples("train")[index]) for index in range(QUERIES)]
    index: SearchIndex = task.site.store._index  # without the cache in front of it
    kinds = {
        "attributes and kind": [" ".join([*goal.attributes, goal.query]) for goal in goals],
        "whole instruction": [goal.instruction for goal in goals],
        "title": [goal.name for goal in goals],
        "one word": [
            stream(0, "bench", number).choice(goal.instruction.split())
            for number, goal in enumerate(goals)
        ],
    }
    for kind, queries in kinds.items():
        spent = []
        for query in queries:
            results: list[object] = []
            spent.append(timed(lambda q=query, out=results: out.append(index.search(q, 50))))  # type: ignore[misc]
            found.update(repr(results).encode())
        print(
            f"  search, {kind}: {percentiles(w for w, _ in spent)}; CPU {percentiles(c for _, c in spent)}"
        )


async def episodes(task: WebShopTask, count: int) -> int:
    samples = task.samples("train")
    return sum([(await play_expert(task, samples[i], i)).last.reward == 1.0 for i in range(count)])


def of_size(products: int, cache: Path, count: int) -> None:
    options = {"products": products, "cache": str(cache)}
    task = WebShopTask(TaskConfig(level="medium", options=options))
    print(f"{products:,} products; before: {memory()}")
    wall, cpu = timed(lambda: task.site)
    print(f"  open (built if need be): {wall:.1f} s, CPU {cpu:.1f} s; {memory()}")
    found = hashlib.sha256()
    searches(task, found)
    print(f"  results {found.hexdigest()[:16]}; {memory()}")
    for name in ("first", "second"):
        solved: list[int] = []
        wall, cpu = timed(lambda: solved.append(asyncio.run(episodes(task, count))))  # noqa: B023
        print(
            f"  {name} {count} expert episodes: {solved[0]} solved, {count / wall:.0f}/s, "
            f"{count / cpu:.0f} per CPU second; {memory()}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("products", nargs="*", type=int, default=[50_000])
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--episodes", type=int, default=2_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for size in given.products:
            of_size(size, given.cache or Path(scratch), given.episodes)
