"""What stands under `tasks.webshop.options` in the configuration. Unknown keys are refused (13)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentrl.errors import ConfigError
from agentrl.tasks.webshop.nouns import NounSource
from agentrl.tasks.webshop.official import Edition

IN_MEMORY = 50_000
"""Products of the largest generated shop that may do without a `cache`."""


class Options(BaseModel):
    """Settings that only this task has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    products: Annotated[int, Field(ge=100, le=2_000_000)] | None = Field(
        None, description="of a generated shop; none: as the level says"
    )
    seed: Annotated[int, Field(ge=0)] = Field(0, description="of the shop, its goals and prices")
    cache: Path | None = Field(
        None, description="folder for built shops; none: in memory, up to 50,000 products"
    )
    edition: Edition = Field("all", description="official: all products, or the 1,000 of small")
    nouns: NounSource = Field("rule", description="who finds the nouns of titles for the reward")


def read_options(options: Mapping[str, Any]) -> Options:
    """Checked options; every problem is one line that names the key."""
    try:
        return Options.model_validate(dict(options))
    except ValidationError as error:
        raise ConfigError("; ".join(map(_explain, error.errors()))) from None


def _explain(problem: Any) -> str:
    key = ".".join(("tasks.webshop.options", *map(str, problem["loc"][:1])))
    if problem["type"] == "extra_forbidden":
        return f"unknown config key {key!r}; known keys: {', '.join(Options.model_fields)}"
    return f"config key {key!r}: {problem['msg']} (got {problem['input']!r})"
