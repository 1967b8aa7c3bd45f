"""A worker that is called over HTTP."""

from __future__ import annotations

import aiohttp

from agentrl.hosting.failures import Unreachable, WorkerFailed, WorkerLost
from agentrl.hosting.network.link import WireLink
from agentrl.hosting.network.settings import Access, trust

KEEP_ALIVE = 3.0
"""Seconds; less than uvicorn's 5, so that no call meets a connection that is being closed."""
GETS = frozenset({"get_sessions", "get_indices", "worker_status"})


class HttpLink(WireLink):
    ordered = False
    transport = "http"

    def __init__(self, address: str, access: Access) -> None:
        super().__init__(address)
        self.address = address.rstrip("/")
        self.max_message = access.max_message
        headers = {"content-type": "application/json"}
        if access.token is not None:
            headers["authorization"] = f"Bearer {access.token}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            # As many connections as calls under way; those are bounded by the worker's slots.
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=KEEP_ALIVE, ssl=trust(access.ca)
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    async def send(self, endpoint: str, body: bytes) -> tuple[int, bytes]:
        method = "GET" if endpoint in GETS else "POST"
        try:
            async with self._session.request(
                method,
                f"{self.address}/{endpoint}",
                data=body or None,
                allow_redirects=False,
            ) as response:
                if (response.content_length or 0) > self.max_message:
                    raise self._too_long(endpoint)
                answer = b""
                if response.content_length is not None:
                    answer = await response.read()
                else:
                    parts = []
                    size = 0
                    async for part in response.content.iter_any():
                        parts.append(part)
                        size += len(part)
                        if size > self.max_message:
                            raise self._too_long(endpoint)
                    answer = b"".join(parts)
                return response.status, answer
        except (
            aiohttp.ClientConnectorError,
            aiohttp.ConnectionTimeoutError,
            aiohttp.InvalidURL,
        ) as error:
            raise Unreachable(f"worker {self.name} cannot be reached: {error}") from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            what = str(error) or type(error).__name__
            raise WorkerLost(f"worker {self.name}: the connection broke: {what}") from None

    def _too_long(self, endpoint: str) -> WorkerFailed:
        return WorkerFailed(
            f"worker {self.name}: {endpoint} answered more than {self.max_message} bytes"
        )

    async def close(self) -> None:
        await self._session.close()
