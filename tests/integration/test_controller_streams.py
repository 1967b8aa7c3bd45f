"""Streams of workers that behave badly, tokens, TLS; and bodies that nobody would send."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import grpc
import pytest
import trustme
from hosting_kit import (
    TRANSPORTS,
    NetworkWorker,
    Raw,
    controller_settings,
    eventually,
    ready,
    worker_settings,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from interop.quiz import QuizTask

from agentrl.errors import InfrastructureError
from agentrl.hosting.network import envelope as pb
from agentrl.hosting.network.controller import NetworkController
from agentrl.hosting.network.remote import RemoteController
from agentrl.hosting.network.server import make_app
from agentrl.hosting.network.service import ControllerService
from agentrl.hosting.network.settings import WorkerSettings
from agentrl.hosting.network.worker import TaskWorker
from agentrl.hosting.network.worker_http import WorkerApp
from agentrl.messages import Message
from agentrl.tasks.base import Sample

TOKEN = "a-token-of-sixteen"


@asynccontextmanager
async def served():
    async with (
        NetworkController(controller_settings()) as controller,
        Raw(f"{controller.url}/api") as raw,
    ):
        yield controller, raw


class Stream:
    """One stream of a worker that a test plays itself."""

    def __init__(self, controller, worker_id="w", held=None):
        self.held = {} if held is None else held
        self.id, self.known = worker_id, controller.service.router.workers
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{controller.grpc_port}")
        call = self.channel.stream_stream(
            f"/{pb.SERVICE}/{pb.METHOD}",
            request_serializer=pb.Envelope.SerializeToString,
            response_deserializer=pb.Envelope.FromString,
        )
        self.stream = call()

    async def beat(self, indices=(0, 1)):
        await self.stream.write(pb.heartbeat(self.id, "quiz-std", 4, list(indices)))
        await eventually(lambda: f"grpc://{self.id}" in self.known)

    async def asked(self, endpoint):
        """The next call of `endpoint`; comparisons before it are answered with what is held."""
        while True:
            message = await self.stream.read()
            assert message is not grpc.aio.EOF
            wanted = message.worker_request
            if wanted.endpoint == "start_sample":
                body = json.loads(wanted.json)
                self.held[str(body["session_id"])] = body["index"]
            if wanted.endpoint == endpoint:
                return message
            if wanted.endpoint == "get_sessions":
                await self.say(message, json.dumps(self.held).encode())

    async def say(self, asked, body, code=200):
        await self.stream.write(pb.response(asked.id, code, body))

    async def close(self):
        self.stream.cancel()
        await self.channel.close()


OPENING = json.dumps(
    {"messages": [{"role": "user", "content": "go"}], "status": "running"}
).encode()


def turn(text, **more):
    inner = {"messages": [{"role": "user", "content": text}], "status": "running", **more}
    return json.dumps({"session_id": 1, "env_out": inner}).encode()


async def test_answers_belong_to_calls_on_whatever_stream_and_however_often():
    """A late answer on a new stream, before its heartbeat; twice; and answers out of order."""
    async with served() as (controller, raw):
        first = Stream(controller)
        await first.beat()
        start = asyncio.create_task(raw.start(0))
        asked = await first.asked("start_sample")
        await first.close()
        (worker,) = controller.service.router.workers.values()
        await eventually(lambda: worker.silent)
        second = Stream(controller, held=first.held)
        for _ in range(3):
            await second.say(asked, OPENING)
        session, answer = await start
        assert answer["messages"][0]["content"] == "go"
        await second.say(asked, b"nonsense")
        await second.stream.write(pb.response("never asked", 200, b"{}"))

        # a call that is made while there is no stream is written on the next one
        call = asyncio.create_task(raw.say(session))
        await eventually(lambda: controller.service.router.sessions[session].busy)
        await second.beat()
        heard = await second.asked("interact")
        assert json.loads(heard.worker_request.json)["session_id"] == session
        await second.say(heard, turn("one"))
        assert (await call)[1]["messages"][0]["content"] == "one"

        # out of order
        starting = asyncio.create_task(raw.start(1))
        await second.say(await second.asked("start_sample"), OPENING)
        other, _ = await starting
        calls = [asyncio.create_task(raw.say(s)) for s in (session, other)]
        heard = {}
        for _ in calls:
            message = await second.asked("interact")
            heard[json.loads(message.worker_request.json)["session_id"]] = message
        await second.say(heard[other], turn("other"))
        await second.say(heard[session], turn("first"))
        texts = [(await call)[1]["messages"][0]["content"] for call in calls]
        assert texts == ["first", "other"]
        await second.close()


async def test_bad_answers_end_one_session_each():
    """No JSON, no messages, an error code, a refused turn: the worker's others go on."""
    async with served() as (controller, raw):
        stream = Stream(controller)
        await stream.beat()
        for body, code, status, cause in (
            (b"\xff", 200, 502, "worker_failed"),
            (turn("x").replace(b"messages", b"massages"), 200, 502, "worker_failed"),
            (b"", 500, 502, "worker_failed"),
            (b'{"detail": "No such session"}', 400, 502, "session_lost"),
            (b'{"detail": "not a message"}', 422, 422, "refused"),
        ):
            starting = asyncio.create_task(raw.start(0))
            await stream.say(await stream.asked("start_sample"), OPENING)
            session, _ = await starting
            call = asyncio.create_task(raw.say(session))
            await stream.say(await stream.asked("interact"), body, code)
            answered, answer = await call
            assert (answered, answer["error"]) == (status, cause)
            if cause == "refused":
                await raw.post("cancel", session=session)
            cancelled = await stream.asked("cancel")
            stream.held.clear()
            await stream.say(cancelled, b"{}")
        await eventually(lambda: not controller.service.router.sessions)
        await stream.close()


