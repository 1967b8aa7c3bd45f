"""The controller's HTTP side: clients, HTTP workers, administration, dashboard.

Paths and fields are those of the protocol; an error is `{"message": text, "error": cause}`. Handlers
take the raw request: what is read is checked by `wire.py`, and nothing is read twice. FastAPI describes
them at /docs; calls reach them past its layers, which would cost as much as the controller's own work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi_offline import FastAPIOffline
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ValidationError

from agentrl import __version__
from agentrl.hosting.failures import HostingError, Refused
from agentrl.hosting.network import wire
from agentrl.hosting.network.directory import Registration
from agentrl.hosting.network.guard import Asgi, Guard
from agentrl.hosting.network.http_link import HttpLink
from agentrl.hosting.network.overview import overview, transcript
from agentrl.hosting.network.service import ControllerService
from agentrl.hosting.registry import Worker

JSON = "application/json"
NULL = b"null"
PLUS_8 = timezone(timedelta(hours=8))
"""The protocol's time texts are in UTC+8."""
Handler = Callable[[Request], Awaitable[Response]]


class TooLong(HostingError):
    cause, http = "message_too_long", 413


class NoSession(HostingError):
    cause, http = "unknown_session", 400


async def body_of(request: Request, limit: int) -> bytes:
    """Raises `TooLong` before more than `limit` bytes are held."""
    if int(request.headers.get("content-length") or 0) > limit:
        raise TooLong(f"a message of more than {limit} bytes is not taken")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > limit:
            raise TooLong(f"a message of more than {limit} bytes is not taken")
    return b"".join(parts)


def session_of(request: Request) -> int:
    value = request.headers.get("session_id", "")
    if not value.isascii() or not value.isdigit() or len(value) > 19:
        raise NoSession(f"header session_id: {value[:40]!r} is no session")
    return int(value)


