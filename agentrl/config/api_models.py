"""Settings of models behind an API. They never hold a key, only the name of a variable that does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from agentrl.config.section import NonNegativeFloat, PositiveFloat, PositiveInt, Section

ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""How a table, a journal and `--model` call it."""

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{2,63}")
_OURS = ("model", "messages", "input", "instructions", "system", "tools", "stream", "n")
"""Parts of a request that `parameters` must not replace."""


class PriceConfig(Section):
    """US dollars per million tokens."""

    input: NonNegativeFloat = Field(description="tokens read that no cache held")
    cached_input: NonNegativeFloat | None = Field(
        None, description="tokens read from a cache; null: as `input`"
    )
    cache_write: NonNegativeFloat | None = Field(
        None, description="tokens written to a cache; null: as `input`"
    )
    output: NonNegativeFloat = Field(description="tokens written, thinking included")


class ModelConfig(Section):
    """A model behind an API, for `agentrl evaluate --model NAME`: docs/api-models.md."""

    protocol: Literal["openai-chat", "openai-responses", "anthropic"] = Field(
        description="what the endpoint speaks: POST /chat/completions, /responses or /messages"
    )
    base_url: str = Field(description="what stands before that path: `https://api.openai.com/v1`")
    model: str = Field(min_length=1, description="as the endpoint calls it; a dated snapshot")
    key_variable: str | None = Field(
        None,
        description="environment variable that holds the key; null: the endpoint asks for none",
    )
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="further parts of a request: `{reasoning: {effort: low}}`"
    )
    max_output_tokens: PositiveInt = Field(4096, description="tokens a turn, thinking included")
    takes_temperature: bool = Field(
        True,
        description="false: no temperature is sent, and only sampled episodes are played, for models "
        "that refuse one",
    )
    takes_seed: bool = Field(False, description="openai-chat: send a seed (vLLM draws by it)")
    prompt_cache: bool = Field(False, description="anthropic: mark the conversation for its cache")
    weight: PositiveFloat = Field(
        1.0, description="share of turns where several models play one episode"
    )
    concurrency: PositiveInt = Field(8, description="requests under way at once")
    requests_per_minute: PositiveFloat | None = Field(None, description="null: no limit of ours")
    tokens_per_minute: PositiveFloat | None = Field(
        None, description="read and written; null: no limit of ours"
    )
    timeout: PositiveFloat = Field(300.0, description="seconds for one request, all in all")
    attempts: PositiveInt = Field(6, description="tries of one request")
    first_wait: NonNegativeFloat = Field(
        1.0,
        description="seconds before the second try; doubled each time, where the server names none",
    )
    longest_wait: PositiveFloat = Field(
        120.0,
        description="seconds; a server that asks for more ends the evaluation, to go on later",
    )
    prices: PriceConfig | None = Field(None, description="null: no costs")
    budget: PositiveFloat | None = Field(
        None, description="US dollars; above it the evaluation ends, to go on with a larger one"
    )

    @model_validator(mode="before")
    @classmethod
    def _no_keys_here(cls, data: Any) -> Any:
        # Before any field is looked at: the message about a wrong value shows it.
        if not isinstance(data, Mapping):
            return data
        variable = data.get("key_variable")
        if variable is not None and not (
            isinstance(variable, str) and _VARIABLE.fullmatch(variable)
        ):
            raise ValueError(
                "key_variable: not the name of an environment variable (capitals, digits, _; its value "
                "is not shown); put the key into a variable and its name here, such as OPENAI_API_KEY"
            )
        url = data.get("base_url")
        if isinstance(url, str):
            try:
                parts = urlsplit(url)
                bad = "@" in parts.netloc or bool(parts.query)
            except ValueError:
                bad = True
            if bad:
                raise ValueError(
                    "base_url: must be an address without user, password and query (its value is not "
                    "shown); keys come from key_variable"
                )
        return data

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(
                f"base_url: {self.base_url!r} is no address; write http:// or https:// in front"
            )
        for name in _OURS:
            if name in self.parameters:
                raise ValueError(f"parameters.{name}: this part of a request is not for settings")
        if self.budget is not None and self.prices is None:
            raise ValueError(f"budget: {self.budget} cannot be kept without prices; set prices")
        if self.takes_seed and self.protocol != "openai-chat":
            raise ValueError(
                f"takes_seed: protocol {self.protocol!r} knows no seed; set it to false"
            )
        if self.prompt_cache and self.protocol != "anthropic":
            raise ValueError(
                f"prompt_cache: protocol {self.protocol!r} caches by itself; set it to false"
            )
        return self