async def test_a_stream_of_garbage_ends_and_nothing_else():
    limits = controller_settings(max_message=100_000)
    async with NetworkController(limits) as controller:
        good = worker_settings(controller, "grpc")
        async with NetworkWorker(QuizTask(), "std", good), Raw(f"{controller.url}/api") as raw:
            await ready(controller, 1)
            for content in (b"\xff" * 100, b"", b"\x0a\xff", b"\x0a" + b"x" * 200_000):
                async with grpc.aio.insecure_channel(
                    f"127.0.0.1:{controller.grpc_port}"
                ) as channel:
                    stream = channel.stream_stream(f"/{pb.SERVICE}/{pb.METHOD}")()
                    try:
                        await stream.write(content)
                        await stream.done_writing()
                        await stream.read()
                    except grpc.aio.AioRpcError as error:
                        assert error.code() is not grpc.StatusCode.UNAVAILABLE, error
            session, _ = await raw.start(0)
            assert (await raw.say(session))[1]["finish"]
            status, answer = await raw.post("interact", data=b"x" * 100_001, session=session)
            assert (status, answer["error"]) == (413, "message_too_long")


async def test_only_the_endpoints_of_the_table_can_be_called():
    """The real worker looks up any attribute."""
    worker = TaskWorker(QuizTask(), "std", WorkerSettings())
    for name in ("heart_beat", "call", "close", "/start_sample", "__init__", "stop_all", ""):
        assert (await worker.call(name, b"{}"))[0] == 404
    assert (await worker.call("get_sessions", b""))[0] == 200
    await worker.close(10)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_token_and_tls(transport, tmp_path):
    """All that is said is encrypted and known; without the token nobody gets anything."""
    ca = trustme.CA()
    certificate = ca.issue_cert("127.0.0.1")
    paths = {name: tmp_path / f"{name}.pem" for name in ("ca", "certificate", "private_key")}
    ca.cert_pem.write_to_path(paths["ca"])
    certificate.private_key_pem.write_to_path(paths["private_key"])
    certificate.cert_chain_pems[0].write_to_path(paths["certificate"])
    async with NetworkController(controller_settings(token=TOKEN, **paths)) as controller:
        assert controller.url.startswith("https://")
        target = f"grpcs://127.0.0.1:{controller.grpc_port}"
        if transport == "http":
            target = f"{controller.url}/api"
        given = {"controller": target, "port": 0, "retry": 0.1, **paths}
        async with (
            NetworkWorker(QuizTask(), "std", WorkerSettings(**given)),  # no token
            NetworkWorker(QuizTask(), "std", WorkerSettings(token=TOKEN, **given)) as worker,
        ):
            await ready(controller, 1)
            url = f"{controller.url}/api"
            async with RemoteController(url, token=TOKEN, ca=paths["ca"]) as client:
                opening = await client.start(Sample("quiz", "std", 0), 0)
                step = await client.interact(opening.session, Message("assistant", "x"))
                assert step.done and step.status == "completed"
            async with RemoteController(url, token="wrong", ca=paths["ca"]) as client:
                with pytest.raises(InfrastructureError, match="unauthorized"):
                    await client.start(Sample("quiz", "std", 0), 0)
            async with RemoteController(url, token=TOKEN) as client:
                with pytest.raises(InfrastructureError, match=r"(?i)certificate"):
                    await client.start(Sample("quiz", "std", 0), 0)
            assert len(worker.worker.task.episodes) == 1
            (known,) = controller.service.router.workers.values()
            assert known.key.startswith("https://" if transport == "http" else "grpc://")


