"""What breaks, what the client sees of it, and that no slot, session or episode is left over."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import pytest
from hosting_kit import (
    PATIENCE,
    TRANSPORTS,
    NetworkWorker,
    Raw,
    cluster,
    controller_settings,
    eventually,
    ready,
    where,
    worker_settings,
)
from integration.hosting_process import process
from interop.quiz import QuizEpisode, QuizTask

from agentrl.hosting.network.controller import NetworkController
from agentrl.hosting.network.settings import WorkerSettings

QUICK = {"silent_after": 1.5, "lost_after": 4.0, "sync": 0.5, "sync_call": 2.0}
"""Timers of a controller in seconds; its workers send a heartbeat each half second."""


def clean(controller):
    """Every start has an end, and no worker holds anything."""
    service = controller.service
    counters = service.store.counters
    started = sum(n for (kind, *_), n in counters.items() if kind == "started")
    ended = sum(n for (kind, *_), n in counters.items() if kind == "ended")
    return (
        not service.router.sessions
        and started == ended
        and all(not w.used and not w.doubtful for w in service.router.workers.values())
    )


def causes(controller):
    counters = controller.service.store.counters
    return {cause: n for (kind, _, cause), n in counters.items() if kind == "ended"}


def closed_once(task):
    return {episode.closed for episode in task.episodes} == {1}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_killed(transport):
    """SIGKILL in mid-session: the call fails at once (HTTP) or when the worker is given up (gRPC)."""
    async with (
        NetworkController(controller_settings(**QUICK)) as controller,
        process("worker", controller=where(controller, transport), port=0, heartbeat=0.5) as worker,
        Raw(f"{controller.url}/api") as raw,
    ):
        await ready(controller, 1)
        sessions = [(await raw.start(3))[0] for _ in range(3)]
        worker.send_signal(signal.SIGKILL)
        await worker.wait()
        status, answer = await raw.say(sessions[0])
        assert (status, answer["error"]) == (502, "worker_lost")
        await eventually(lambda: not controller.service.router.workers)
        assert clean(controller) and causes(controller) == {"worker_lost": 3}
        status, answer = await raw.say(sessions[1])
        assert (status, answer["error"]) == (400, "unknown_session")


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_stopped_and_continued(transport):
    """SIGSTOP: calls end when the worker is given up. SIGCONT: it is back, with all its slots free."""
    async with (
        NetworkController(controller_settings(**QUICK)) as controller,
        process(
            "worker", controller=where(controller, transport), port=0, heartbeat=0.5, retry=0.2
        ) as worker,
        Raw(f"{controller.url}/api") as raw,
    ):
        await ready(controller, 1)
        sessions = [(await raw.start(3))[0] for _ in range(3)]
        worker.send_signal(signal.SIGSTOP)
        status, answer = await raw.say(sessions[0])
        assert (status, answer["error"]) == (502, "worker_lost")
        assert causes(controller) == {"worker_lost": 3}
        worker.send_signal(signal.SIGCONT)
        await ready(controller, 1)
        await eventually(lambda: clean(controller))
        session, _ = await raw.start(0)
        assert (await raw.say(session))[1]["finish"]
        (known,) = controller.service.router.workers.values()
        assert await known.link.sessions(20) == {}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_restarted_controller(transport, tmp_path):
    """Live sessions go on with the next controller, under their ids; new ids are new."""
    settings = controller_settings(state=tmp_path / "state.sqlite")
    task = QuizTask()
    async with AsyncExitStack() as stack:
        first = NetworkController(settings)
        await first.__aenter__()
        again = settings.model_copy(update={"port": first._http.port, "grpc_port": first.grpc_port})
        one = worker_settings(first, transport, heartbeat=0.5, concurrency=8)
        worker = await stack.enter_async_context(NetworkWorker(task, "std", one))
        raw = await stack.enter_async_context(Raw(f"{first.url}/api"))
        await ready(first, 1)
        kept, _ = await raw.start(3)
        await raw.say(kept, "123")
        other, _ = await raw.start(2)
        await raw.post("cancel", session=other)
        await eventually(lambda: len(first.service.router.sessions) == 1)
        await first.__aexit__(None, None, None)
        assert set(worker.worker.sessions) == {kept}

        second = await stack.enter_async_context(NetworkController(again))
        turns = [await raw.say(kept, text) for text in ("12", "1", "")]
        assert [status for status, _ in turns] == [200, 200, 200]
        assert turns[-1][1]["metrics"]["characters"] == 6
        await ready(second, 1)
        new, _ = await raw.start(0)
        assert new > max(kept, other)
        await raw.say(new)
        assert clean(second)
        assert second.service.store.counters["started", "quiz-std", ""] == 3
    assert closed_once(task)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_controller_that_was_killed(transport, tmp_path):
    """SIGKILL: what its file did not say yet is found at the worker."""
    from interop.conftest import free_port

    ports = {"port": free_port(), "grpc_port": free_port()}
    settings = {**ports, "state": str(tmp_path / "state.sqlite"), "sync": 0.5}
    url = f"http://127.0.0.1:{ports['port']}"
    target = f"grpc://127.0.0.1:{ports['grpc_port']}" if transport == "grpc" else f"{url}/api"
    task = QuizTask()
    one = WorkerSettings(controller=target, port=0, heartbeat=0.5, retry=0.2)
    async with NetworkWorker(task, "std", one) as worker, Raw(f"{url}/api") as raw:
        async with process("controller", **settings) as first:
            async with asyncio.timeout(PATIENCE):
                while (await raw.get("get_indices", name="quiz-std"))[0] != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            sessions = [(await raw.start(3))[0] for _ in range(5)]
            first.send_signal(signal.SIGKILL)
            await first.wait()
        async with NetworkController(controller_settings(**settings)) as second:
            await eventually(lambda: len(second.service.router.sessions) == 5)
            await ready(second, 1)
            new, _ = await raw.start(0)
            assert new > max(sessions)
            for session in [*sessions, new]:
                while not (await raw.say(session))[1]["finish"]:
                    pass
            await eventually(lambda: clean(second) or not worker.worker.sessions)
            assert not second.service.router.sessions and not worker.worker.sessions
    assert closed_once(task) and len(task.episodes) == 6


class SlowEpisode(QuizEpisode):
    async def step(self, message):
        import time

        if message.content == "block":
            time.sleep(3)  # noqa: ASYNC251 (as bad a task as there is)
        elif message.content == "hang":
            await asyncio.sleep(1000)
        elif message.content == "deaf":
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                await asyncio.sleep(1)
        elif message.content == "escape":
            raise Escape("as the real worker's cancel does")
        elif message.content == "exit":
            raise SystemExit(3)
        elif message.content == "raise":
            raise ValueError("broken")
        return await super().step(message)


class Escape(BaseException):
    pass


class SlowTask(QuizTask):
    async def start(self, sample, seed):
        self.episodes.append(SlowEpisode(self, sample.index))
        return self.episodes[-1]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_slow_worker(transport):
    """A turn that takes too long: 504, the episode is cancelled and closed, the slot is free."""
    settings = controller_settings(call=1.0)
    async with (
        cluster(SlowTask, transport, settings=settings) as (controller, (worker,)),
        Raw(f"{controller.url}/api") as raw,
    ):
        for text in ("hang", "deaf"):
            session, _ = await raw.start(3)
            status, answer = await raw.say(session, text)
            assert (status, answer["error"]) == (504, "call_timeout")
            await eventually(lambda: clean(controller) and not worker.worker.sessions)
        assert causes(controller) == {"call_timeout": 2} and closed_once(worker.worker.task)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_task_that_blocks_holds_up_no_heartbeat(transport):
    """Three seconds in blocking code: the worker is never silent, its status is told meanwhile."""
    settings = controller_settings(silent_after=1.5, lost_after=2.5)
    async with (
        cluster(SlowTask, transport, settings=settings, heartbeat=0.2) as (controller, _),
        Raw(f"{controller.url}/api") as raw,
    ):
        session, _ = await raw.start(3)
        turn = asyncio.create_task(raw.say(session, "block"))
        (known,) = controller.service.router.workers.values()
        while not turn.done():
            assert not known.silent
            assert await known.link.sessions(20) == {session: 3}
        assert (await turn)[0] == 200


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("text", ["escape", "exit", "raise"])
async def test_whatever_a_task_raises_costs_one_episode(transport, text):
    async with (
        cluster(SlowTask, transport) as (controller, (worker,)),
        Raw(f"{controller.url}/api") as raw,
    ):
        healthy, _ = await raw.start(1)
        session, _ = await raw.start(3)
        status, answer = await raw.say(session, text)
        assert (status, answer["status"], answer["reward"]) == (200, "task error", 0.0)
        assert set(worker.worker.sessions) == {healthy}
        await raw.say(healthy)
        assert (await raw.say(healthy))[1]["status"] == "completed"
        assert clean(controller) and closed_once(worker.worker.task)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_cancel_in_mid_turn(transport):
    """The turn ends as cancelled; a second cancel and one of an unknown session change nothing."""
    async with (
        cluster(SlowTask, transport) as (controller, (worker,)),
        Raw(f"{controller.url}/api") as raw,
    ):
        session, _ = await raw.start(3)
        turn = asyncio.create_task(raw.say(session, "hang"))
        await eventually(lambda: worker.worker.sessions[session].work is not None)
        assert await raw.post("cancel", session=session) == (200, None)
        status, answer = await turn
        assert (status, answer["status"]) == (200, "cancelled")
        await eventually(lambda: clean(controller))
        assert (await raw.post("cancel", session=session))[0] == 400
        assert closed_once(worker.worker.task)


async def test_cancel_with_notice():
    """As another controller asks for it: answered at once, the notice follows and frees the slot."""
    async with (
        cluster(SlowTask) as (controller, (worker,)),
        Raw(f"{controller.url}/api") as raw,
        Raw(worker.address) as direct,
    ):
        session, _ = await raw.start(3)
        assert (await direct.get("worker_status"))[1] == {"concurrency": 16, "current": 1}
        status, answer = await direct.post("sample_status", {"session_id": session})
        assert status == 200 and answer["status"]["waiting_for_agent"] is True
        status, answer = await direct.post("cancel_with_notice", {"session_id": session})
        assert (status, answer) == (200, {"session_id": session})
        await eventually(lambda: clean(controller))
        assert causes(controller) == {"cancelled": 1}
        sessions = [(await raw.start(2))[0] for _ in range(3)]
        assert await direct.post("cancel_all_with_notice") == (200, None)
        await eventually(lambda: clean(controller))
        assert (await direct.get("worker_status"))[1]["current"] == 0
        status, answer = await direct.post("cancel", {"session_id": sessions[0]})
        assert status == 400 and "No such session" in answer["detail"]


async def test_registered_twice():
    """The same again changes nothing; other samples are refused; another task at the same address ends
    the sessions of the first; a restarted worker's old sessions end."""
    async with (
        cluster(QuizTask) as (controller, (worker,)),
        Raw(f"{controller.url}/api") as raw,
    ):
        session, _ = await raw.start(3)
        beat = {
            "name": "quiz-std",
            "address": worker.address,
            "concurrency": 16,
            "indices": list(range(200)),
            "instance": worker.worker.instance,
        }
        known = controller.service.router.workers
        for _ in range(5):
            assert await raw.post("receive_heartbeat", beat) == (200, None)
        assert len(known) == 1 and session in controller.service.router.sessions
        second = {**beat, "address": "http://127.0.0.1:9/api", "indices": [1, 2]}
        status, answer = await raw.post("receive_heartbeat", second)
        assert (status, answer["error"]) == (400, "refused_heartbeat")
        assert (await raw.say(session))[0] == 200
        status, _ = await raw.post("receive_heartbeat", {**beat, "name": "other-std"})
        assert status == 200 and [w.task for w in known.values()] == ["other-std"]
        assert (await raw.say(session))[1]["error"] == "unknown_session"
        assert causes(controller) == {"worker_lost": 1}
        # what the worker still holds of it is cleared away
        await eventually(lambda: not worker.worker.sessions)


