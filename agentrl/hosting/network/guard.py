"""Who may speak to a server: the token, and no other page of a person's browser."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from agentrl.hosting.network.settings import Access, is_loopback
from agentrl.hosting.network.wire import write

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class Guard:
    """ASGI middleware: 401 without the token; 403 for a request that another site's page sends, or
    that names this machine by a name it does not have (DNS rebinding)."""

    def __init__(self, app: Asgi, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            if not self._knows(headers.get(b"authorization", b"").decode("latin-1")):
                await _refuse(send, 401, "unauthorized", "a bearer token is needed")
                return
            if self._foreign(headers):
                await _refuse(send, 403, "foreign_origin", "this is another site's request")
                return
        await self.app(scope, receive, send)

    def _knows(self, authorization: str) -> bool:
        if self.access.token is None:
            return True
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == "basic":
            try:
                value = base64.b64decode(value, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return False
        return scheme.lower() in ("bearer", "basic") and self.access.knows(value)

    def _foreign(self, headers: dict[bytes, bytes]) -> bool:
        host = headers.get(b"host", b"").decode("latin-1")
        if self.access.token is None and not is_loopback(urlsplit(f"//{host}").hostname or ""):
            return True
        origin = headers.get(b"origin")
        return origin is not None and urlsplit(origin.decode("latin-1")).netloc != host


async def _refuse(send: Any, status: int, cause: str, message: str) -> None:
    headers = [(b"content-type", b"application/json")]
    if status == 401:
        headers.append((b"www-authenticate", b'Basic realm="agentrl"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": write({"message": message, "error": cause})})
