"""Slots, waiting, fairness, time-outs and ends of sessions, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from agentrl.hosting.failures import (
    Busy,
    CallTimeout,
    Closing,
    Full,
    QueueFull,
    Refused,
    Unreachable,
    WaitTimeout,
    WorkerFailed,
    WorkerLost,
)
from agentrl.hosting.registry import Reply, Worker
from agentrl.hosting.router import Limits, Observer, Router

pytestmark = pytest.mark.looptime


class Counts(Observer):
    def __init__(self):
        self.begun, self.causes = 0, Counter()

    def started(self, session):
        self.begun += 1

    def ended(self, session, cause, detail):
        self.causes[cause] += 1


class FakeLink:
    """A worker that takes as long as it is told, fails when it is told, and knows what it holds."""

    ends_failed = False

    def __init__(self, seconds=1.0, turns=2):
        self.seconds, self.turns = seconds, turns
        self.held: dict[int, int] = {}
        self.most = 0
        self.errors: list[Exception] = []
        self.cancelled: list[int] = []
        self.cancel_error: Exception | None = None

    async def start(self, session, request):
        self.held[session] = 0
        self.most = max(self.most, len(self.held))
        await asyncio.sleep(self.seconds)
        self._fail()
        return Reply(("opening", request))

    async def interact(self, session, turn):
        await asyncio.sleep(self.seconds)
        self._fail()
        self.held[session] += 1
        finished = self.held[session] == self.turns
        if finished:
            del self.held[session]
        return Reply(turn, finished, "completed" if finished else "running")

    def _fail(self):
        if self.errors:
            raise self.errors.pop(0)

    async def cancel(self, session):
        await asyncio.sleep(self.seconds)
        if self.cancel_error is not None:
            raise self.cancel_error
        self.held.pop(session, None)
        self.cancelled.append(session)

    async def close(self): ...


def make(*slots, limits=None, **link):
    counts = Counts()
    router = Router(limits or Limits(wait=100, start=10, call=10, cancel=10), (counts,))
    workers = [Worker(f"w{i}", "t", FakeLink(**link), n) for i, n in enumerate(slots)]
    for worker in workers:
        router.add(worker)
    return router, workers, counts


async def episode(router, client=""):
    session, _ = await router.start("t", 0, "x", client)
    for turn in range(2):
        await router.interact(session, turn)
    return session


async def settled(router, counts):
    """Nothing is left, and every start has one end."""
    await router.settle(None)
    assert not router.sessions
    assert all(not w.sessions and not w.reserved for w in router.workers.values())
    assert counts.begun == sum(counts.causes.values())


async def test_starts_wait_for_a_slot_and_no_worker_gets_more_than_it_has():
    """`-j 64` against two slots: no error."""
    router, workers, counts = make(1, 1)
    ids = await asyncio.gather(*(episode(router) for _ in range(64)))
    assert [worker.link.most for worker in workers] == [1, 1]
    assert len(set(ids)) == 64
    assert counts.causes == {"completed": 64}
    # 64 episodes of 3 s on two slots, without a gap
    assert asyncio.get_running_loop().time() == pytest.approx(96, abs=0.01)
    await settled(router, counts)


async def test_the_emptiest_worker_is_taken():
    router, workers, _ = make(2, 5)
    await asyncio.gather(*(router.start("t", 0, "x") for _ in range(5)))
    assert [len(worker.sessions) for worker in workers] == [1, 4]


async def test_clients_wait_in_turn():
    """A run of a hundred starts does not keep out one that asks for two."""
    router, _, _ = make(1, limits=Limits(wait=1000))
    order = []

    async def play(client):
        await episode(router, client)
        order.append(client)

    async with asyncio.TaskGroup() as group:
        for client in ["large"] * 20 + ["small"] * 2:
            group.create_task(play(client))
            await asyncio.sleep(0)
    assert [order.index("small"), order.count("small")] == [2, 2]
    assert order[:5] == ["large", "large", "small", "large", "small"]


async def test_a_full_queue_refuses_at_once_and_a_wait_has_an_end():
    router, workers, counts = make(1, limits=Limits(wait=5, queued=2))
    await router.start("t", 0, "x")
    waiting = [asyncio.create_task(router.start("t", 0, "x")) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(QueueFull, match="2 starts are waiting"):
        await router.start("t", 0, "x")
    for task in waiting:
        with pytest.raises(WaitTimeout, match=r"had room within 5 s"):
            await task
    assert len(router.queues["t"]) == 0
    await router.cancel(1)
    assert (await router.start("t", 0, "x"))[0] == 2
    await router.cancel(2)
    assert workers[0].link.cancelled == [1, 2]
    await settled(router, counts)


async def test_a_start_that_is_given_up_in_the_queue_takes_no_slot():
    router, _workers, counts = make(1)
    first, _ = await router.start("t", 0, "x")
    waiting = [asyncio.create_task(router.start("t", 0, "x")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    release = asyncio.create_task(router.cancel(first))
    await asyncio.sleep(1.0)  # the slot has just been handed to the second
    waiting[1].cancel()
    await release
    session, _ = await waiting[2]
    await router.cancel(session)
    assert [task.cancelled() for task in waiting] == [True, True, False]
    await settled(router, counts)


@pytest.mark.parametrize("moment", [0.0, 0.5])
async def test_a_client_that_goes_away_during_its_start_leaves_nothing(moment):
    router, workers, counts = make(1)
    start = asyncio.create_task(router.start("t", 0, "x"))
    await asyncio.sleep(moment)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await settled(router, counts)
    assert workers[0].link.held == {}


async def test_a_call_that_takes_too_long_ends_its_session_there_too():
    router, workers, counts = make(1, seconds=1.0)
    session, _ = await router.start("t", 0, "x")
    workers[0].link.seconds = 50
    with pytest.raises(CallTimeout, match=r"w0 did not answer within 10 s"):
        await router.interact(session, 0)
    workers[0].link.seconds = 1
    with pytest.raises(KeyError):
        await router.interact(session, 0)
    await settled(router, counts)
    assert workers[0].link.cancelled == [session] and counts.causes == {"call_timeout": 1}


async def test_a_start_that_takes_too_long_is_cancelled_at_the_worker():
    """The reference leaves it running there."""
    router, workers, counts = make(1, seconds=9.0, limits=Limits(start=8, cancel=10))
    with pytest.raises(CallTimeout):
        await router.start("t", 0, "x")
    await settled(router, counts)
    assert workers[0].link.held == {} and workers[0].free == 1


async def test_a_worker_without_room_after_all_is_passed_over():
    """The 406 race: the other one gets it, and the first is compared before it gets more."""
    router, workers, counts = make(3, 1)
    workers[0].link.errors = [Full("no room")]
    session, _ = await router.start("t", 0, "x")
    assert router.sessions[session].worker is workers[1]
    assert workers[0].doubtful and workers[0].free == 0
    assert counts.causes == {"worker_full": 1} and counts.begun == 2


async def test_a_worker_that_cannot_be_reached_is_passed_over():
    router, workers, _ = make(3, 1)
    workers[0].link.errors = [Unreachable("connection refused")]
    session, _ = await router.start("t", 0, "x")
    assert router.sessions[session].worker is workers[1] and workers[0].silent


async def test_refused_turns_leave_the_session_as_it_was():
    router, workers, counts = make(1)
    session, _ = await router.start("t", 0, "x")
    workers[0].link.errors = [Refused("not a message")]
    with pytest.raises(Refused):
        await router.interact(session, 0)
    call = asyncio.create_task(router.interact(session, 0))
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await router.interact(session, 1)
    await call
    await router.interact(session, 2)
    assert counts.causes == {"completed": 1}
    await settled(router, counts)


async def test_a_failed_turn_ends_the_session():
    router, workers, counts = make(1)
    session, _ = await router.start("t", 0, "x")
    workers[0].link.errors = [WorkerFailed("500")]
    with pytest.raises(WorkerFailed):
        await router.interact(session, 0)
    await settled(router, counts)
    assert workers[0].link.held == {}


async def test_a_lost_worker_ends_its_calls_at_once_and_others_take_over():
    router, workers, counts = make(2, 0, seconds=1.0)
    session, _ = await router.start("t", 0, "x")
    idle, _ = await router.start("t", 0, "x")
    workers[0].link.seconds = 9.0
    call = asyncio.create_task(router.interact(session, 0))
    waiting = asyncio.create_task(router.start("t", 0, "x"))
    await asyncio.sleep(0.5)
    began = asyncio.get_running_loop().time()
    router.remove(workers[0], WorkerLost("silent for a minute"))
    with pytest.raises(WorkerLost, match="silent for a minute"):
        await call
    assert asyncio.get_running_loop().time() - began < 0.1
    assert idle not in router.sessions and counts.causes == {"worker_lost": 2}
    workers[1].capacity = 1
    router.pump("t")
    third, _ = await waiting
    assert router.sessions[third].worker is workers[1]


async def test_a_cancel_that_the_worker_does_not_carry_out_keeps_the_slot_taken():
    """Pitfall of the real worker: an escaped cancel answers 500 and its slot is never free."""
    router, workers, counts = make(2)
    session, _ = await router.start("t", 0, "x")
    workers[0].link.cancel_error = WorkerFailed("500")
    await router.cancel(session)
    assert workers[0].stuck == {session} and workers[0].free == 1
    assert not router.sessions and counts.causes == {"cancelled": 1}
    other, _ = await router.start("t", 0, "x")
    assert other != session and workers[0].free == 0


async def test_cancel_is_for_once_and_for_all():
    router, workers, counts = make(1)
    session, _ = await router.start("t", 0, "x")
    call = asyncio.create_task(router.interact(session, 0))
    await asyncio.sleep(0)
    cancels = [router.cancel(session) for _ in range(3)]
    with pytest.raises(KeyError):
        await router.interact(session, 1)
    await asyncio.gather(call, *cancels)
    await router.cancel(99)
    assert workers[0].link.cancelled == [session] and counts.causes == {"cancelled": 1}
    await settled(router, counts)


async def test_drained_and_silent_workers_get_nothing_new_and_keep_what_they_have():
    router, workers, _counts = make(5)
    session, _ = await router.start("t", 0, "x")
    workers[0].drained = True
    waiting = asyncio.create_task(router.start("t", 0, "x"))
    await asyncio.sleep(1)
    assert not waiting.done() and len(workers[0].sessions) == 1
    await router.interact(session, 0)
    workers[0].drained = False
    router.pump("t")
    await waiting


async def test_closing_refuses_what_waits_and_ends_what_lives():
    router, workers, counts = make(1)
    await router.start("t", 0, "x")
    waiting = asyncio.create_task(router.start("t", 0, "x"))
    await asyncio.sleep(0)
    await router.close()
    with pytest.raises(Closing):
        await waiting
    with pytest.raises(Closing):
        await router.start("t", 0, "x")
    await settled(router, counts)
    assert workers[0].link.held == {}


async def test_calls_dropped_at_random_leak_nothing():
    """One call in ten breaks, with each kind of failure; a virtual hour of it."""
    from random import Random

    draw = Random(7)
    router, workers, counts = make(4, 4, limits=Limits(wait=500, start=10, call=10, cancel=10))
    kinds = (WorkerLost, WorkerFailed, Unreachable)

    class Dropping(FakeLink):
        def _fail(self):
            if draw.random() < 0.1:
                raise draw.choice(kinds)("dropped")

    for worker in workers:
        worker.link = Dropping()

    async def play():
        try:
            await episode(router)
        except (WorkerLost, WorkerFailed, KeyError):
            return 0
        return 1

    async def heartbeats():
        while True:
            await asyncio.sleep(8)
            for worker in workers:
                worker.silent = False
            router.pump("t")

    beating = asyncio.create_task(heartbeats())
    won = sum(await asyncio.gather(*(play() for _ in range(500))))
    beating.cancel()
    await settled(router, counts)
    assert counts.causes["completed"] == won > 300
    assert all(not w.link.held and not w.stuck for w in workers)
