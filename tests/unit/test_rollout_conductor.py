"""Lockstep: an engine steps only when every live episode waits for it."""

import asyncio

import pytest

from agentrl.rollout.conductor import Conductor


class Echo:
    """Answers each request after as many steps as it asks for, and logs what it saw."""

    def __init__(self):
        self.on_request, self.waiting, self.log = None, {}, []

    @property
    def pending(self) -> int:
        return len(self.waiting)

    async def generate(self, name: str, steps: int) -> None:
        self.waiting[name] = [steps, asyncio.get_running_loop().create_future()]
        self.on_request()
        await self.waiting[name][1]

    def step(self) -> int:
        self.log.append("".join(sorted(self.waiting)))
        for name in sorted(self.waiting):
            self.waiting[name][0] -= 1
            if self.waiting[name][0] == 0:
                self.waiting.pop(name)[1].set_result(None)
        return self.pending


async def episode(engine: Echo, name: str, turns: list[int], pauses: int) -> str:
    for steps in turns:
        for _ in range(pauses):  # an environment that takes several turns of the event loop
            await asyncio.sleep(0)
        await engine.generate(name, steps)
    return name


@pytest.mark.parametrize("pauses", [(0, 0, 0), (3, 0, 7), (50, 1, 0)])
async def test_what_the_engine_sees_does_not_depend_on_environment_delays(pauses):
    engine, ended = Echo(), []
    conductor = Conductor([engine])
    for name, turns, wait in zip("abc", ([2, 1], [1, 1, 1], [4]), pauses, strict=True):
        conductor.spawn(episode(engine, name, turns, wait), ended.append)
    await conductor.until(lambda: conductor.live == 0)
    # a is done after 3 steps, b after 3, c after 4
    assert engine.log == ["abc", "abc", "abc", "c"]
    assert sorted(ended) == ["a", "b", "c"]


async def test_the_condition_is_looked_at_between_steps():
    engine = Echo()
    conductor = Conductor([engine])
    conductor.spawn(episode(engine, "a", [5], 0), lambda _: None)
    await conductor.until(lambda: len(engine.log) == 2)
    assert conductor.live == 1
    await conductor.close()
    assert conductor.live == 0


async def test_a_bug_ends_the_run_and_a_stall_is_named():
    async def broken():
        raise TypeError("a bug")

    conductor = Conductor([Echo()])
    with pytest.raises(RuntimeError, match="no episode is live"):
        await conductor.until(lambda: False)
    conductor.spawn(broken(), lambda _: None)
    with pytest.raises(TypeError, match="a bug"):
        await conductor.until(lambda: False)
    await conductor.close()


async def test_a_report_that_fails_ends_the_run():
    """asyncio only logs what a callback raises; the run must not wait for ever."""

    async def episode():
        return 1

    def report(result):
        raise ValueError("came twice")

    conductor = Conductor([])
    conductor.spawn(episode(), report)
    with pytest.raises(ValueError, match="came twice"):
        await conductor.until(lambda: False)
    await conductor.close()
