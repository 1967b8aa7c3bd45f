"""A network that is cut and healed: controller and worker in network namespaces of their own, joined by
a pair of virtual cables. Root only; nothing outside the two namespaces is touched."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import uuid
from contextlib import contextmanager

import pytest
from hosting_kit import PATIENCE, TRANSPORTS
from integration.hosting_process import process

TOKEN = "a-token-of-sixteen"
HERE, THERE = "10.254.7.1", "10.254.7.2"


def _ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=30)


def _missing():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "needs root and iproute2"
    name = f"probe-{uuid.uuid4().hex[:6]}"
    made = _ip("netns", "add", name)
    _ip("netns", "del", name)
    return made.stderr.strip()


@contextmanager
def two_hosts():
    """Names of two namespaces, and a switch for the cable between them."""
    tag = uuid.uuid4().hex[:6]
    here, there = f"agentrl-a-{tag}", f"agentrl-b-{tag}"
    try:
        for name in (here, there):
            assert _ip("netns", "add", name).returncode == 0
            _ip("-n", name, "link", "set", "lo", "up")
        cable = _ip(
            "link",
            "add",
            f"a{tag}",
            "netns",
            here,
            "type",
            "veth",
            "peer",
            "name",
            f"b{tag}",
            "netns",
            there,
        )
        if cable.returncode:
            pytest.skip(f"no virtual cables here: {cable.stderr.strip()}")
        for name, device, address in ((here, f"a{tag}", HERE), (there, f"b{tag}", THERE)):
            assert _ip("-n", name, "addr", "add", f"{address}/30", "dev", device).returncode == 0
            assert _ip("-n", name, "link", "set", device, "up").returncode == 0

        def plug(up):
            done = _ip("-n", there, "link", "set", f"b{tag}", "up" if up else "down")
            assert done.returncode == 0, done.stderr

        yield here, there, plug
    finally:
        for name in (here, there):
            _ip("netns", "del", name)


async def curl(namespace, path, body=None, session=None):
    """One request inside `namespace`: status, answer, session."""
    import json

    command = [
        *("ip", "netns", "exec", namespace, "curl", "-s", "-i", "--max-time", "120"),
        *("-H", f"authorization: Bearer {TOKEN}", f"http://{HERE}:5020/{path}"),
    ]
    if session is not None:
        command += ["-H", f"session_id: {session}"]
    if body is not None:
        command += ["-X", "POST", "-d", json.dumps(body)]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    text = (await child.communicate())[0].decode()
    head, _, content = text.partition("\r\n\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
    return int(head.split()[1]), json.loads(content or "null"), headers.get("session_id")


async def until(namespace, condition):
    async with asyncio.timeout(PATIENCE):
        while not condition(answer := (await curl(namespace, "api/overview"))[1]):  # noqa: ASYNC110
            await asyncio.sleep(0.3)
        return answer


SAY = {"messages": [{"role": "assistant", "content": "x"}]}


@pytest.mark.skipif(_missing() != "", reason=f"no network namespaces: {_missing()}")
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_cut_and_healed(transport):
    """Cut for long: the session ends with a cause. Healed: the worker is back and holds nothing of it."""
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    with two_hosts() as (here, there, plug):
        inside = [("ip", "netns", "exec", name) for name in (here, there)]
        timers = {
            "silent_after": 3.0,
            "lost_after": 8.0,
            "sync": 1.0,
            "sync_call": 3.0,
            "cancel": 5.0,
        }
        controller = process(
            "controller", inside[0], host=HERE, port=5020, grpc_port=5022, token=TOKEN, **timers
        )
        target = f"grpc://{HERE}:5022" if transport == "grpc" else f"http://{HERE}:5020/api"
        worker = process(
            "worker",
            inside[1],
            host=THERE,
            port=5021,
            controller=target,
            token=TOKEN,
            heartbeat=0.5,
        )
        async with controller, worker:
            await until(here, lambda seen: any(not w["comparing"] for w in seen["workers"]))
            start = {"name": "quiz-std", "index": 3}
            status, _, session = await curl(here, "api/start_sample", start)
            assert status == 200
            assert (await curl(here, "api/interact", SAY, session))[0] == 200
            plug(False)
            status, answer, _ = await curl(here, "api/interact", SAY, session)
            assert (status, answer["error"]) == (502, "worker_lost"), answer
            seen = await until(here, lambda seen: not seen["live"])
            plug(True)
            seen = await until(
                here,
                lambda seen: (
                    len(seen["workers"]) == 1
                    and not any(
                        w["silent"] or w["comparing"] or w["stuck"] for w in seen["workers"]
                    )
                ),
            )
            assert seen["tasks"][0]["ends"] == {"worker_lost": 1}
            status, answer, session = await curl(here, "api/start_sample", {**start, "index": 0})
            assert status == 200
            status, answer, _ = await curl(here, "api/interact", SAY, session)
            assert status == 200 and answer["finish"]
