"""Graphs in memory, embedded: one small store a sample, made from its triples.

A store is only read, so the episodes of one sample share it, and the last ones are kept. A query on it takes
a fraction of a millisecond, so it runs where it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from pyoxigraph import Literal, NamedNode, Quad, QuerySolutions, Store

from agentrl.errors import InfrastructureError
from agentrl.tasks.base import Sample
from agentrl.tasks.knowledgegraph.backend import Graph, Text, Triple, identifier
from agentrl.tasks.knowledgegraph.programs import NS, XSD

STORES_KEPT = 64


class OxigraphBackend:
    """`triples` gives a sample's graph."""

    def __init__(self, triples: Callable[[Sample], Sequence[Triple]]) -> None:
        self._store = lru_cache(STORES_KEPT)(lambda sample: make_store(triples(sample)))

    async def open(self, sample: Sample) -> Graph:
        return OxigraphGraph(self._store(sample))

    async def close(self) -> None:
        self._store.cache_clear()


def make_store(triples: Iterable[Triple]) -> Store:
    store = Store()
    store.extend(quads(triples))
    return store


class OxigraphGraph:
    def __init__(self, store: Store) -> None:
        self._store: Store | None = store

    async def select(self, query: str) -> list[str]:
        if self._store is None:
            raise InfrastructureError("the episode's graph is closed")
        found = self._store.query(query)
        assert isinstance(found, QuerySolutions)
        return sorted(
            identifier(row[0].value) for row in found if isinstance(row[0], (NamedNode, Literal))
        )

    async def close(self) -> None:
        self._store = None


def quads(triples: Iterable[Triple], graph: str | None = None) -> Iterator[Quad]:
    """The triples as RDF, in the default graph or in the one named `graph`."""
    where = (NamedNode(graph),) if graph else ()
    nodes: dict[str, NamedNode] = {}

    def node(identifier: str) -> NamedNode:
        if identifier not in nodes:
            nodes[identifier] = NamedNode(NS + identifier)
        return nodes[identifier]

    for subject, predicate, thing in triples:
        target = node(thing) if isinstance(thing, str) else _literal(thing)
        yield Quad(node(subject), node(predicate), target, *where)


def _literal(value: Text) -> Literal:
    if value.type == "english":
        return Literal(value.text, language="en")
    return Literal(value.text, datatype=NamedNode(XSD + value.type))
