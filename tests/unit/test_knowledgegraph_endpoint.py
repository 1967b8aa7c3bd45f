"""The HTTP back end against a made-up server: what is sent, what is read, what counts as a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from agentrl.errors import InfrastructureError
from agentrl.messages import Status
from agentrl.tasks.base import Sample, call_message
from agentrl.tasks.knowledgegraph.backend import TooCostly
from agentrl.tasks.knowledgegraph.endpoint import EndpointBackend, EndpointGraph
from agentrl.tasks.knowledgegraph.options import EndpointOptions
from agentrl.tasks.knowledgegraph.records import Action, Record
from agentrl.tasks.knowledgegraph.schemas import EASY
from agentrl.tasks.knowledgegraph.task import KGEpisode
from agentrl.tasks.knowledgegraph.variables import Session

SAMPLE = Sample("knowledgegraph", "dev", 3)
NS = "http://rdf.freebase.com/ns/"
Answer = Callable[[str], httpx.Response]


def bindings(*values: str) -> dict[str, Any]:
    rows = [{"x": {"type": "uri", "value": value}} for value in values]
    return {"head": {"vars": ["x"]}, "results": {"bindings": rows}}


def backend(
    answer: Answer, graph: str | None = "urn:{level}:{split}:{index}", **options: Any
) -> tuple[EndpointBackend, list[dict[str, list[str]]]]:
    """A back end whose server answers ASK, and everything else by `answer(query)`."""
    seen: list[dict[str, list[str]]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        form = parse_qs(request.content.decode())
        assert (request.method, request.url.path) == ("POST", "/sparql")
        assert request.headers["accept"] == "application/sparql-results+json"
        if form["query"] == ["ASK {}"]:
            return httpx.Response(200, json={"head": {}, "boolean": True})
        seen.append(form)
        return answer(form["query"][0])

    settings = EndpointOptions(url="http://kg.test/sparql", graph=graph, **options)
    return EndpointBackend(settings, "easy", httpx.MockTransport(handle)), seen


async def test_a_query_and_its_answer() -> None:
    server, seen = backend(
        lambda q: httpx.Response(200, json=bindings(NS + "m.b", NS + "m.a", "urn:z"))
    )
    graph = await server.open(SAMPLE)
    assert await graph.select("SELECT ?x") == ["m.a", "m.b", "urn:z"]
    assert seen == [{"query": ["SELECT ?x"], "default-graph-uri": ["urn:easy:dev:3"]}]
    await graph.close()
    with pytest.raises(InfrastructureError, match="closed"):
        await graph.select("SELECT ?x")
    await server.close()
    await server.close()
    with pytest.raises(InfrastructureError, match="closed"):
        await server.open(SAMPLE)


async def test_without_a_named_graph_the_default_one_is_asked() -> None:
    server, seen = backend(lambda q: httpx.Response(200, json=bindings()), graph=None)
    assert await (await server.open(SAMPLE)).select("SELECT ?x") == []
    assert seen == [{"query": ["SELECT ?x"]}]
    await server.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(500, text="out of\nmemory"), "HTTP 500: out of memory"),
        (httpx.Response(404, text="nothing here"), "HTTP 404: nothing here"),
        (httpx.Response(200, text="<html>"), "no SPARQL JSON"),
        (httpx.Response(200, json=[]), "lacks head, results or bindings"),
        (httpx.Response(200, json={"head": {"vars": []}, "results": {"bindings": []}}), "lacks head"),
        (httpx.Response(200, json={"head": {}, "boolean": True}), "lacks head"),
        (httpx.Response(200, content=b"\xff"), "no SPARQL JSON"),
    ],
)  # fmt: skip
async def test_bad_answers_are_infrastructure_failures(answer: httpx.Response, said: str) -> None:
    server, _ = backend(lambda query: answer)
    graph = await server.open(SAMPLE)
    with pytest.raises(InfrastructureError) as caught:
        await graph.select("SELECT ?x")
    assert said in str(caught.value)
    assert "http://kg.test/sparql (options.endpoint)" in str(caught.value)
    assert "\n" not in str(caught.value)
    await server.close()


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("refused"), httpx.ConnectTimeout("slow"), httpx.RemoteProtocolError("cut")]
)  # fmt: skip
async def test_lost_connections_are_infrastructure_failures(error: httpx.HTTPError) -> None:
    def lose(query: str) -> httpx.Response:
        raise error

    server, _ = backend(lose)
    graph = await server.open(SAMPLE)
    with pytest.raises(InfrastructureError, match=type(error).__name__):
        await graph.select("SELECT ?x")
    await server.close()


async def test_a_query_that_times_out_while_the_server_lives_is_too_costly() -> None:
    def never(query: str) -> httpx.Response:
        raise httpx.ReadTimeout("")

    server, _ = backend(never)
    with pytest.raises(TooCostly):
        await (await server.open(SAMPLE)).select("SELECT ?x")
    await server.close()


async def test_a_server_that_answers_nothing_any_more_is_an_infrastructure_failure() -> None:
    def never(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("")

    options = EndpointOptions(url="http://kg.test/sparql", query_timeout=5)
    server = EndpointBackend(options, "easy", httpx.MockTransport(never))
    with pytest.raises(InfrastructureError, match="no answer within 5 s"):
        await EndpointGraph(server, None).select("SELECT ?x")
    with pytest.raises(InfrastructureError, match="no answer within 5 s"):
        await server.open(SAMPLE)
    await server.close()


async def test_a_failure_in_an_episode_is_raised_and_no_ending() -> None:
    record = Record("?", {"ann": "m.ann"}, (Action("count", ("#0",)),), ("1",), {})
    server, _ = backend(lambda query: httpx.Response(503, text="down"))
    graph = await server.open(SAMPLE)
    episode = KGEpisode(record, Session(graph, EASY.ontology, record.entities), (), "compact", 5)
    with pytest.raises(InfrastructureError, match="HTTP 503: down"):
        await episode.step(call_message("get_relations", {"variable": "ann"}))
    assert not episode.ended
    await server.close()


async def test_a_costly_question_is_an_observation() -> None:
    record = Record("?", {"ann": "m.ann"}, (Action("count", ("#0",)),), ("1",), {})

    def never(query: str) -> httpx.Response:
        raise httpx.ReadTimeout("")

    server, _ = backend(never)
    graph = await server.open(SAMPLE)
    episode = KGEpisode(record, Session(graph, EASY.ontology, record.entities), (), "compact", 5)
    step = await episode.step(call_message("get_relations", {"variable": "ann"}))
    assert step.messages[0].content == "Error: This takes too long to find out."
    assert (step.done, step.status) == (False, Status.RUNNING)
    await server.close()


async def test_a_cancelled_query_leaves_the_client_usable() -> None:
    waiting = asyncio.Event()

    class Hanging(httpx.AsyncBaseTransport):
        calls = 0

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            self.calls += 1
            if self.calls == 1:
                waiting.set()
                await asyncio.Event().wait()
            return httpx.Response(200, json=bindings(NS + "m.a"))

    server = EndpointBackend(EndpointOptions(url="http://kg.test/sparql"), "easy", Hanging())
    graph = EndpointGraph(server, None)
    running = asyncio.create_task(graph.select("SELECT ?x"))
    await waiting.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await graph.select("SELECT ?x") == ["m.a"]
    await server.close()