async def test_a_worker_that_was_restarted_at_its_address():
    async with NetworkController(controller_settings()) as controller:
        settings = worker_settings(controller, "http")
        async with Raw(f"{controller.url}/api") as raw:
            async with NetworkWorker(QuizTask(), "std", settings) as first:
                await ready(controller, 1)
                port = first._http.port
                session, _ = await raw.start(3)
                first.worker.sessions.clear()  # as if it had died
            again = settings.model_copy(update={"port": port})
            async with NetworkWorker(QuizTask(), "std", again):
                await eventually(lambda: clean(controller))
                assert causes(controller) == {"session_lost": 1}
                assert (await raw.say(session))[1]["error"] == "unknown_session"


async def test_clock_jump(monkeypatch):
    """A day forth and two back: nothing ends, everything goes on."""
    import time

    real = time.time
    async with (
        cluster(QuizTask, settings=controller_settings(idle=60, **QUICK), heartbeat=0.2) as (
            controller,
            _,
        ),
        Raw(f"{controller.url}/api") as raw,
    ):
        session, _ = await raw.start(3)
        for jump in (86_400, -172_800):
            monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
            controller.service.directory.tick()
            assert session in controller.service.router.sessions
            assert (await raw.say(session))[0] == 200
            assert (await raw.get("list_sessions"))[0] == 200
        assert causes(controller) == {}


