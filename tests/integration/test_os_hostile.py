"""500 hostile scripts: none gets out, and each episode ends in bounded time with a status."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_commands import FAMILIES, scripts
from os_sandboxes import debian, groups_of_the_dead, held, make, ready

from agentrl.messages import Status
from agentrl.tasks.base import call_message
from agentrl.tasks.os_interaction.task import OSTask

COUNT = 500
BOUND_SECONDS = 1800.0
"""Far above what an episode takes on an idle machine (15 s at most): 2 scripts, 2 interrupts, a restart."""
LIMITS = {"memory_mb": 96, "disk_mb": 32, "processes": 48, "cpus": 0.5, "command_timeout": 2.0}
ENDINGS = {Status.COMPLETED, Status.INVALID_ACTION}


class Host:
    """What on the host a script might reach: a file, a process, a port, the host name, mounts."""

    def __init__(self, folder: Path) -> None:
        self.secret = folder / "host-secret.txt"
        self.secret.write_text("host-secret: 4711\n")
        self.bystander = subprocess.Popen(["sleep", "100000"])
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]
        self.visitors = 0
        self._before = self._look()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            self.visitors += 1
            connection.close()

    def _look(self) -> tuple[Any, ...]:
        mounts = [
            line for line in Path("/proc/mounts").read_text().splitlines() if "docker" not in line
        ]
        settings = Path("/proc/sys/kernel/core_pattern").read_text()
        return self.secret.read_text(), socket.gethostname(), mounts, settings

    def check(self) -> None:
        assert self._look() == self._before
        assert self.bystander.poll() is None, "a process of the host was killed"
        assert self.visitors == 0, "a script reached the host's loopback"

    def close(self) -> None:
        self.server.close()
        self.bystander.kill()
        self.bystander.wait()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


async def attack(task: OSTask, index: int, script: str) -> tuple[Status, str]:
    """One episode: the script, a second one, an answer. Its status and all that the agent was shown."""
    async with asyncio.timeout(BOUND_SECONDS):
        episode = await task.start(task.samples("train")[index], index)
        shown = ""
        try:
            for message in (
                call_message("bash_action", {"script": script}),
                call_message("bash_action", {"script": "echo still; ls /"}),
                call_message("answer_action", {"answer": "out"}),
            ):
                step = await episode.step(message)
                shown += step.messages[0].content
                if step.done:
                    break
            assert step.done and step.reward == 0.0
            return step.status, shown
        finally:
            await episode.close()


async def attack_all(task: OSTask, listed: list[tuple[str, str]], together: int) -> Counter[str]:
    gate = asyncio.Semaphore(together)
    endings: Counter[str] = Counter()

    async def one(index: int, family: str, script: str) -> None:
        async with gate:
            status, shown = await attack(task, index, script)
        assert status in ENDINGS, (script, status)
        assert "host-secret: 4711" not in shown and "connected\n" not in shown, (script, shown)
        endings[str(status)] += 1

    await asyncio.gather(*(one(i, *member) for i, member in enumerate(listed)))
    return endings


def test_there_are_500_of_11_families() -> None:
    listed = scripts(COUNT, "/secret", 1)
    assert len(listed) == COUNT and {family for family, _ in listed} == set(FAMILIES)
    assert len({script for _, script in listed}) >= 400


async def test_none_gets_out_and_each_ends_with_a_status(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentrl.sandbox.shell.INTERRUPT_SECONDS", 1.0)
    before = held()
    count = int(os.environ.get("AGENTRL_HOSTILE", COUNT))
    task = await ready(make({**debian(), **LIMITS}))
    endings = await attack_all(task, scripts(count, str(host.secret), host.port), together=6)
    assert sum(endings.values()) == count
    host.check()
    provider = await task.provider()
    sandbox = await provider.open()  # whatever happened, the next one is as good as the first
    assert (await sandbox.run("echo fine; ls /usr/bin | wc -l")).output.startswith("fine\n")
    await sandbox.close()
    await task.close()
    host.check()
    assert held() == before
    assert groups_of_the_dead() == []
    print(f"\n{count} hostile scripts: {dict(endings)}")
