"""What both ways to a worker share: how its answers are read. The two differ in how bytes travel."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from pydantic_core import from_json

from agentrl.hosting.failures import Full, Refused, SessionLost, WorkerFailed
from agentrl.hosting.network.wire import client_reply, write
from agentrl.hosting.registry import Reply


class WireLink(ABC):
    """A worker that speaks the protocol. Every failure is a `HostingError`."""

    ends_failed = False
    ordered: bool
    """Answers arrive in the order in which the worker gave them."""
    transport: str

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    async def send(self, endpoint: str, body: bytes) -> tuple[int, bytes]:
        """One call: HTTP status and body, or `WorkerLost`/`Unreachable`."""

    async def start(self, session: int, request: Any) -> Reply:
        code, body = await self.send("start_sample", write({**request, "session_id": session}))
        if code == 406:
            raise Full(f"worker {self.name} has no room: {_text(body)}")
        if code == 400:
            raise Full(f"worker {self.name} already holds session {session}: {_text(body)}")
        if code == 422:
            raise Refused(f"worker {self.name} refused the start: {_text(body)}")
        return client_reply(self._good(code, body, "start_sample"))

    async def interact(self, session: int, turn: Any) -> Reply:
        code, body = await self.send("interact", write({"session_id": session, "messages": turn}))
        if code == 400:
            text = _text(body)
            if "no such session" in text.lower():
                raise SessionLost(f"worker {self.name} does not know session {session}")
            raise WorkerFailed(f"worker {self.name}: {text}")
        if code == 422:
            raise Refused(f"worker {self.name} refused the turn: {_text(body)}")
        return client_reply(self._good(code, body, "interact"))

    async def cancel(self, session: int) -> None:
        code, body = await self.send("cancel", write({"session_id": session}))
        if code != 400:  # "no such session" is what we want
            self._good(code, body, "cancel")

    async def sessions(self, limit: float) -> dict[int, Any]:
        """What the worker holds, by id. Raises where it does not say so within `limit` seconds."""
        try:
            async with asyncio.timeout(limit):
                code, body = await self.send("get_sessions", b"")
        except TimeoutError:
            raise WorkerFailed(f"worker {self.name}: no list of sessions in {limit:g} s") from None
        try:
            found = from_json(self._good(code, body, "get_sessions"))
            return {int(key): index for key, index in found.items()}
        except (ValueError, AttributeError) as error:
            raise WorkerFailed(f"worker {self.name}: no list of sessions: {error}") from None

    async def overall(self, request: Any, limit: float) -> Any:
        """A task's own summary of results, where it has one."""
        async with asyncio.timeout(limit):
            code, body = await self.send("calculate_overall", write(request))
        return from_json(self._good(code, body, "calculate_overall"))

    @abstractmethod
    async def close(self) -> None: ...

    def _good(self, code: int, body: bytes, endpoint: str) -> bytes:
        if code != 200:
            raise WorkerFailed(f"worker {self.name}: {endpoint} answered {code}: {_text(body)}")
        return body


def _text(body: bytes) -> str:
    text = body[:2000].decode("utf-8", "replace")
    try:
        detail = from_json(body).get("detail", text)
    except (ValueError, AttributeError):
        detail = text
    return str(detail)[:300]
