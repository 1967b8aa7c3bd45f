"""What the real packages do that a controller has to live with (spec/protocol.md, 1.1 to 5.5)."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess

import pytest
from hosting_kit import TRANSPORTS, Raw, controller_settings, eventually, ready, where

from agentrl.hosting.network import envelope
from agentrl.hosting.network.controller import NetworkController

DESCRIBE = """
import json, sys
from agentrl.worker.pb import common_pb2, controller_v1_pb2 as c
def fields(d):
    return {f.name: [f.number, f.type, f.is_repeated if hasattr(f, 'is_repeated') else f.label == 3,
            f.message_type.full_name if f.message_type else None,
            f.containing_oneof.name if f.containing_oneof else None] for f in d.fields}
e = c.WorkerStreamEnvelope.DESCRIPTOR
messages = [common_pb2.TaskIndex.DESCRIPTOR, c.ReceiveHeartbeatRequest.DESCRIPTOR,
            c.SessionCancelNotice.DESCRIPTOR, e, *e.nested_types]
print(json.dumps([{m.full_name: fields(m) for m in messages},
                  {v.name: v.number for v in e.enum_types[0].values}]))
"""


def test_our_messages_are_theirs(interop_python):
    done = subprocess.run(
        [interop_python, "-c", DESCRIBE], capture_output=True, text=True, timeout=120, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    theirs, kinds = json.loads(done.stdout)
    ours = envelope.Envelope.DESCRIPTOR
    assert {value.name: value.number for value in ours.enum_types[0].values} == kinds
    for name, fields in theirs.items():
        described = ours.file.pool.FindMessageTypeByName(name)
        assert {
            field.name: [
                field.number,
                field.type,
                field.is_repeated,
                field.message_type.full_name if field.message_type else None,
                oneof.name if (oneof := field.containing_oneof) and oneof.name[0] != "_" else None,
            ]
            for field in described.fields
        } == fields


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_sessions_that_end_in_every_way(official, transport):
    """Task error at the start, no turn at all, error in a turn, context limit, twenty megabytes."""
    async with (
        NetworkController(controller_settings()) as controller,
        official.worker(where(controller, transport), "Failing", concurrency=2),
        Raw(f"{controller.url}/api") as raw,
    ):
        await ready(controller, 1)
        _, answer = await raw.start(1)
        assert (answer["status"], answer["finish"], answer["messages"]) == ("task error", True, [])
        _, answer = await raw.start(2)
        assert (answer["status"], answer["finish"], answer["messages"]) == ("completed", True, [])
        session, _ = await raw.start(3)
        status, answer = await raw.say(session)
        assert (status, answer["status"], answer["reward"]) == (200, "task error", 0.0)
        session, _ = await raw.start(4)
        _, answer = await raw.say(session)
        assert answer["status"] == "task limit reached"
        assert answer["status_detail"] == "agent context limit"
        session, _ = await raw.start(5)
        status, answer = await raw.say(session)
        assert status == 200 and len(answer["messages"][0]["content"]) == 20_000_000
        status, answer = await raw.say(session, "y" * 20_000_000)
        assert status == 200 and answer["finish"]
        assert not controller.service.router.sessions
        (worker,) = controller.service.router.workers.values()
        await controller.service.directory.compare(worker)
        assert worker.free == 2 and not worker.stuck


async def test_an_escaped_cancel_keeps_its_slot_and_no_other(official):
    """`/cancel` answers 500 and the slot is never given back: it counts as stuck, the rest goes on."""
    async with (
        NetworkController(controller_settings()) as controller,
        official.worker(where(controller, "http"), "Escaping", concurrency=2),
        Raw(f"{controller.url}/api") as raw,
    ):
        await ready(controller, 1)
        (worker,) = controller.service.router.workers.values()
        session, _ = await raw.start(3)
        assert await raw.post("cancel", session=session) == (200, None)
        await eventually(lambda: not controller.service.router.sessions)
        assert worker.stuck == {session} and worker.free == 1
        for _ in range(3):  # never a 406
            other, _ = await raw.start(0)
            assert (await raw.say(other))[1]["finish"]
        await controller.service.directory.compare(worker)
        assert session in worker.stuck
        failures = controller.service.store.counters
        assert failures["ended", "quiz-std", "cancelled"] == 1


async def test_a_task_that_does_not_hear_a_cancel_blocks_no_other(official):
    async with (
        NetworkController(controller_settings(cancel=0.5)) as controller,
        official.worker(where(controller, "grpc"), "Deaf", concurrency=2),
        Raw(f"{controller.url}/api") as raw,
    ):
        await ready(controller, 1)
        (worker,) = controller.service.router.workers.values()
        session, _ = await raw.start(3)
        turn = asyncio.create_task(raw.say(session))
        await eventually(lambda: controller.service.router.sessions[session].busy)
        assert await raw.post("cancel", session=session) == (200, None)
        await eventually(lambda: session in worker.stuck)
        other, _ = await raw.start(0)
        assert worker.free == 0
        assert await raw.post("cancel", session=other) == (200, None)
        turn.cancel()


async def test_names_places_and_custom_samples(official):
    """Integers stand for places where all samples have names; -1 with `custom_task`."""
    async with (
        NetworkController(controller_settings()) as controller,
        official.worker(where(controller, "grpc"), "Named"),
        Raw(f"{controller.url}/api") as raw,
    ):
        await ready(controller, 1)
        assert (await raw.get("get_indices", name="quiz-std"))[1] == ["north", "south", "east", -1]
        for index, shown in (("south", "south"), (1, "south"), (0, "north")):
            session, answer = await raw.start(index)
            assert answer["messages"][0]["content"] == f"Sample {shown}"
            await raw.post("cancel", session=session)
        status, answer = await raw.post("start_sample", {"name": "quiz-std", "index": 3})
        assert (status, answer["error"]) == (400, "unknown_index")
        status, answer = await raw.post("start_sample", {"name": "quiz-std", "index": -1})
        assert (status, answer["error"]) == (400, "unknown_index")
        rows, _ = await official.evaluate(
            controller.url,
            *("--client", "dummy", "--dummy-interval", "0", "quiz-std"),
            *("--custom-params", '{"hard": true}'),
        )
        assert {index for _, index, _ in rows} == {"north", "south", "east"}
        assert {row["status"] for row in rows.values()} == {"completed"}
        asked = "".join(path.read_text() for path in official.results.glob("*/trace.json"))
        assert all(f"Sample custom {name}" in asked for name in ("north", "south", "east"))


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_real_worker_killed_in_mid_session(official, transport):
    settings = controller_settings(silent_after=40, lost_after=45)
    async with (
        NetworkController(settings) as controller,
        official.worker(where(controller, transport)) as process,
        Raw(f"{controller.url}/api") as raw,
    ):
        await ready(controller, 1)
        session, _ = await raw.start(3)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        status, answer = await raw.say(session)
        assert status == 502 and answer["error"] == "worker_lost", answer
        await eventually(lambda: not controller.service.router.sessions)
        async with official.worker(where(controller, transport)):
            session, _ = await raw.start(3)  # waits until the new one is there
            assert (await raw.say(session))[0] == 200
            await raw.post("cancel", session=session)
            await eventually(lambda: not controller.service.router.sessions)


class Model:
    """An OpenAI-compatible server: no Responses API, chat completions that depend on what is asked."""

    def __init__(self):
        self.asked = []

    async def __call__(self, scope, receive, send):
        body = b""
        while (message := await receive()).get("more_body") or message.get("body"):
            body += message["body"]
            if not message.get("more_body"):
                break
        if scope["path"].endswith("/models"):
            code, answer = 200, {"object": "list", "data": [{"id": "m", "object": "model"}]}
        elif scope["path"].endswith("/chat/completions"):
            code, answer = 200, self.complete(json.loads(body))
        else:
            code, answer = 400, {"error": {"message": "no such API", "type": "invalid"}}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def complete(self, asked):
        last = asked["messages"][-1]["content"]
        if not isinstance(last, str):
            last = last[0]["text"]
        self.asked.append((asked["model"], last, bool(asked.get("tools"))))
        message = {"role": "assistant", "content": "x" * (len(last) % 7), "refusal": None}
        choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": None}
        return {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": asked["model"],
            "choices": [choice],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }


def characters(index):
    """What the model says in all, by the rules of the quiz: 1 + index % 4 turns."""
    asked, total = f"Question {index}", 0
    for left in range(index % 4, -1, -1):
        said = len(asked) % 7
        total += said
        asked = f"{said} characters, {left} rounds left"
    return total


async def test_a_model_behind_an_api_cross_sampling_and_resume(official):
    """Two models take turns; a run that has done half does the other half, and not again."""
    from agentrl.hosting.network.serving import HttpServer
    from agentrl.hosting.network.settings import Access

    model = Model()
    server = HttpServer(model, Access(), 0, 5)
    await server.start()
    base = f"http://127.0.0.1:{server.port}/v1"
    models = json.dumps([{"model": "first"}, {"model": "second"}])
    common = (
        *("--client", "openai", "--base-url", base, "--chat-completions", "--api-key", "none"),
        *("--models", models, "--cross-sample", "-j", "20"),
    )
    try:
        async with (
            NetworkController(controller_settings()) as controller,
            official.worker(where(controller, "grpc"), concurrency=4),
        ):
            await ready(controller, 1)
            counters = controller.service.store.counters
            rows, _ = await official.evaluate(
                controller.url, *common, "--indices-range", "0-19", "quiz-std"
            )
            assert len(rows) == 20 and counters["started", "quiz-std", ""] == 20
            results = official.results
            rows, _ = await official.evaluate(
                controller.url,
                *(*common, "--indices-range", "0-39", "--resume", str(results), "quiz-std"),
            )
            assert counters["started", "quiz-std", ""] == 40
            assert sorted(index for _, index, _ in rows) == list(range(40))
            for (name, index, _), row in rows.items():
                assert name == "first-second-first-second"  # 0.1.2 joins the joined name again
                assert row["metric_score"] == index / 200
                assert json.loads(row["metrics"])["characters"] == characters(index)
            spoken = {name for name, last, _ in model.asked if last != "Say hi."}
            assert spoken == {"first", "second"}
            assert all(tools for _, last, tools in model.asked if last != "Say hi.")
    finally:
        await server.close()
