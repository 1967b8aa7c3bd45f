"""A worker over HTTP: its endpoints under `/api/`, and heartbeats to the controller."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp

from agentrl.hosting.network.http_link import GETS
from agentrl.hosting.network.settings import trust
from agentrl.hosting.network.wire import SessionOnly, read, write
from agentrl.hosting.network.worker import TaskWorker

log = logging.getLogger("agentrl.hosting.worker")
PREFIX = "/api/"


class WorkerApp:
    """ASGI, by hand: eleven paths, one way to read and to answer."""

    def __init__(self, worker: TaskWorker) -> None:
        self.worker = worker
        self._limit = worker.settings.max_message

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        endpoint = path.removeprefix(PREFIX)
        known = path.startswith(PREFIX) and endpoint in self.worker.endpoints
        wanted = "GET" if endpoint in GETS else "POST"
        headers = [(b"content-type", b"application/json")]
        if not known:
            code, answer = 404, {"detail": "Not Found"}
        elif scope["method"] != wanted:
            code, answer = 405, {"detail": "Method Not Allowed"}
        else:
            body = await self._body(receive)
            if body is None:
                code, answer = 413, {"detail": f"more than {self._limit} bytes"}
            else:
                code, answer = await self.worker.call(endpoint, body)
                if endpoint == "start_sample" and code == 200:
                    session = read(SessionOnly, body).session_id
                    headers.append((b"session_id", str(session).encode()))
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": write(answer)})

    async def _body(self, receive: Any) -> bytes | None:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            size += len(part)
            if size > self._limit:
                return None
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)


class HttpHeartbeat:
    """Tells the controller every few seconds that the worker is there, and of cancelled sessions."""

    def __init__(self, worker: TaskWorker, address: str) -> None:
        self.worker, self.address = worker, address
        settings = worker.settings
        self._base = settings.controller.rstrip("/")
        headers = {"authorization": f"Bearer {settings.token}"} if settings.token else {}
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(ssl=trust(settings.ca), keepalive_timeout=3.0),
            timeout=aiohttp.ClientTimeout(total=settings.heartbeat * 2),
        )

    async def run(self) -> None:
        """Until cancelled; after a failure the next one comes sooner."""
        settings = self.worker.settings
        body = write(
            {
                "name": self.worker.name,
                "address": self.address,
                "concurrency": settings.concurrency,
                "indices": self.worker.indices,
                "instance": self.worker.instance,
            }
        )
        heard = None
        while True:
            good = await self._post("receive_heartbeat", body)
            if good != heard:
                log.info("controller %s", "reached" if good else "not reached", extra=self._facts())
                heard = good
            await asyncio.sleep(settings.heartbeat if good else settings.retry)

    async def notify(self, session: int) -> None:
        """A session has ended after a cancel. Lost notices are found by the controller itself."""
        await self._post(
            "cancel_notice", write({"session_id": session}), {"session_id": str(session)}
        )

    async def _post(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> bool:
        try:
            async with self._session.post(
                f"{self._base}/{path}",
                data=body,
                headers={"content-type": "application/json", **(headers or {})},
            ) as response:
                if response.status == 200:
                    return True
                text = (await response.content.read(500)).decode("utf-8", "replace")
                log.warning("%s answered %d: %s", path, response.status, text, extra=self._facts())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            log.debug("%s failed: %s", path, error, extra=self._facts())
        return False

    def _facts(self) -> dict[str, str]:
        return {"controller": self._base, "worker": self.address, "task": self.worker.name}

    async def close(self) -> None:
        await self._session.close()
