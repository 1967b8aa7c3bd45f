"""What stands under `tasks.os_interaction.options` in the configuration. Unknown keys are refused (13)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentrl.errors import ConfigError
from agentrl.sandbox.base import Limits


class Options(BaseModel):
    """Settings that only this task has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sandbox: Literal["auto", "namespaces", "docker"] = Field(
        "auto", description="auto: namespaces where they work, else Docker"
    )
    tree: str = Field(
        "auto",
        description="namespaces: auto, debian, host, or a folder with a file tree of your own; auto is debian where "
        "it has been made or the samples are official, else the host's programs",
    )
    cache: Path | None = Field(
        None, description="where file trees are kept; null: the user's cache"
    )
    images: dict[str, str] = Field(
        default_factory=lambda: {
            "default": "agentrl/os-default",
            "packages": "agentrl/os-packages",
        },
        description="docker: image for each image name of a record",
    )
    docker_host: str | None = Field(
        None, description="docker: address; null: DOCKER_HOST, or the usual socket"
    )
    pool: Annotated[int, Field(ge=0)] = Field(4, description="docker: containers kept warm")
    memory_mb: Annotated[int, Field(ge=64)] = Field(
        512, description="of all programs of an episode"
    )
    disk_mb: Annotated[int, Field(ge=16)] = Field(256, description="of new and changed files")
    processes: Annotated[int, Field(ge=16)] = Field(128, description="of an episode")
    cpus: Annotated[float, Field(gt=0)] = Field(1.0, description="of an episode")
    command_timeout: Annotated[float, Field(gt=0)] = Field(
        30.0, description="seconds of one script"
    )
    init_timeout: Annotated[float, Field(gt=0)] = Field(
        30.0, description="seconds of one init script"
    )
    seed: Annotated[int, Field(ge=0)] = Field(0, description="of the generated samples")

    @property
    def limits(self) -> Limits:
        return Limits(self.memory_mb << 20, self.disk_mb << 20, self.processes, self.cpus)

    @property
    def cache_folder(self) -> Path:
        if self.cache is not None:
            return self.cache
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(base) / "agentrl" / "trees"


def read_options(options: Mapping[str, Any]) -> Options:
    """Checked options; every problem is one line that names the key."""
    try:
        return Options.model_validate(dict(options))
    except ValidationError as error:
        raise ConfigError("; ".join(map(_explain, error.errors()))) from None


def _explain(problem: Any) -> str:
    key = ".".join(("tasks.os_interaction.options", *map(str, problem["loc"])))
    if problem["type"] == "extra_forbidden":
        return f"unknown config key {key!r}; known keys: {', '.join(Options.model_fields)}"
    return f"config key {key!r}: {problem['msg']} (got {problem['input']!r})"
