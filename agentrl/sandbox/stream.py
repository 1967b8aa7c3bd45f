"""File descriptors read and written from the event loop, always with a time-out and a bound."""

from __future__ import annotations

import asyncio
import os

from agentrl.sandbox.base import BrokenSandbox

CHUNK = 1 << 16


class FdStream:
    """A terminal's master end, or a socket: owned, non-blocking, closed once.

    `ended` is done when the program at the other end has exited: others that it started may keep the terminal
    open for ever.
    """

    def __init__(
        self, fd: int, ended: asyncio.Future[int] | None = None, first: bytes = b""
    ) -> None:
        self.fd = fd
        self._ended = ended
        self._first = first
        """Bytes that were read before."""
        os.set_blocking(fd, False)

    async def read(self, timeout: float) -> bytes:
        async with asyncio.timeout(timeout):
            # A program that writes without end must not keep the loop from everything else.
            await asyncio.sleep(0)
            if self._first:
                first, self._first = self._first, b""
                return first
            while True:
                over = self._ended is not None and self._ended.done()
                try:
                    return os.read(self.fd, CHUNK)
                except BlockingIOError:
                    if over:
                        return b""
                    await ready(self.fd, self._ended)
                except OSError:  # EIO: the last program closed its end
                    return b""

    async def write(self, data: bytes, timeout: float) -> None:
        view = memoryview(data)
        async with asyncio.timeout(timeout):
            while view:
                try:
                    view = view[os.write(self.fd, view) :]
                except BlockingIOError:
                    await ready(self.fd, write=True)
                except OSError as error:
                    raise BrokenSandbox(f"the terminal is gone: {error.strerror}") from None

    async def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


async def ready(fd: int, ended: asyncio.Future[int] | None = None, write: bool = False) -> None:
    """Wait until `fd` can be read (or written), or `ended`."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake(*_: object) -> None:
        if not future.done():
            future.set_result(None)

    if ended is not None:
        ended.add_done_callback(wake)
    (loop.add_writer if write else loop.add_reader)(fd, wake)
    try:
        await future
    finally:
        (loop.remove_writer if write else loop.remove_reader)(fd)
        if ended is not None:
            ended.remove_done_callback(wake)


async def collect(fd: int, into: bytearray, limit: int) -> None:
    """Read `fd` to its end; keep the first `limit` bytes."""
    os.set_blocking(fd, False)
    while True:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            await ready(fd)
            continue
        if not data:
            return
        into += data[: max(0, limit - len(into))]
        await asyncio.sleep(0)


def rest(fd: int, into: bytearray, limit: int) -> None:
    """What can be read at once, up to `limit` bytes: a program in the background may hold the pipe."""
    read = 0
    while read <= limit:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        if not data:
            return
        read += len(data)
        into += data[: max(0, limit - len(into))]
