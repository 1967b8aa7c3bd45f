"""Pitfalls of environments (tests/PITFALLS.md) on the real tasks, through the controller."""

import asyncio
import os
import random
import threading

import pytest

from agentrl.config.models import TaskConfig
from agentrl.errors import InfrastructureError
from agentrl.hosting.controller import Controller
from agentrl.messages import Message, Status
from agentrl.tasks.registry import create_task

NEED_NOTHING = ("alfworld", "dbbench")
"""Tasks that start without a server or files; one more line for each that comes."""


def held():
    """File handles and threads of this process."""
    return len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208


@pytest.fixture(params=NEED_NOTHING)
def task(request):
    return create_task(request.param, TaskConfig(max_turns=20))


async def play(controller, task, index, noise=0.0, leading=()):
    """The expert's episode after some `leading` messages: what was heard, and the last step."""
    sample = task.samples("train")[index]
    opening = await controller.start(sample, index)
    try:
        expert, heard, step = task.expert(sample, index, noise), list(opening.messages), None
        for message in leading:
            step = await controller.interact(opening.session, message)
            assert not step.done
        new = opening.messages
        while step is None or not step.done:
            step = await controller.interact(opening.session, expert.act(new))
            new = step.messages
            heard += new
            await asyncio.sleep(0)
        return heard, step
    finally:  # as the agent loop does
        await asyncio.shield(controller.cancel(opening.session))


async def test_nothing_is_left_open_after_200_episodes(task):
    """39: a fifth breaks, a fifth is cancelled, a fifth times out; sessions, file handles and
    threads are as many as before."""
    controller = Controller({task.samples("train")[0].task: task})
    draws, start = random.Random(0), task.start

    async def breaking(sample, seed):
        async def call(name, arguments):
            raise OSError("the disk is full")

        episode = await start(sample, seed)
        if seed % 5 == 1:
            episode.call = call
        return episode

    async def one(number):
        kind = number % 5
        if kind == 1:
            with pytest.raises(InfrastructureError, match="the disk is full"):
                await play(controller, task, number)
        elif kind in (2, 3):
            attempt = asyncio.create_task(play(controller, task, number, noise=0.5))
            for _ in range(draws.randrange(4)):
                await asyncio.sleep(0)
            if kind == 2:
                attempt.cancel()
                await asyncio.gather(attempt, return_exceptions=True)
            elif not attempt.done():
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(attempt, timeout=0)
        else:
            await play(controller, task, number, noise=0.3)

    task.start = breaking
    await asyncio.gather(*(one(number) for number in range(5)))  # imports and caches
    before = held()
    for first in range(0, 200, 40):
        await asyncio.gather(*(one(number) for number in range(first, first + 40)))
    assert controller.live == 0
    assert held() == before
    await controller.close()


async def test_episodes_that_run_side_by_side_do_not_know_of_each_other(task):
    """40: 32 sessions at once hear what each hears alone."""
    controller = Controller({task.samples("train")[0].task: task})
    alone = [await play(controller, task, index, noise=0.4) for index in range(32)]
    together = await asyncio.gather(*(play(controller, task, n, noise=0.4) for n in range(32)))
    assert [heard for heard, _ in together] == [heard for heard, _ in alone]
    assert [step.reward for _, step in together] == [step.reward for _, step in alone]
    await controller.close()


@pytest.mark.parametrize("number", [1, 2])
async def test_a_win_after_an_invalid_call_is_a_win(task, number):
    """41: the status says how the episode ended."""
    controller = Controller({task.samples("train")[0].task: task})
    broken = [Message("assistant", "Let me think."), Message("assistant", "")][:number]
    for index in range(10):
        _, step = await play(controller, task, index, leading=broken)
        assert (step.status, step.reward) == (Status.COMPLETED, 1.0)
        assert step.metrics["invalid_calls"] == number and step.metrics["success"] == 1.0
    await controller.close()
