"""Running a server in this process: a socket, uvicorn, and signals that end it in good order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator

import uvicorn

from agentrl.errors import ConfigError
from agentrl.hosting.network.guard import Asgi
from agentrl.hosting.network.settings import Access

BACKLOG = 4096


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: see `stop_signal`."""
        yield


class HttpServer:
    """Serves `app` on one socket, from `start` to `close`."""

    def __init__(self, app: Asgi, access: Access, port: int, grace: float) -> None:
        self._socket = _listen(access.host, port)
        self.port: int = self._socket.getsockname()[1]
        self._grace = grace
        config = uvicorn.Config(
            app,
            http="httptools",
            loop="none",
            lifespan="off",
            ws="none",
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, round(grace)),
            ssl_certfile=access.certificate,
            ssl_keyfile=access.private_key,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            self._server.serve(sockets=[self._socket])
        )

    async def close(self) -> None:
        """No new connections; calls under way get their answers, for at most the grace."""
        if self._task is None:
            self._socket.close()
            return
        self._server.should_exit = True
        await self._task


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, proto)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        raise ConfigError(f"--port {port}: cannot listen on {host}: {error}") from None
    return listening


@contextlib.contextmanager
def stop_signal() -> Iterator[asyncio.Event]:
    """Set by SIGTERM or Ctrl-C."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
