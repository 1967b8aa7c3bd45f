"""What stands under `tasks.dbbench.options` in the configuration. Unknown keys are refused (13)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentrl.errors import ConfigError


class ServerOptions(BaseModel):
    """Where the server is, and who may create databases and users there.

    The password comes from the environment variable that `password_variable` names, and only from
    there.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    unix_socket: Path | None = None
    host: str | None = None
    port: Annotated[int, Field(ge=1, le=65535)] = 3306
    tls: bool = Field(False, description="over TCP: encrypt, and verify the server's certificate")
    user: str = "root"
    password_variable: str = "AGENTRL_MYSQL_PASSWORD"
    connect_timeout: Annotated[float, Field(gt=0)] = 10.0
    statement_timeout: Annotated[float, Field(gt=0)] = 30.0
    connections: Annotated[int, Field(ge=1)] = 16

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if (self.unix_socket is None) == (self.host is None):
            raise ValueError("give either unix_socket or host")
        return self

    @property
    def address(self) -> str:
        return str(self.unix_socket) if self.unix_socket else f"{self.host}:{self.port}"


class Options(BaseModel):
    """Settings that only this task has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    backend: Literal["sqlite", "mysql"] = "sqlite"
    server: ServerOptions | None = Field(None, description="for backend mysql")
    strict: bool = Field(False, description="STRICT_TRANS_TABLES: bad conversions are errors")
    seed: Annotated[int, Field(ge=0)] = Field(0, description="of the generated samples")
    max_steps: Annotated[int, Field(ge=1000)] = Field(
        2_000_000, description="backend sqlite: virtual-machine steps of one statement"
    )

    @model_validator(mode="after")
    def _server_of_mysql(self) -> Self:
        if self.backend == "mysql" and self.server is None:
            raise ValueError(
                "server: not set, but backend is 'mysql'; give unix_socket or host, and user; the "
                "password goes into the environment variable AGENTRL_MYSQL_PASSWORD"
            )
        if self.backend == "sqlite" and self.server is not None:
            raise ValueError("server: set, but backend is 'sqlite'; set backend: mysql")
        return self


def read_options(options: Mapping[str, Any]) -> Options:
    """Checked options; every problem is one line that names the key."""
    try:
        return Options.model_validate(dict(options))
    except ValidationError as error:
        raise ConfigError("; ".join(map(_explain, error.errors()))) from None


def _explain(problem: Any) -> str:
    key = ".".join(("tasks.dbbench.options", *map(str, problem["loc"])))
    if problem["type"] == "extra_forbidden":
        place = ServerOptions if problem["loc"][0] == "server" else Options
        return f"unknown config key {key!r}; known keys: {', '.join(place.model_fields)}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"config key {key!r}: {message} (got {problem['input']!r})"
