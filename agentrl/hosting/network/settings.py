"""Settings of a controller and of a worker. All times are seconds."""

from __future__ import annotations

import ipaddress
import secrets
import ssl
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agentrl.errors import ConfigError

Seconds = Annotated[float, Field(gt=0)]
Port = Annotated[int, Field(ge=0, le=65535)]
MEBIBYTE = 1 << 20


class Access(BaseModel):
    """Where a server listens and who may speak to it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    token: str | None = Field(None, min_length=16)
    """Asked of every caller, as `Authorization: Bearer TOKEN` or as the password of Basic, which is
    what an address like `http://user:TOKEN@host` sends and what a browser asks for."""
    certificate: Path | None = None
    private_key: Path | None = None
    ca: Path | None = None
    """Certificate to trust of those that are called, besides the public ones."""
    max_message: int = Field(100 * MEBIBYTE, ge=1024)
    """Bytes of the largest message that is taken."""

    @model_validator(mode="after")
    def _safe(self) -> Self:
        if self.token is None and not is_loopback(self.host):
            raise ConfigError(
                f"--host {self.host}: without a token only loopback addresses are served; "
                "set AGENTRL_TOKEN, or --host 127.0.0.1"
            )
        if (self.certificate is None) != (self.private_key is None):
            raise ConfigError("--tls-certificate and --tls-key: give both or none")
        for path in (self.certificate, self.private_key, self.ca):
            if path is not None and not path.is_file():
                raise ConfigError(f"{path}: no such file; TLS needs the certificates and keys")
        return self

    def knows(self, token: str) -> bool:
        return self.token is None or secrets.compare_digest(token.encode(), self.token.encode())


class ControllerSettings(Access):
    port: Port = 5020
    grpc_port: Port | None = 5022
    """For workers that are given `grpc://host:port`; None: none."""
    state: Path | None = None
    """SQLite file of what outlives a restart; None: sessions end with the controller."""

    wait: Seconds = 3600
    """A start for a free slot."""
    queued: int = Field(10_000, ge=0)
    """Starts of one task that may wait."""
    start: Seconds = 600
    call: Seconds = 600
    cancel: Seconds = 60
    idle: Seconds = 900
    """A session of which nothing is heard is ended."""
    silent_after: Seconds = 20
    """Without a heartbeat a worker gets no new sessions; workers send one every 8 s."""
    lost_after: Seconds = 60
    """Without a heartbeat a worker's sessions end as failed."""
    sync: Seconds = 30
    """Between comparisons of a worker's sessions with ours."""
    sync_call: Seconds = 10
    grace: Seconds = 30
    """At shutdown, for calls under way."""
    transcript: int = Field(40, ge=0)
    """Newest messages of a live session that the dashboard shows."""


class WorkerSettings(Access):
    controller: str = "http://127.0.0.1:5020/api"
    """Or `grpc://host:port`, `grpcs://host:port`."""
    address: str | None = None
    """How the controller reaches this worker; None: loopback and the port."""
    port: Port = 5021
    concurrency: int = Field(16, ge=1)
    heartbeat: Seconds = 8
    retry: Seconds = 1
    idle: Seconds = 7200
    """A session without a call for so long is closed: nobody is left to end it."""
    empty_message_renews: bool = False
    """An empty assistant message keeps the session alive and is no turn (agentrl-eval's
    `--controller-renew`); off, it is a turn like any other."""


def trust(ca: Path | None) -> ssl.SSLContext | bool:
    """For a client: whom to believe."""
    return True if ca is None else ssl.create_default_context(cafile=str(ca))


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
