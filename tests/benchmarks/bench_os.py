# ruff: noqa: ASYNC110
"""What the OS task's sandboxes cost: python tests/benchmarks/bench_os.py [--docker HOST --image IMAGE] [--official]

Prints milliseconds (p50, p99), what 200 live sandboxes take, experts' episodes a second, and what is left
behind; asserts nothing. `--official` plays every official record's example in namespace sandboxes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from os_sandboxes import ROOT, TREES, groups_of_the_dead, held, make, play_all, unsolved

from agentrl.sandbox.base import Limits, Provider, Sandbox
from agentrl.sandbox.docker import DockerProvider
from agentrl.sandbox.files import File
from agentrl.sandbox.namespaces import NamespaceProvider
from agentrl.sandbox.shell import Shell
from agentrl.sandbox.trees import host_tree

LIVE = 200


def quantiles(times: list[float]) -> str:
    times = sorted(times)
    at = [times[min(len(times) - 1, int(len(times) * q))] * 1e3 for q in (0.5, 0.99)]
    return f"p50 {at[0]:.1f} ms, p99 {at[1]:.1f} ms (n {len(times)})"


async def timed(work: Callable[[], Awaitable[Any]], into: list[float]) -> Any:
    start = time.perf_counter()
    result = await work()
    into.append(time.perf_counter() - start)
    return result


async def first_command(provider: Provider) -> Sandbox:
    """What an episode waits for: a sandbox, its files, a shell that has run a script."""
    sandbox = await provider.open()
    await sandbox.put([File("/data/x", b"1\n")])
    shell = Shell(sandbox)
    assert (await shell.run("wc -l < /data/x", 120.0)).output.strip() == "1"
    await shell.close()
    return sandbox


async def steps(provider: Provider, count: int) -> None:
    opened: list[float] = []
    ready: list[float] = []
    closed: list[float] = []
    for _ in range(count):
        sandbox = await timed(provider.open, opened)
        await timed(sandbox.close, closed)
        sandbox = await timed(lambda: first_command(provider), ready)
        await sandbox.close()
    print(f"  open                    {quantiles(opened)}")
    print(f"  open to first command   {quantiles(ready)}")
    print(f"  close                   {quantiles(closed)}")


def available() -> float:
    text = Path("/proc/meminfo").read_text()
    return int(text.partition("MemAvailable:")[2].split()[0]) / 1024


async def many(provider: Provider) -> None:
    before, start = available(), time.perf_counter()
    made = [await first_command(provider) for _ in range(LIVE)]
    print(
        f"  {LIVE} live               made in {time.perf_counter() - start:.1f} s, "
        f"{(before - available()) / LIVE:.2f} MB of memory each"
    )
    start = time.perf_counter()
    outputs = await asyncio.gather(*(sandbox.run("cat /data/x", timeout=120) for sandbox in made))
    assert all(ran.output == "1\n" for ran in outputs)
    print(f"  one program in each     {time.perf_counter() - start:.1f} s")
    start = time.perf_counter()
    await asyncio.gather(*(sandbox.close() for sandbox in made))
    print(f"  all closed              {time.perf_counter() - start:.1f} s")


async def namespaces() -> None:
    print("namespaces, the host's programs")
    before = held()
    with tempfile.TemporaryDirectory() as folder:
        provider = NamespaceProvider(host_tree(Path(folder)), Limits())
        start = time.perf_counter()
        await provider.check()
        print(f"  launcher                {(time.perf_counter() - start) * 1e3:.0f} ms, once")
        await steps(provider, 100)
        await many(provider)
        await provider.close()
    print(f"  left: {left(before)}")


def left(before: dict[str, Any]) -> str:
    now = held()
    more = {key: now[key] - before[key] for key in ("files", "threads", "children")}
    return f"{more}, mounts {len(now['mounts'])}, groups {len(groups_of_the_dead())}"


async def docker(host: str, image: str) -> None:
    before = held()
    for pool in (0, 8):
        print(f"Docker, {'warm' if pool else 'cold'}")
        provider = DockerProvider({"default": image}, Limits(), host, pool)
        await provider.check()
        if pool:
            opened: list[float] = []
            for _ in range(5):
                while len(provider._warm) < pool:
                    await asyncio.sleep(0.1)
                made = [await timed(provider.open, opened) for _ in range(pool)]
                await asyncio.gather(*(sandbox.close() for sandbox in made))
            print(f"  open                    {quantiles(opened)}")
        else:
            await steps(provider, 20)
        await provider.close()
    print(f"  left: {left(before)}")


async def experts(count: int) -> None:
    for level in ("easy", "medium", "hard"):
        before = held()
        task = make({"sandbox": "namespaces", "tree": "host"}, level=level)
        await task.provider()
        start = time.perf_counter()
        played = await play_all(task, [task.samples("train")[i] for i in range(count)], together=4)
        rate = count / (time.perf_counter() - start)
        await task.close()
        print(
            f"expert, {level}: {count - len(unsolved(played))} of {count} solved, {rate:.1f} episodes/s; "
            f"left: {left(before)}"
        )


async def official() -> None:
    options = {"sandbox": "namespaces", "tree": "debian", "cache": str(TREES), "init_timeout": 90.0}
    task = make(options, source="official", prompt="agentbench")
    for split in ("std", "dev", "train"):
        samples = list(task.samples(split))
        failed = unsolved(await play_all(task, samples))
        again = unsolved(await play_all(task, [s for s in samples if (s.split, s.index) in failed]))
        print(
            f"official {split}: {len(samples) - len(again)} of {len(samples)}; failed {sorted(again)}"
        )
    await task.close()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--docker")
    parser.add_argument("--image", default="agentrl/os-default")
    parser.add_argument("--official", action="store_true")
    parser.add_argument("--experts", type=int, default=500)
    chosen = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    await namespaces()
    await experts(chosen.experts)
    if chosen.docker:
        await docker(chosen.docker, chosen.image)
    if chosen.official and (ROOT / "os_interaction").is_dir():
        await official()


if __name__ == "__main__":
    asyncio.run(main())