async def test_idle_sessions_end_and_renewed_ones_do_not():
    async with (
        cluster(QuizTask, settings=controller_settings(idle=2.0)) as (controller, (worker,)),
        Raw(f"{controller.url}/api") as raw,
    ):
        kept, _ = await raw.start(3)
        left, _ = await raw.start(3)
        while left in controller.service.router.sessions:
            status, answer = await raw.post("renew", {"sessions": [kept, 5]})
            assert (status, answer) == (200, {"unknown": [5]})
            await asyncio.sleep(0.2)
        assert kept in controller.service.router.sessions
        await eventually(lambda: set(worker.worker.sessions) == {kept})
        assert causes(controller) == {"idle": 1}


async def test_a_client_that_hangs_up_while_its_start_waits():
    async with cluster(QuizTask, concurrency=1) as (controller, (worker,)):
        router = controller.service.router
        async with Raw(f"{controller.url}/api") as raw:
            session, _ = await raw.start(3)
            async with Raw(f"{controller.url}/api") as impatient:
                starts = [asyncio.create_task(impatient.start(3)) for _ in range(3)]
                await eventually(lambda: len(router.queues["quiz-std"]) == 3)
                for start in starts:
                    start.cancel()
            await eventually(lambda: len(router.queues["quiz-std"]) == 0)
            await raw.post("cancel", session=session)
            await eventually(lambda: clean(controller))
            assert len(worker.worker.task.episodes) == 1


