"""Workers that dial the controller: one bidirectional stream each.

Invariants: an answer belongs to the call with its id, on whatever stream and however often it arrives;
a call that has not been written when a stream breaks is written on the next one; a worker is its uuid
and not its stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Any

import grpc

from agentrl.hosting.failures import HostingError, Unreachable, WorkerLost
from agentrl.hosting.network import envelope as pb
from agentrl.hosting.network.link import WireLink
from agentrl.hosting.network.service import ControllerService
from agentrl.hosting.network.wire import write

log = logging.getLogger(__name__)

KEEPALIVE_MS = 10_000
PREFIX = "grpc://"


class GrpcLink(WireLink):
    ordered = True
    transport = "grpc"

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._answers: dict[str, asyncio.Future[tuple[int, bytes]]] = {}
        self._unsent: OrderedDict[str, Any] = OrderedDict()
        self._wake = asyncio.Event()
        self._closed = False

    async def send(self, endpoint: str, body: bytes) -> tuple[int, bytes]:
        if self._closed:
            raise Unreachable(f"worker {self.name} is gone")
        message = pb.request(endpoint, body)
        answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._answers[message.id] = answer
        self._unsent[message.id] = message
        self._wake.set()
        try:
            return await answer
        finally:
            self._answers.pop(message.id, None)
            self._unsent.pop(message.id, None)

    def answered(self, id_: str, code: int, body: bytes) -> bool:
        """False for a call that is not (any more) waited for."""
        answer = self._answers.get(id_)
        if answer is None or answer.done():
            return False
        answer.set_result((code, body))
        return True

    async def write_to(self, context: Any) -> None:
        """Send calls down one stream, until it breaks."""
        while True:
            while self._unsent:
                id_, message = self._unsent.popitem(last=False)
                try:
                    await context.write(message)
                except BaseException:
                    if id_ in self._answers:
                        self._unsent[id_] = message
                        self._unsent.move_to_end(id_, last=False)
                    raise
            self._wake.clear()
            await self._wake.wait()

    async def close(self) -> None:
        self._closed = True
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(WorkerLost(f"worker {self.name} is gone"))


class GrpcServer:
    def __init__(self, service: ControllerService) -> None:
        self.service = service
        limit = service.settings.max_message
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                ("grpc.keepalive_time_ms", KEEPALIVE_MS),
                ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", 1000),
                ("grpc.http2.max_pings_without_data", 0),
                ("grpc.so_reuseport", 0),
            ]
        )
        handler = grpc.stream_stream_rpc_method_handler(
            self._stream,
            request_deserializer=pb.Envelope.FromString,
            response_serializer=pb.Envelope.SerializeToString,
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(pb.SERVICE, {pb.METHOD: handler}),)
        )
        self._streams: dict[str, asyncio.Task[Any]] = {}

    async def start(self, port: int) -> int:
        """Listen; returns the port."""
        settings = self.service.settings
        address = f"{settings.host}:{port}"
        if settings.certificate is not None and settings.private_key is not None:
            pair = (settings.private_key.read_bytes(), settings.certificate.read_bytes())
            bound = self._server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        else:
            bound = self._server.add_insecure_port(address)
        await self._server.start()
        return int(bound)

    async def close(self, grace: float) -> None:
        await self._server.stop(grace)

    async def _stream(self, messages: Any, context: Any) -> None:
        if not self._allowed(context):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a bearer token is needed")
        link: GrpcLink | None = None
        writer: asyncio.Task[None] | None = None
        try:
            async for message in messages:
                body = message.WhichOneof("body")
                if body == "worker_response":
                    self._answer(message)
                elif body == "session_cancel_notice":
                    self.service.notice(message.session_cancel_notice.session_id)
                    await context.write(pb.acknowledgement(message.id))
                elif body == "receive_heartbeat_request":
                    try:
                        found = self._heartbeat(message.receive_heartbeat_request)
                    except HostingError as error:
                        log.warning("heartbeat refused: %s", error)
                        continue
                    if found is not link:
                        link = found
                        if writer is not None:
                            writer.cancel()
                        writer = self._attach(link, context)
        finally:
            if writer is not None:
                writer.cancel()
            if link is not None and self._streams.get(link.name) is writer:
                del self._streams[link.name]
                self.service.silence(link.name)

    def _attach(self, link: GrpcLink, context: Any) -> asyncio.Task[None]:
        """This stream is the worker's from now on; an older one gets no more calls."""
        if (older := self._streams.get(link.name)) is not None:
            older.cancel()
        writer = asyncio.get_running_loop().create_task(link.write_to(context))
        writer.add_done_callback(_quiet)
        self._streams[link.name] = writer
        return writer

    def _heartbeat(self, body: Any) -> GrpcLink:
        key = PREFIX + body.id
        worker = self.service.heartbeat(
            key, body.name, body.concurrency, pb.indices_of(body), lambda: GrpcLink(key)
        )
        assert isinstance(worker.link, GrpcLink)
        return worker.link

    def _answer(self, message: Any) -> None:
        body = message.worker_response
        text = body.json or (write({"detail": body.message}) if body.message else b"null")
        for worker in self.service.router.workers.values():
            link = worker.link
            if isinstance(link, GrpcLink) and link.answered(message.id, body.code, text):
                return
        log.debug("an answer that nobody waits for", extra={"call": message.id})

    def _allowed(self, context: Any) -> bool:
        metadata = dict(context.invocation_metadata() or ())
        scheme, _, token = str(metadata.get("authorization", "")).partition(" ")
        known = self.service.settings.knows(token)
        return self.service.settings.token is None or (scheme.lower() == "bearer" and known)


def _quiet(writer: asyncio.Task[None]) -> None:
    """A broken stream ends its writer; the reader says the rest."""
    if not writer.cancelled() and (error := writer.exception()) is not None:
        log.info("a worker's stream broke: %s", error)