def answer(value: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(wire.write(value), media_type=JSON, headers=headers)


def failure(error: HostingError) -> Response:
    return Response(
        wire.write({"message": str(error), "error": error.cause}), error.http, media_type=JSON
    )


def make_app(service: ControllerService) -> Asgi:
    """The whole of it, behind the guard."""
    app = FastAPIOffline(
        title="agentrl controller",
        version=__version__,
        description="Routes episodes to the workers of a task. Errors: {message, error}.",
    )
    calls = Calls(app)
    _clients(calls, service)
    _workers(calls, service)
    _administration(calls, service)
    _pages(app, service)
    return Guard(calls, service.settings)


class Calls:
    """ASGI: the protocol's calls by method and path; everything else is `app`'s."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.handlers: dict[tuple[str, str], Handler] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        http = scope["type"] == "http"
        handler = self.handlers.get((scope["method"], scope["path"])) if http else None
        if handler is None:
            await self.app(scope, receive, send)
        else:
            response = await handler(Request(scope, receive, send))
            await response(scope, receive, send)


def _route(
    calls: Calls,
    method: str,
    path: str,
    handler: Handler,
    *,
    body: type[BaseModel] | None = None,
    reply: type[BaseModel] | None = None,
    session: bool = False,
) -> None:
    """One path; bad bodies, unknown sessions and failures get their answers here."""

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except HostingError as error:
            return failure(error)
        except KeyError as error:
            return failure(NoSession(f"no session {error.args[0]}; it has ended or never was"))
        except ValidationError as error:
            detail = wire.problems(error)
            first = f"{'.'.join(map(str, detail[0]['loc']))}: {detail[0]['msg']}"
            return Response(
                wire.write({"message": first, "error": "invalid", "detail": detail}),
                422,
                media_type=JSON,
            )

    guarded.__name__ = handler.__name__
    extra: dict[str, Any] = {}
    if body is not None:
        schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
        schema.pop("$defs", None)
        extra["requestBody"] = {"content": {JSON: {"schema": schema}}}
    if session:
        extra["parameters"] = [
            {"name": "session_id", "in": "header", "required": True, "schema": {"type": "integer"}}
        ]
    responses: dict[int | str, dict[str, Any]] = {200: {"model": reply}} if reply else {}
    calls.handlers[method, f"/api/{path}"] = guarded
    calls.app.add_api_route(
        f"/api/{path}", guarded, methods=[method], openapi_extra=extra, responses=responses
    )


def _clients(calls: Calls, service: ControllerService) -> None:
    limit = service.settings.max_message
    latency = service.metrics.latency
    start_seconds, interact_seconds = latency.labels("start_sample"), latency.labels("interact")

    async def get_indices(request: Request) -> Response:
        return answer(service.directory.offer(request.query_params.get("name", "")).indices)

    async def start_sample(request: Request) -> Response:
        began = time.perf_counter()
        wanted = wire.read(wire.ClientStart, await body_of(request, limit))
        peer = request.client.host if request.client else ""
        work = asyncio.ensure_future(
            service.start(wanted, request.headers.get("x-agentrl-client", peer))
        )
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and not work.done():
                work.cancel()
            session, payload = await work
        finally:
            gone.cancel()
            work.cancel()
        if gone.done() and not gone.cancelled() and not payload["finish"]:
            service.cancel(session)
        start_seconds.observe(time.perf_counter() - began)
        return answer(payload, {"session_id": str(session)})

    async def interact(request: Request) -> Response:
        began = time.perf_counter()
        session = session_of(request)
        said = wire.read(wire.ClientInteract, await body_of(request, limit))
        payload = await service.interact(session, said.messages)
        interact_seconds.observe(time.perf_counter() - began)
        return answer(payload)

    async def cancel(request: Request) -> Response:
        service.cancel(session_of(request))
        return Response(NULL, media_type=JSON)

    async def renew(request: Request) -> Response:
        """Sessions that are still wanted; answers with those that are not known (any more)."""
        unknown = []
        for session in wire.read(wire.Renew, await body_of(request, limit)).sessions:
            try:
                service.router.renew(session)
            except KeyError:
                unknown.append(session)
        return answer({"unknown": unknown})

    async def calculate_overall(request: Request) -> Response:
        wanted = wire.read(wire.Overall, await body_of(request, limit))
        service.directory.offer(wanted.name)
        for worker in service.router.of(wanted.name):
            if not worker.silent:
                return answer(await service.overall(worker, wanted))
        raise Refused(f"task {wanted.name!r} has no worker now")

    _route(calls, "GET", "get_indices", get_indices)
    _route(
        calls, "POST", "start_sample", start_sample, body=wire.ClientStart, reply=wire.ClientReply
    )
    _route(
        calls,
        "POST",
        "interact",
        interact,
        body=wire.ClientInteract,
        reply=wire.ClientReply,
        session=True,
    )
    _route(calls, "POST", "cancel", cancel, session=True)
    _route(calls, "POST", "renew", renew, body=wire.Renew)
    _route(calls, "POST", "calculate_overall", calculate_overall, body=wire.Overall)


async def _gone(request: Request) -> None:
    """Ends when the client has hung up. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _workers(calls: Calls, service: ControllerService) -> None:
    settings = service.settings

    async def receive_heartbeat(request: Request) -> Response:
        beat = wire.read(wire.Heartbeat, await body_of(request, settings.max_message))
        service.heartbeat(
            beat.address,
            beat.name,
            beat.concurrency,
            beat.indices,
            lambda: HttpLink(beat.address, settings),
            beat.instance,
        )
        return Response(NULL, media_type=JSON)

    async def cancel_notice(request: Request) -> Response:
        body = await body_of(request, settings.max_message)
        session = wire.read(wire.SessionOnly, body).session_id if body else session_of(request)
        service.notice(session)
        return Response(NULL, media_type=JSON)

    _route(calls, "POST", "receive_heartbeat", receive_heartbeat, body=wire.Heartbeat)
    _route(calls, "POST", "cancel_notice", cancel_notice, body=wire.SessionOnly)


def _administration(calls: Calls, service: ControllerService) -> None:
    router, directory = service.router, service.directory
    limit = service.settings.max_message

    def status(worker: Worker) -> str:
        return "COMA" if worker.silent else "ALIVE"

    def moment(at: float) -> str:
        wall = time.time() - (asyncio.get_running_loop().time() - at)
        return datetime.fromtimestamp(wall, PLUS_8).strftime("%Y-%m-%d %H:%M:%S")

    async def list_workers(request: Request) -> Response:
        return answer(
            {
                task: {
                    "indices": offer.indices,
                    "workers": {
                        worker.key: {
                            "id": worker.key,
                            "address": worker.key,
                            "capacity": worker.capacity,
                            "current": worker.used,
                            "last_visit": moment(worker.seen),
                            "status": status(worker),
                            "stale": worker.drained,
                            "locked": worker.doubtful,
                        }
                        for worker in router.of(task)
                    },
                }
                for task, offer in directory.offers.items()
            }
        )

    async def list_sessions(request: Request) -> Response:
        return answer(
            {
                session.id: {
                    "name": session.task,
                    "index": session.index,
                    "custom_task": session.index == wire.CUSTOM,
                    "start": moment(session.started),
                    "last_update": moment(session.updated),
                    "worker_id": session.worker.key,
                    "locked": session.busy,
                    "cancelling": session.cancelling,
                }
                for session in router.sessions.values()
            }
        )

    async def mark_stale(request: Request) -> Response:
        wanted = wire.read(wire.MarkStale, await body_of(request, limit))
        worker = router.workers.get(wanted.worker_id)
        if worker is None or worker.task != wanted.name:
            raise Registration(f"task {wanted.name!r} has no worker {wanted.worker_id!r}")
        directory.drain(worker, wanted.stale)
        return Response(NULL, media_type=JSON)

    async def cancel_all(request: Request) -> Response:
        name = request.query_params.get("name")
        if name is None and len(directory.offers) > 1:
            if request.query_params.get("force") != "true":
                message = "several tasks are served: give name=TASK, or force=true for all"
                return Response(
                    wire.write({"message": message, "error": "ambiguous"}), 403, media_type=JSON
                )
        elif name is not None:
            directory.offer(name)
        return answer({"cancelled": service.cancel_all(name)})

    async def sync_all(request: Request) -> Response:
        directory.tick()
        for worker in list(router.workers.values()):
            directory.compare_soon(worker)
        return Response(NULL, media_type=JSON)

    async def version(request: Request) -> Response:
        return answer({"variant": "agentrl-reproducible", "version": 1, "package": __version__})

    async def get_overview(request: Request) -> Response:
        return answer(overview(service))

    async def get_transcript(request: Request) -> Response:
        value = request.query_params.get("session", "")
        if not (value.isascii() and value.isdigit() and len(value) < 20):
            raise NoSession(f"session {value[:40]!r} is no session")
        return answer(transcript(service, int(value)))

    _route(calls, "GET", "list_workers", list_workers)
    _route(calls, "GET", "list_sessions", list_sessions)
    _route(calls, "POST", "mark_stale", mark_stale, body=wire.MarkStale)
    _route(calls, "POST", "cancel_all", cancel_all)
    for path in ("clean_worker", "clean_session", "sync_all"):
        _route(calls, "POST", path, sync_all)
    _route(calls, "GET", "version", version)
    _route(calls, "GET", "overview", get_overview)
    _route(calls, "GET", "transcript", get_transcript)


def _pages(app: FastAPI, service: ControllerService) -> None:
    page = files("agentrl.hosting.network").joinpath("dashboard.html").read_bytes()
    headers = {
        "content-security-policy": (
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        ),
        "cache-control": "no-cache",
    }

    async def dashboard(request: Request) -> Response:
        return Response(page, media_type="text/html", headers=headers)

    async def metrics(request: Request) -> Response:
        text = generate_latest(service.metrics.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    app.add_api_route("/", dashboard, methods=["GET"], include_in_schema=False)
    app.add_api_route("/metrics", metrics, methods=["GET"], include_in_schema=False)
