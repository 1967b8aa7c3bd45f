"""One vLLM server as the engine sees it: token ids in, token ids and log-probabilities out, over HTTP.

Every failure has one of two types: `ReplicaError` where another replica, or this one after a restart,
may do better, and `InfrastructureError` where none will. The server is vLLM's OpenAI-compatible one with
VLLM_SERVER_DEV_MODE=1, which `/pause`, `/collective_rpc` and `/weight_checker` need.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import httpx

from agentrl.errors import ConfigError, InfrastructureError

MODEL = "policy"
"""Name under which every server serves."""


class ReplicaError(InfrastructureError):
    """This server cannot serve now: it is gone, silent, or broke."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event of a stream brings; `finish` is None but at the end."""

    token_ids: list[int]
    logprobs: list[float]
    finish: str | None


class VllmServer:
    """HTTP client of the server at `url`.

    Args:
        silent_after: seconds without an event after which a request counts as hung.
        load_seconds: how long a reload may take.
    """

    def __init__(self, url: str, *, silent_after: float = 120.0, load_seconds: float = 600.0):
        self.url = url.rstrip("/")
        self.silent_after, self._load = silent_after, load_seconds
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        # No proxy of the surroundings: servers are ours.
        self._http = httpx.AsyncClient(
            base_url=self.url, timeout=silent_after, limits=limits, trust_env=False
        )

    async def healthy(self, seconds: float = 5.0) -> bool:
        try:
            return (await self._http.get("/health", timeout=seconds)).is_success
        except httpx.HTTPError:
            return False

    async def check_model(self, tokens: int) -> None:
        """Raises `ConfigError` unless the server has model `MODEL` with room for `tokens` tokens."""
        answer = await self._request("GET", "/v1/models")
        found = {model["id"]: model.get("max_model_len") for model in answer["data"]}
        if MODEL not in found:
            raise ConfigError(
                f"config key 'rollout.vllm.servers': {self.url} serves {', '.join(found) or 'nothing'}, "
                f"not {MODEL!r}; start it by `agentrl serve`, or with --served-model-name {MODEL}"
            )
        room = found[MODEL]
        if room is not None and room < tokens:
            raise ConfigError(
                f"config key 'rollout.vllm.servers': {self.url} has room for {room} tokens, less than "
                f"rollout.max_total_tokens ({tokens}); start it with --max-model-len {tokens}"
            )

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[Piece]:
        """Pieces of one completion. Leaving it early ends the request at the server."""
        body = {**request, "model": MODEL, "stream": True, "return_token_ids": True, "logprobs": 0}
        try:
            async with self._http.stream(
                "POST", "/v1/completions", json=body, timeout=self.silent_after
            ) as answer:
                if not answer.is_success:
                    raise self._failure(answer.status_code, (await answer.aread()).decode())
                async with aclosing(answer.aiter_lines()) as lines:  # type: ignore[type-var]
                    async for line in lines:
                        data = line.removeprefix("data: ").strip()
                        if data == "[DONE]":
                            return
                        if data:
                            yield self._piece(data)
        except httpx.HTTPError as error:
            raise self._gone(error) from None
        raise ReplicaError(f"vLLM server {self.url}: a stream ended without its end")

    def _piece(self, data: str) -> Piece:
        try:
            event = json.loads(data)
            if "error" in event:
                raise ReplicaError(f"vLLM server {self.url}: {_message(event)}")
            choice = event["choices"][0]
            ids = [int(token) for token in choice.get("token_ids") or ()]
            found = (choice.get("logprobs") or {}).get("token_logprobs") or []
            piece = Piece(ids, [float(value) for value in found], choice.get("finish_reason"))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise ReplicaError(
                f"vLLM server {self.url} answers with what is no completion: {error!r}"
            ) from None
        if len(piece.token_ids) != len(piece.logprobs):
            raise InfrastructureError(
                f"vLLM server {self.url} sends {len(piece.token_ids)} ids with "
                f"{len(piece.logprobs)} log-probabilities; it must know return_token_ids (vLLM 0.11)"
            )
        return piece

    async def pause(self) -> None:
        """End every running completion as it stands, forget the prefix cache, start none."""
        await self._request("POST", "/pause", params={"mode": "abort", "clear_cache": True})

    async def resume(self) -> None:
        await self._request("POST", "/resume")

    async def reload(self, folder: str) -> None:
        """Take the weights of a policy folder that the server can read."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        await self._request("POST", "/collective_rpc", json=body, timeout=self._load)
        await self._request("POST", "/reset_prefix_cache")

    async def digest(self) -> str:
        """Checksum of the weights that the server holds, computed by it."""
        body = {"action": "checksum"}
        answer = await self._request("POST", "/weight_checker", json=body, timeout=self._load)
        told = json.dumps(answer["checksums"], sort_keys=True)
        return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()

    async def metric(self, name: str) -> float:
        """Sum of a Prometheus counter over its labels."""
        text = (await self._http.get("/metrics")).text
        lines = (line for line in text.splitlines() if line.startswith((name + "{", name + " ")))
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    async def close(self) -> None:
        await self._http.aclose()

    async def _request(self, method: str, path: str, **given: Any) -> Any:
        try:
            answer = await self._http.request(method, path, **given)
        except httpx.HTTPError as error:
            raise self._gone(error) from None
        if not answer.is_success:
            raise self._failure(answer.status_code, answer.text, path)
        try:
            return answer.json() if answer.content else {}
        except ValueError:
            raise ReplicaError(f"vLLM server {self.url}{path} answers with no JSON") from None

    def _gone(self, error: httpx.HTTPError) -> ReplicaError:
        if isinstance(error, httpx.TimeoutException):
            return ReplicaError(f"vLLM server {self.url}: silent for {self.silent_after:g} s")
        return ReplicaError(f"vLLM server {self.url}: {error or type(error).__name__}")

    def _failure(self, status: int, text: str, path: str = "/v1/completions") -> Exception:
        with suppress(ValueError):
            text = _message(json.loads(text))
        said = f"vLLM server {self.url}{path}: {status}, {text.strip()[:300]}"
        if status == 404 and path != "/v1/completions":
            return InfrastructureError(f"{said}; start it with VLLM_SERVER_DEV_MODE=1")
        return ReplicaError(said) if status >= 500 or status == 429 else InfrastructureError(said)


def _message(data: Any) -> str:
    error = data.get("error", data) if isinstance(data, dict) else data
    return str(error.get("message", error) if isinstance(error, dict) else error)
