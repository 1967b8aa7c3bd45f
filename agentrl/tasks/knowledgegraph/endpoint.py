"""Graphs on a SPARQL 1.1 endpoint over HTTP: the whole Freebase, or graphs that `export` wrote.

The endpoint is only read: queries go by POST, the named graph as `default-graph-uri`, the answer comes as
SPARQL JSON (SPARQL 1.1 Protocol §2.1). Invariants: whatever goes wrong between here and the answer is an
`InfrastructureError` that names the endpoint (invariant 4); only where a query has timed out and the
endpoint then answers another one at once is it `TooCostly`. The client is closed with the back end.
"""

from __future__ import annotations

import json
from typing import Any

import httpx

from agentrl.errors import InfrastructureError
from agentrl.tasks.base import Sample
from agentrl.tasks.knowledgegraph.backend import TooCostly, identifier
from agentrl.tasks.knowledgegraph.options import EndpointOptions

MAX_BYTES = 64 * 1024 * 1024
"""Of one answer."""
_PROBE = "ASK {}"


class EndpointBackend:
    """One client for all episodes; `level` is what `{level}` in the graph's name stands for."""

    def __init__(
        self,
        options: EndpointOptions,
        level: str,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.options = options
        self.level = level
        self._closed = False
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(
                options.query_timeout, connect=options.connect_timeout, pool=None
            ),
            limits=httpx.Limits(max_connections=options.connections),
            headers={"Accept": "application/sparql-results+json"},
            transport=transport,
        )

    async def open(self, sample: Sample) -> EndpointGraph:
        """Asks once whether the endpoint answers, so that an episode does not begin in vain."""
        if self._closed:
            raise InfrastructureError("the SPARQL back end is closed")
        await self._probe()
        return EndpointGraph(self, graph_name(self.options, self.level, sample))

    async def close(self) -> None:
        self._closed = True
        await self._client.aclose()

    async def ask(self, query: str, graph: str | None) -> Any:
        """The JSON of the answer; `httpx.ReadTimeout` passes."""
        form = {"query": query} | ({"default-graph-uri": graph} if graph else {})
        try:
            async with self._client.stream("POST", self.options.url, data=form) as response:
                body = bytearray()
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > MAX_BYTES:
                        raise self._failed(f"an answer of more than {MAX_BYTES} bytes")
                if response.status_code != 200:
                    text = bytes(body[:300]).decode("utf-8", "replace")
                    raise self._failed(f"HTTP {response.status_code}: {' '.join(text.split())}")
                return json.loads(body)
        except httpx.ReadTimeout:
            raise
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError) as error:
            raise self._failed(f"{type(error).__name__}: {error}") from None
        except ValueError as error:
            raise self._failed(f"no SPARQL JSON: {error}") from None

    async def select(self, query: str, graph: str | None) -> list[str]:
        try:
            found = await self.ask(query, graph)
        except httpx.ReadTimeout:
            await self._probe()
            raise TooCostly from None
        try:
            name = found["head"]["vars"][0]
            return sorted(
                identifier(str(row[name]["value"]))
                for row in found["results"]["bindings"]
                if name in row
            )
        except (KeyError, IndexError, TypeError):
            raise self._failed("the answer lacks head, results or bindings") from None

    async def _probe(self) -> None:
        """Raises where the endpoint does not answer anything any more."""
        try:
            await self.ask(_PROBE, None)
        except httpx.ReadTimeout:
            raise self._failed(f"no answer within {self.options.query_timeout:g} s") from None

    def _failed(self, why: str) -> InfrastructureError:
        return InfrastructureError(f"SPARQL endpoint {self.options.url} (options.endpoint): {why}")


class EndpointGraph:
    """What one episode asks; holds nothing of its own."""

    def __init__(self, backend: EndpointBackend, name: str | None) -> None:
        self.backend = backend
        self.name = name
        self._closed = False

    async def select(self, query: str) -> list[str]:
        if self._closed:
            raise InfrastructureError("the episode's graph is closed")
        return await self.backend.select(query, self.name)

    async def close(self) -> None:
        self._closed = True


def graph_name(options: EndpointOptions, level: str, sample: Sample) -> str | None:
    if options.graph is None:
        return None
    parts = {"level": level, "split": sample.split, "index": str(sample.index)}
    name = options.graph
    for key, value in parts.items():
        name = name.replace(f"{{{key}}}", value)
    return name
