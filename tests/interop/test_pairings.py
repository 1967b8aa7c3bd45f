"""Our controller between our and the real worker, over both transports, and our and the real client.

Two hundred samples each: rewards, scores, metrics and statuses are equal, and are those of the rules.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from hosting_kit import (
    TRANSPORTS,
    NetworkWorker,
    controller_settings,
    eventually,
    ready,
    where,
    worker_settings,
)
from interop.quiz import QuizTask

from agentrl.hosting.network.controller import NetworkController
from agentrl.hosting.network.remote import RemoteController
from agentrl.messages import Message
from agentrl.tasks.base import Sample

SAID = "Are you done?"
"""What the dummy model of agentrl-eval says, always."""
STATUS = {7: "task limit reached", 8: "agent invalid action"}


def expected(index):
    """By the rules of the quiz: status, reward, score, turns, characters."""
    rounds = 1 + index % 4
    status = STATUS.get(index % 10, "completed")
    return status, (index % 5) / 4, index / 200, rounds, rounds * len(SAID)


@asynccontextmanager
async def served(official, who, transport):
    """A controller with two workers of 16 slots."""
    async with NetworkController(controller_settings()) as controller:
        if who == "theirs":
            target = where(controller, transport)
            async with official.worker(target), official.worker(target):
                await ready(controller, 2)
                yield controller
        else:
            settings = worker_settings(controller, transport, concurrency=16)
            async with (
                NetworkWorker(QuizTask(), "std", settings),
                NetworkWorker(QuizTask(), "std", settings),
            ):
                await ready(controller, 2)
                yield controller


async def our_client(controller):
    """Forty agents at once, more than there are slots."""
    found = {}
    room = asyncio.Semaphore(40)

    async def play(client, index):
        async with room:
            opening = await client.start(Sample("quiz", "std", index), seed=0)
            while not (
                step := await client.interact(opening.session, Message("assistant", SAID))
            ).done:
                pass
            metrics = dict(step.metrics)
            found[index] = (
                *(str(step.status), step.reward, metrics.pop("score")),
                *(metrics.pop("turns"), metrics.pop("characters")),
            )
            assert not metrics

    async with RemoteController(f"{controller.url}/api") as client:
        await asyncio.gather(*(play(client, index) for index in range(200)))
    return found


async def their_client(official, controller):
    rows, _ = await official.evaluate(
        controller.url, "--client", "dummy", "--dummy-interval", "0", "-j", "40", "quiz-std"
    )
    found = {}
    for (_, index, _), row in rows.items():
        metrics = json.loads(row["metrics"])
        found[index] = (
            *(row["status"], row["metric_reward"], row["metric_score"]),
            *(metrics.pop("turns"), metrics.pop("characters")),
        )
        assert not metrics
        assert row["metric_success_rate"] == float(row["metric_reward"] == 1.0)
    return found


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("worker", ["ours", "theirs"])
@pytest.mark.parametrize("client", ["ours", "theirs"])
async def test_two_hundred_samples(official, worker, client, transport):
    async with served(official, worker, transport) as controller:
        found = await (
            our_client(controller) if client == "ours" else their_client(official, controller)
        )
        assert found == {index: expected(index) for index in range(200)}
        service = controller.service
        await eventually(lambda: not service.router.sessions)
        counters = service.store.counters
        assert counters["started", "quiz-std", ""] == 200
        ended = {cause: n for (kind, _, cause), n in counters.items() if kind == "ended"}
        assert ended == {
            "completed": 160,
            "task limit reached": 20,
            "agent invalid action": 20,
        }
        print(f"{worker} worker over {transport}, {client} client: 200 samples, 0 differences")
