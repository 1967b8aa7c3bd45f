"""What stands under `tasks.knowledgegraph.options` in the configuration. Unknown keys are refused (13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentrl.errors import ConfigError


class EndpointOptions(BaseModel):
    """A SPARQL 1.1 endpoint that holds the knowledge; it is only read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, Field(pattern=r"^https?://\S+$")]
    graph: str | None = Field(
        None,
        description="named graph to ask; `{level}`, `{split}` and `{index}` in it stand for the sample's "
        "(export.py writes such graphs); none: the endpoint's default graph, such as the whole Freebase",
    )
    connect_timeout: Annotated[float, Field(gt=0)] = 10.0
    query_timeout: Annotated[float, Field(gt=0)] = 30.0
    connections: Annotated[int, Field(ge=1)] = 16

    @property
    def graph_per_sample(self) -> bool:
        return self.graph is not None and "{index}" in self.graph


class Options(BaseModel):
    """Settings that only this task has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    backend: Literal["pyoxigraph", "endpoint"] = "pyoxigraph"
    endpoint: EndpointOptions | None = Field(None, description="for backend endpoint")
    strict: bool = Field(
        False, description="the reference's rules, which refuse a tenth of the official solutions"
    )
    one_shot: bool | None = Field(
        None,
        description="prompt agentbench: a worked example; none: as AgentBench, for official std only",
    )
    distractors: Annotated[int, Field(ge=0, le=50)] = Field(
        8,
        description="source official: invented relations beside those of the solution, for each type",
    )
    seed: Annotated[int, Field(ge=0)] = Field(
        0, description="of generated samples and surroundings"
    )

    @model_validator(mode="after")
    def _endpoint_of_its_backend(self) -> Self:
        if self.backend == "endpoint" and self.endpoint is None:
            raise ValueError("endpoint: not set, but backend is 'endpoint'; give its url")
        if self.backend != "endpoint" and self.endpoint is not None:
            raise ValueError("endpoint: set, but backend is 'pyoxigraph'; set backend: endpoint")
        return self


def read_options(options: Mapping[str, Any]) -> Options:
    """Checked options; every problem is one line that names the key."""
    try:
        return Options.model_validate(dict(options))
    except ValidationError as error:
        raise ConfigError("; ".join(map(_explain, error.errors()))) from None


def _explain(problem: Any) -> str:
    key = ".".join(("tasks.knowledgegraph.options", *map(str, problem["loc"])))
    if problem["type"] == "extra_forbidden":
        place = EndpointOptions if problem["loc"][0] == "endpoint" else Options
        return f"unknown config key {key!r}; known keys: {', '.join(place.model_fields)}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"config key {key!r}: {message} (got {problem['input']!r})"
