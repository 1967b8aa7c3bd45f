"""Controllers and workers in the test's own event loop, on ports that the system picks, loopback only."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp

from agentrl.hosting.network.controller import NetworkController
from agentrl.hosting.network.settings import ControllerSettings, WorkerSettings
from agentrl.hosting.network.worker_process import NetworkWorker

TRANSPORTS = ("http", "grpc")
PATIENCE = 600.0
"""Seconds after which what a test waits for counts as never coming; machines may be busy."""


async def eventually(condition, what=""):
    """Wait until `condition()` is true. Its value is returned."""
    async with asyncio.timeout(PATIENCE):
        while not (value := condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return value


def controller_settings(**changes):
    return ControllerSettings(**{"port": 0, "grpc_port": 0, "grace": 5, "cancel": 20, **changes})


def where(controller, transport):
    """What a worker is given as its controller."""
    return (
        f"grpc://127.0.0.1:{controller.grpc_port}"
        if transport == "grpc"
        else f"{controller.url}/api"
    )


def worker_settings(controller, transport, **changes):
    return WorkerSettings(
        **{"controller": where(controller, transport), "port": 0, "retry": 0.1, **changes}
    )


@asynccontextmanager
async def cluster(task_type, transport="http", workers=1, settings=None, **changes):
    """A controller with workers of `task_type`, all of them compared. Yields (controller, workers)."""
    async with AsyncExitStack() as stack:
        controller = await stack.enter_async_context(
            NetworkController(settings or controller_settings())
        )
        running = [
            await stack.enter_async_context(
                NetworkWorker(task_type(), "std", worker_settings(controller, transport, **changes))
            )
            for _ in range(workers)
        ]
        await ready(controller, workers)
        yield controller, running


async def ready(controller, workers):
    known = controller.service.router.workers
    await eventually(
        lambda: len(known) == workers and all(worker.free > 0 for worker in known.values())
    )


class Raw:
    """A client that sends what it is told and shows what comes back."""

    def __init__(self, url, **headers):
        self.url, self.headers = url, headers

    async def __aenter__(self):
        self.session = aiohttp.ClientSession(
            headers=self.headers, connector=aiohttp.TCPConnector(limit=0)
        )
        return self

    async def __aexit__(self, *_):
        await self.session.close()

    async def get(self, path, **query):
        async with self.session.get(f"{self.url}/{path}", params=query) as response:
            return response.status, await _json(response)

    async def post(self, path, body=None, session=None, data=None):
        headers = {} if session is None else {"session_id": str(session)}
        async with self.session.post(
            f"{self.url}/{path}", json=body, data=data, headers=headers
        ) as response:
            self.last_headers = response.headers
            return response.status, await _json(response)

    async def start(self, index=0, name="quiz-std", **more):
        """Session and answer of a start that has to succeed."""
        status, answer = await self.post("start_sample", {"name": name, "index": index, **more})
        assert status == 200, answer
        return int(self.last_headers["session_id"]), answer

    async def say(self, session, text="Are you done?"):
        return await self.post("interact", {"messages": [said(text)]}, session)


def said(text):
    return {"role": "assistant", "content": text}


async def _json(response):
    text = await response.text()
    try:
        return await response.json(content_type=None)
    except ValueError:
        return text
