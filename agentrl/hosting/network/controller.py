"""A running controller: HTTP, the workers' gRPC port, the state file; from start to good end."""

from __future__ import annotations

import logging
from types import TracebackType

from agentrl.errors import ConfigError
from agentrl.hosting.network.grpc_server import PREFIX, GrpcLink, GrpcServer
from agentrl.hosting.network.http_link import HttpLink
from agentrl.hosting.network.link import WireLink
from agentrl.hosting.network.server import make_app
from agentrl.hosting.network.service import ControllerService
from agentrl.hosting.network.serving import HttpServer, stop_signal
from agentrl.hosting.network.settings import ControllerSettings

log = logging.getLogger("agentrl.hosting")


class NetworkController:
    """`async with NetworkController(settings) as controller:` serves meanwhile."""

    def __init__(self, settings: ControllerSettings) -> None:
        self.settings = settings

    async def __aenter__(self) -> NetworkController:
        settings = self.settings
        self.service = ControllerService(settings)
        await self.service.open(self._link)
        self._http = HttpServer(make_app(self.service), settings, settings.port, settings.grace)
        self._grpc = None
        self.grpc_port = None
        if settings.grpc_port is not None:
            self._grpc = GrpcServer(self.service)
            try:
                self.grpc_port = await self._grpc.start(settings.grpc_port)
            except RuntimeError as error:
                raise ConfigError(f"--grpc-port {settings.grpc_port}: {error}") from None
        await self._http.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.service.begin_close()
        await self._http.close()
        await self.service.close()
        if self._grpc is not None:
            await self._grpc.close(1.0)

    @property
    def url(self) -> str:
        scheme = "http" if self.settings.certificate is None else "https"
        host = self.settings.host
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._http.port}"

    def _link(self, key: str) -> WireLink | None:
        settings = self.settings
        if not key.startswith(PREFIX):
            return HttpLink(key, settings)
        return GrpcLink(key) if settings.grpc_port is not None else None


async def run_controller(settings: ControllerSettings) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    with stop_signal() as stop:
        async with NetworkController(settings) as controller:
            access = "a token is asked for" if settings.token else "no token: this machine only"
            print(f"agentrl controller: {controller.url} ({access})", flush=True)
            if controller.grpc_port is not None:
                print(
                    f"workers over gRPC: grpc://{settings.host}:{controller.grpc_port}", flush=True
                )
            log.info("controller started", extra={"url": controller.url})
            await stop.wait()
            log.info("controller stopping", extra={"live": len(controller.service.router.sessions)})