PATHS = (
    *("get_indices", "start_sample", "interact", "cancel", "renew", "calculate_overall"),
    *("receive_heartbeat", "cancel_notice", "list_workers", "list_sessions", "mark_stale"),
    *("cancel_all", "sync_all", "clean_worker", "version", "overview", "transcript", "nothing"),
)
WORKER_PATHS = (
    *("start_sample", "interact", "cancel", "cancel_with_notice", "sample_status"),
    *("calculate_overall", "get_sessions", "worker_status", "nothing", "../api/cancel"),
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["quiz-std", "http://127.0.0.1:9/api", "assistant", "running"])
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("name", "index", "custom_task", "seed", "messages", "role", "content"),
                    *("session_id", "address", "concurrency", "indices", "sessions", "worker_id"),
                    *("stale", "results", "tool_calls", "function", "instance"),
                ]
            )
            | st.text(max_size=4),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)
BODIES = st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode())
HEADERS = st.one_of(
    st.just(b"1"), st.binary(max_size=12).map(lambda b: b.replace(b"\r", b"").replace(b"\n", b""))
)


async def ask(app, method, path, body, session):
    """Status and body of one request, without a socket."""
    sent, parts = [], [{"type": "http.request", "body": body, "more_body": False}]
    hung_up = asyncio.Event()

    async def receive():
        if parts:
            return parts.pop()
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"session_id", session)],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


CASES = st.lists(
    st.tuples(st.sampled_from(["GET", "POST"]), st.sampled_from(PATHS), BODIES, HEADERS),
    min_size=1,
    max_size=30,
)


@given(CASES)
@settings(max_examples=60)
def test_no_request_breaks_the_controller(cases):
    """Whatever is sent, the answer is JSON and says whose fault it was: never a 500."""

    async def run():
        service = ControllerService(
            controller_settings(wait=0.05, start=0.5, call=0.5, sync_call=0.5)
        )
        await service.open(lambda key: None)
        app = make_app(service)
        for method, path, body, session in cases:
            status, answer = await ask(app, method, f"/api/{path}", body, session)
            assert status < 500 or status == 503, (path, body, answer)
            json.loads(answer)
            assert not service.router.sessions
        await service.close()

    asyncio.run(run())


@given(
    st.lists(
        st.tuples(st.sampled_from(["GET", "POST"]), st.sampled_from(WORKER_PATHS), BODIES),
        min_size=1,
        max_size=30,
    )
)
@settings(max_examples=60)
def test_no_request_breaks_a_worker(cases):
    async def run():
        worker = TaskWorker(QuizTask(), "std", WorkerSettings(concurrency=3))
        app = WorkerApp(worker)
        for method, path, body in cases:
            status, answer = await ask(app, method, f"/api/{path}", body, b"")
            assert status < 500 or path == "calculate_overall", (path, body, answer)
            json.loads(answer)
            assert len(worker.sessions) <= 3
        assert (await worker.call("cancel_all", b""))[0] == 200
        assert not worker.sessions
        await worker.close(10)
        assert all(episode.closed == 1 for episode in worker.task.episodes)

    asyncio.run(run())