@asynccontextmanager
async def dropping(port, draw, share):
    """A TCP proxy to `port` that breaks the connection instead of passing on `share` of the packets."""
    dropped = 0

    async def relay(reader, writer, other):
        nonlocal dropped
        try:
            while data := await reader.read(1 << 16):
                if draw.random() < share:
                    dropped += 1
                    break
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()
        other.close()

    async def accept(reader, writer):
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(relay(reader, back, writer), relay(there, writer, back))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], lambda: dropped
    finally:
        server.close()


async def test_one_call_in_ten_is_dropped():
    """Between controller and worker, either way: the client gets 502 and its session has ended."""
    settings = controller_settings(**{**QUICK, "lost_after": 60})
    task = QuizTask()
    async with NetworkController(settings) as controller:
        from interop.conftest import free_port

        port = free_port()
        async with dropping(port, Random(5), 0.05) as (front, dropped):
            one = worker_settings(
                controller,
                "http",
                port=port,
                address=f"http://127.0.0.1:{front}/api",
                heartbeat=0.3,
                concurrency=8,
            )
            async with (
                NetworkWorker(task, "std", one) as worker,
                Raw(f"{controller.url}/api") as raw,
            ):
                await eventually(lambda: controller.service.router.workers)
                seen = {200: 0, 502: 0, 503: 0}

                async def play(index):
                    async with raw.session.post(
                        f"{raw.url}/start_sample", json={"name": "quiz-std", "index": index}
                    ) as response:
                        status, answer = response.status, await response.json()
                        session = response.headers.get("session_id")
                    while status == 200 and not answer["finish"]:
                        status, answer = await raw.say(session)
                    seen[status] += 1

                await asyncio.gather(*(play(index) for index in range(150)))
                assert sum(seen.values()) == 150 and seen[200] > 60 and dropped() > 5, seen
                await eventually(lambda: clean(controller) and not worker.worker.sessions)
    assert closed_once(task)
