"""Episodes over the network: both transports give what the in-process controller gives."""

from __future__ import annotations

import asyncio

import pytest
from hosting_kit import TRANSPORTS, Raw, cluster, eventually
from interop.quiz import QuizTask

from agentrl.errors import InfrastructureError
from agentrl.hosting.controller import Controller
from agentrl.hosting.network.remote import RemoteController
from agentrl.messages import Message
from agentrl.tasks.base import Sample


async def play(client, index):
    """All that an agent sees of one episode."""
    opening = await client.start(Sample("quiz", "std", index), seed=index)
    seen = [opening.messages, opening.tools]
    while True:
        step = await client.interact(opening.session, Message("assistant", "hello" * (index % 3)))
        seen.append(step)
        if step.done:
            await client.cancel(opening.session)
            return seen


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_episode_is_the_same_in_process_and_over_the_network(transport):
    local = Controller({"quiz": QuizTask()})
    expected = [await play(local, index) for index in range(40)]
    async with cluster(QuizTask, transport, workers=2, concurrency=3) as (controller, workers):
        async with RemoteController(f"{controller.url}/api") as client:
            assert await client.indices("quiz", "std") == list(range(200))
            found = await asyncio.gather(*(play(client, index) for index in range(40)))
        service = controller.service
        assert found == expected
        assert not service.router.sessions
        assert [len(worker.worker.sessions) for worker in workers] == [0, 0]
        episodes = [e for worker in workers for e in worker.worker.task.episodes]
        assert len(episodes) == 40 and {episode.closed for episode in episodes} == {1}
        assert service.store.counters["started", "quiz-std", ""] == 40
        assert sum(n for (kind, *_), n in service.store.counters.items() if kind == "ended") == 40


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_protocol_as_a_client_sees_it(transport):
    async with cluster(QuizTask, transport) as (controller, _), Raw(f"{controller.url}/api") as raw:
        assert (await raw.get("get_indices", name="quiz-std")) == (200, list(range(200)))
        status, answer = await raw.get("get_indices", name="none")
        assert status == 400 and answer["error"] == "unknown_task"

        session, opening = await raw.start(1)  # two rounds
        assert opening["messages"] == [{"role": "user", "content": "Question 1"}]
        assert opening["tools"][0]["function"]["name"] == "answer"
        assert (opening["finish"], opening["status"], opening["reward"]) == (False, "running", 0.0)

        status, turn = await raw.say(session, "12345")
        assert turn["messages"] == [{"role": "user", "content": "5 characters, 1 rounds left"}]
        assert "env_out" not in turn and "metric" not in turn  # flat, and renamed
        status, last = await raw.say(session, "123")
        assert last["finish"] and last["status"] == "completed" and last["messages"] == []
        assert last["reward"] == 0.25
        assert last["metrics"] == {"score": 0.005, "turns": 2, "characters": 8}
        status, answer = await raw.say(session)
        assert (status, answer["error"]) == (400, "unknown_session")

        status, answer = await raw.post("cancel", session=session)
        assert (status, answer["error"]) == (400, "unknown_session")
        session, _ = await raw.start(2)
        assert await raw.post("cancel", session=session) == (200, None)
        await eventually(lambda: not controller.service.router.sessions)


async def test_failures_have_names():
    async with cluster(QuizTask) as (controller, _), Raw(f"{controller.url}/api") as raw:
        for body, cause in (
            ({"name": "quiz-std", "index": 200}, "unknown_index"),
            ({"name": "quiz-std", "index": "1"}, "unknown_index"),
            ({"name": "quiz-std", "index": -1}, "unknown_index"),
            ({"name": "quiz", "index": 1}, "unknown_task"),
            ({"name": "quiz-std", "index": True}, "invalid"),
            ({"name": "quiz-std", "index": 1.5}, "invalid"),
            ({"index": 1}, "invalid"),
            ([], "invalid"),
        ):
            status, answer = await raw.post("start_sample", body)
            assert status in (400, 422) and answer["error"] == cause, (body, answer)
        session, _ = await raw.start(3)
        for messages in ([], None, [{"role": "user", "content": "x"}], [{"content": "x"}], ["x"]):
            status, answer = await raw.post("interact", {"messages": messages}, session)
            assert (status, answer["error"]) == (422, "invalid"), messages
        for header in ("", "x", "-1", "1" * 40, "\u0661".encode().decode("latin-1")):
            status, answer = await raw.post("interact", {"messages": []}, header)
            assert status in (400, 422), answer
        status, turn = await raw.say(session, "")  # an empty turn is a turn
        assert status == 200 and turn["messages"][0]["content"] == "0 characters, 3 rounds left"
        async with RemoteController(f"{controller.url}/api") as client:
            with pytest.raises(InfrastructureError, match=r"unknown_index.*no sample 777"):
                await client.start(Sample("quiz", "std", 777), 0)
