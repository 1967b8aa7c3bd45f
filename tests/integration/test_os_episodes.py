# ruff: noqa: ASYNC110
"""Whole episodes in namespace sandboxes: experts, official records, many at once, and nothing left behind."""

from __future__ import annotations

import asyncio
import os

import pytest
from os_sandboxes import ROOT, debian, groups_of_the_dead, held, make, play_all, ready, unsolved

from agentrl.config.models import TaskConfig
from agentrl.messages import Status
from agentrl.tasks.base import Sample, call_message
from agentrl.tasks.os_interaction.records import Record, Script
from agentrl.tasks.os_interaction.task import OSTask

HOST = {"sandbox": "namespaces", "tree": "host"}
official = pytest.mark.skipif(
    not (ROOT / "os_interaction").is_dir(),
    reason=f"no official records in {ROOT}; set AGENTRL_DATA_ROOT",
)
UNSOLVABLE = {
    ("std", 52): "apt needs a network",
    ("std", 53): "apt needs a network",
    ("std", 55): "apt needs a network",
    ("train", 252): "prints two numbers where its grader wants one",
    ("train", 356): "sleeps for 60 s while it is set up",
}
UNSURE = {
    ("std", 26): "redirects descriptor 123321, which takes a hard limit above it",
    ("std", 62): "compares memory in use at two moments",
    ("std", 74): "compares the load at two moments",
    ("train", 382): "a file is exactly 7 days old for less than a second",
    ("train", 683): "what it counts depends on when it runs",
}


@pytest.mark.parametrize(
    ("level", "prompt", "count"),
    [("easy", "compact", 120), ("medium", "agentbench", 80), ("hard", "compact", 80)],
)
async def test_the_expert_solves_what_is_generated(level: str, prompt: str, count: int) -> None:
    before = held()
    task = await ready(make(HOST, level=level, prompt=prompt))
    played = await play_all(task, [task.samples("train")[i] for i in range(count)])
    assert unsolved(played) == set()
    assert {step.status for step in played.values() if not isinstance(step, str)} == {
        Status.COMPLETED
    }
    await task.close()
    assert held() == before
    assert groups_of_the_dead() == []


async def test_noise_makes_it_unreliable_by_degrees() -> None:
    task = await ready(make(HOST))
    rates = []
    for noise in (0.1, 0.4, 0.9):
        played = await play_all(task, [task.samples("train")[i] for i in range(60)], noise)
        rates.append(1 - len(unsolved(played)) / 60)
    await task.close()
    assert rates == sorted(rates, reverse=True)
    assert 0.2 <= rates[1] <= 0.8


async def test_the_debian_tree_solves_the_same() -> None:
    task = await ready(make(debian(), level="hard"))
    played = await play_all(task, [task.samples("std")[i] for i in range(40)])
    await task.close()
    assert unsolved(played) == set()


@official
async def test_official_records_with_their_examples() -> None:
    """Every std and dev record and every 10th of train; all of them with AGENTRL_OS_ALL=1."""
    task = await ready(make(debian(), source="official", prompt="agentbench"))
    every = os.environ.get("AGENTRL_OS_ALL")
    samples = [
        *task.samples("std"), *task.samples("dev"),
        *[s for s in task.samples("train") if every or s.index % 10 == 0],
    ]  # fmt: skip
    failed = unsolved(await play_all(task, samples))
    again = [sample for sample in samples if (sample.split, sample.index) in failed]
    failed = unsolved(await play_all(task, again, together=1))  # some ask about a busy machine
    await task.close()
    assert failed - set(UNSURE) <= set(UNSOLVABLE)
    assert len(samples) - len(failed) >= (1140 if every else 240)


class OneRecord(OSTask):
    one: Record

    def record(self, sample: Sample) -> Record:
        return self.one


async def test_tools_that_the_agent_replaced_do_not_grade_it() -> None:
    """An official check looks at a file's mode with `ls` and `awk`; the agent replaces both."""
    task = OneRecord(TaskConfig(options=debian()))
    await ready(task)
    task.one = Record(
        "test", "take the bit away", init=(Script("chmod u+s /usr/bin/find"),),
        checks=(Script("ls -l /usr/bin/find | awk '{ if ($1 ~ /^-..s/) exit 1; else exit 0 }'"),),
    )  # fmt: skip
    cheat = (
        "printf '#!/bin/sh\\nexit 0\\n' > /tmp/x; chmod +x /tmp/x; cp /tmp/x /usr/bin/ls; "
        "rm -f /usr/bin/awk /usr/bin/mawk; cp /tmp/x /usr/bin/awk; cp /tmp/x /usr/bin/mawk; "
        "cp /tmp/x /usr/local/bin/ls; cp /tmp/x /usr/local/bin/awk; echo 'exit 0' > /root/.bashrc"
    )
    rewards = {}
    for script in (cheat, "chmod u-s /usr/bin/find", f"chmod u-s /usr/bin/find; {cheat}"):
        episode = await task.start(Sample("os_interaction", "train", 0), 0)
        await episode.step(call_message("bash_action", {"script": script}))
        step = await episode.step(call_message("finish_action", {"thought": "done"}))
        rewards[script] = step.reward
        await episode.close()
    await task.close()
    assert list(rewards.values()) == [0.0, 1.0, 1.0]


async def test_32_episodes_at_once_with_cancels_leave_nothing() -> None:
    before = held()
    task = await ready(make(HOST, level="medium"))

    async def episode(index: int) -> str:
        live = await task.start(task.samples("train")[index], index)
        try:
            step = await live.step(
                call_message("bash_action", {"script": f"echo {index}; sleep {index % 3}"})
            )
            return step.messages[0].content
        finally:
            await live.close()

    running = [asyncio.create_task(episode(index)) for index in range(32)]
    while sum(task.done() for task in running) < 8:
        await asyncio.sleep(0.05)
    for index in range(0, 32, 4):
        running[index].cancel()
    results = await asyncio.gather(*running, return_exceptions=True)
    for index, result in enumerate(results):
        if isinstance(result, str):
            assert result == str(index)
        else:
            assert isinstance(result, asyncio.CancelledError) and index % 4 == 0, result
    await task.close()
    assert held() == before
    assert groups_of_the_dead() == []
