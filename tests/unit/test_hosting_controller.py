"""The controller closes every session exactly once and tells failures from steps."""

import asyncio
from dataclasses import dataclass, field

import pytest

from agentrl.errors import DataError, InfrastructureError
from agentrl.hosting.controller import Controller
from agentrl.messages import Message, ToolSpec
from agentrl.tasks.base import Episode, Sample, Step, Task, ToolEpisode, ToolResult, call_message

ADD = ToolSpec(
    "add",
    "Add to the counter.",
    {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    },
)


class Counting(ToolEpisode):
    """Ends with reward 1 when its own count reaches 3; closing twice is an error of the host."""

    def __init__(self, log):
        super().__init__((ADD,), (Message("user", "count to 3"),), max_turns=6)
        self.count, self.log, self.closed = 0, log, 0

    async def call(self, name, arguments):
        await asyncio.sleep(0)
        if arguments["n"] < 0:
            raise OSError("the counter broke")
        self.count += arguments["n"]
        done = self.count >= 3
        return ToolResult(str(self.count), float(done), done)

    async def close(self):
        self.closed += 1


@dataclass
class CountingTask(Task):
    name = "counting"
    tools = (ADD,)
    level: str = "easy"
    episodes: list = field(default_factory=list)

    def samples(self, split):
        return [Sample("counting", split, i) for i in range(100)]

    async def start(self, sample, seed) -> Episode:
        if sample.index == 13:
            raise DataError("sample 13 is malformed")
        if sample.index == 14:
            raise ConnectionError("no server")
        self.episodes.append(Counting(self))
        return self.episodes[-1]

    def expert(self, sample, seed, noise=0.0):
        raise AssertionError("not used")


def add(n) -> Message:
    return call_message("add", {"n": n})


def sample(index: int = 0) -> Sample:
    return Sample("counting", "train", index)


async def test_parallel_sessions_see_only_their_own_count():
    """Pitfall 40."""
    controller = Controller({"counting": CountingTask()})

    async def play() -> list[str]:
        opening = await controller.start(sample(), 0)
        steps = [await controller.interact(opening.session, add(1)) for _ in range(3)]
        assert steps[-1].done and steps[-1].metrics["success"] == 1.0
        return [step.messages[0].content for step in steps]

    assert await asyncio.gather(*(play() for _ in range(32))) == [["1", "2", "3"]] * 32
    assert controller.live == 0


async def test_every_path_closes_once():
    """Pitfall 39: 200 episodes that end, are cancelled, break or are cut off while busy."""
    task = CountingTask()
    controller = Controller({"counting": task})

    async def play(kind: int) -> None:
        session = (await controller.start(sample(), 0)).session
        if kind == 0:
            await controller.interact(session, add(3))
        elif kind == 1:
            await controller.cancel(session)
        elif kind == 2:
            with pytest.raises(InfrastructureError, match=r"step failed: OSError: the counter"):
                await controller.interact(session, add(-1))
        elif kind == 3:
            call = asyncio.create_task(controller.interact(session, add(1)))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        else:
            await controller.interact(session, Message("assistant", "no call"))
        await controller.cancel(session)  # safe on every path

    await asyncio.gather(*(play(i % 5) for i in range(200)))
    assert controller.live == 0
    assert [episode.closed for episode in task.episodes] == [1] * 200
    await controller.close()
    assert [episode.closed for episode in task.episodes] == [1] * 200


async def test_failures_to_start():
    controller = Controller({"counting": CountingTask()})
    with pytest.raises(DataError, match="13 is malformed"):
        await controller.start(sample(13), 0)
    with pytest.raises(InfrastructureError, match=r"train/14: start failed: ConnectionError"):
        await controller.start(sample(14), 0)
    with pytest.raises(InfrastructureError, match="no worker serves task 'os'"):
        await controller.start(Sample("os", "std", 0), 0)
    assert controller.live == 0


async def test_a_session_is_not_reused():
    controller = Controller({"counting": CountingTask()})
    first = (await controller.start(sample(), 0)).session
    await controller.cancel(first)
    second = (await controller.start(sample(), 0)).session
    assert second != first
    with pytest.raises(KeyError):
        await controller.interact(first, add(1))
    await controller.close()
    assert controller.live == 0


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        (call_message("add", {"n": "1"}), "Invalid add: n: '1' is not of type 'integer'"),
        (call_message("add", {}), "Invalid add: arguments: 'n' is a required property"),
        (call_message("sub", {"n": 1}), "Unknown tool 'sub'. Tools: add."),
        (Message("assistant", "hm"), "No tool call found. Answer with one tool call."),
    ],
)
async def test_broken_calls_are_answered_and_reach_no_task_code(message, reply):
    """Pitfall 9, and 41: a broken call does not stick."""
    episode = Counting(None)
    step = await episode.step(message)
    assert [m.content for m in step.messages] == [reply]
    assert episode.count == 0 and step.metrics["invalid_calls"] == 1.0
    last: Step = await episode.step(add(3))
    assert last.reward == 1.0 and last.status == "completed" and last.done


async def test_the_turn_limit_ends_an_episode_without_reward():
    episode = Counting(None)
    for _ in range(5):
        assert not (await episode.step(add(0))).done
    last = await episode.step(add(0))
    assert (last.done, last.status, last.reward) == (True, "task limit reached", 0.0)
    with pytest.raises(RuntimeError, match="after the episode ended"):
        await episode.step(add(0))
