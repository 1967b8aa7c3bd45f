"""A worker over gRPC: it dials the controller and answers calls on one stream.

Invariants: what has been worked out is not lost with a stream - answers wait for the next one; a new
stream means the same worker; only the endpoints of the worker can be called.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any
from urllib.parse import urlsplit

import grpc

from agentrl.errors import ConfigError
from agentrl.hosting.network import envelope as pb
from agentrl.hosting.network.wire import write
from agentrl.hosting.network.worker import TaskWorker

log = logging.getLogger("agentrl.hosting.worker")
KEEPALIVE_MS = 10_000


def is_grpc(controller: str) -> bool:
    return controller.startswith(("grpc://", "grpcs://"))


class GrpcTransport:
    def __init__(self, worker: TaskWorker) -> None:
        self.worker = worker
        self._out: deque[Any] = deque()
        """Answers and notices that are not written yet: at most one a call under way."""
        self._wake = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        parts = urlsplit(worker.settings.controller)
        if parts.hostname is None or parts.port is None or parts.path.strip("/"):
            raise ConfigError(
                f"--controller {worker.settings.controller!r}: gRPC is given as grpc://host:port"
            )
        self._target = f"{parts.hostname}:{parts.port}"
        self._secure = parts.scheme == "grpcs"

    async def run(self) -> None:
        """Keep a stream up until cancelled."""
        while True:
            try:
                async with self._channel() as channel:
                    await self._serve(channel)
            except grpc.aio.AioRpcError as error:
                log.debug("stream broke: %s", error.details(), extra=self._facts())
                if error.code() == grpc.StatusCode.UNAUTHENTICATED:
                    log.error("the controller asks for a token: set AGENTRL_TOKEN")
            await asyncio.sleep(self.worker.settings.retry)

    def _channel(self) -> Any:
        settings = self.worker.settings
        options = [
            ("grpc.max_receive_message_length", settings.max_message),
            ("grpc.max_send_message_length", settings.max_message),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
            ("grpc.http2.max_pings_without_data", 0),
        ]
        if not self._secure:
            return grpc.aio.insecure_channel(self._target, options=options)
        ca = None if settings.ca is None else settings.ca.read_bytes()
        return grpc.aio.secure_channel(
            self._target, grpc.ssl_channel_credentials(ca), options=options
        )

    async def _serve(self, channel: Any) -> None:
        call = channel.stream_stream(
            f"/{pb.SERVICE}/{pb.METHOD}",
            request_serializer=pb.Envelope.SerializeToString,
            response_deserializer=pb.Envelope.FromString,
        )
        token = self.worker.settings.token
        stream = call(metadata=(("authorization", f"Bearer {token}"),) if token else None)
        await stream.wait_for_connection()
        jobs = [
            asyncio.create_task(job)
            for job in (self._heartbeats(stream), self._write(stream), self._read(stream))
        ]
        try:
            done, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
            for job in done:
                job.result()
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            stream.cancel()

    async def _heartbeats(self, stream: Any) -> None:
        worker = self.worker
        while True:
            self._send(
                pb.heartbeat(
                    worker.instance, worker.name, worker.settings.concurrency, worker.indices
                ),
                first=True,
            )
            await asyncio.sleep(worker.settings.heartbeat)

    async def _write(self, stream: Any) -> None:
        while True:
            while self._out:
                await stream.write(self._out[0])
                self._out.popleft()
            self._wake.clear()
            await self._wake.wait()

    async def _read(self, stream: Any) -> None:
        async for message in stream:
            if message.type == pb.REQUEST and message.WhichOneof("body") == "worker_request":
                task = asyncio.create_task(self._answer(message))
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)

    async def _answer(self, message: Any) -> None:
        body = message.worker_request
        code, answer = await self.worker.call(body.endpoint, body.json)
        text = ""
        if code != 200:
            text = str(answer.get("detail", ""))[:2000] if isinstance(answer, dict) else ""
        self._send(pb.response(message.id, code, write(answer), text))

    def _send(self, message: Any, *, first: bool = False) -> None:
        if first:
            # A heartbeat that was not written is no use any more.
            while self._out and self._out[0].WhichOneof("body") == "receive_heartbeat_request":
                self._out.popleft()
            self._out.appendleft(message)
        else:
            self._out.append(message)
        self._wake.set()

    async def notify(self, session: int) -> None:
        self._send(pb.notice(session))

    async def close(self) -> None:
        for task in self._calls:
            task.cancel()

    def _facts(self) -> dict[str, str]:
        return {"controller": self._target, "task": self.worker.name}
