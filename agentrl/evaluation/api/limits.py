"""When the next request may start, by a model's limits a minute and by what its server asks for."""

from __future__ import annotations

import asyncio


class Limits:
    """Requests start evenly; tokens are paid once they are known, and more requests wait for that.

    Average rates hold whatever happens; at a moment there may be more tokens by those of the
    requests under way.
    """

    def __init__(self, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        self._gap = 60 / requests_per_minute if requests_per_minute else 0.0
        self._token = 60 / tokens_per_minute if tokens_per_minute else 0.0
        self._next = self._paid = self._paused = float("-inf")

    async def turn(self) -> None:
        """Wait for the turn of one request."""
        time = asyncio.get_running_loop().time
        start = max(time(), self._next)
        self._next = start + self._gap
        while (wait := max(start, self._paid, self._paused) - time()) > 0:  # noqa: ASYNC110  (what is waited for moves)
            await asyncio.sleep(wait)

    def used(self, tokens: int) -> None:
        now = asyncio.get_running_loop().time()
        self._paid = max(now, self._paid) + tokens * self._token

    def pause(self, seconds: float) -> None:
        """No request starts for so long."""
        self._paused = max(self._paused, asyncio.get_running_loop().time() + seconds)
