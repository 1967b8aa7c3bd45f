"""Graphs in memory, embedded: one small store an episode, made from the sample's triples.

A query on such a store takes a fraction of a millisecond, so it runs where it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pyoxigraph import Literal, NamedNode, Quad, QuerySolutions, Store

from agentrl.errors import InfrastructureError
from agentrl.tasks.base import Sample
from agentrl.tasks.knowledgegraph.backend import Graph, Text, Triple, identifier
from agentrl.tasks.knowledgegraph.programs import NS, XSD


class OxigraphBackend:
    """`triples` gives a sample's graph."""

    def __init__(self, triples: Callable[[Sample], Sequence[Triple]]) -> None:
        self.triples = triples

    async def open(self, sample: Sample) -> Graph:
        return OxigraphGraph(self.triples(sample))

    async def close(self) -> None:
        return


class OxigraphGraph:
    def __init__(self, triples: Iterable[Triple]) -> None:
        self._store: Store | None = Store()
        self._store.extend(quads(triples))

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
    for subject, predicate, thing in triples:
        yield Quad(NamedNode(NS + subject), NamedNode(NS + predicate), _term(thing), *where)


def _term(thing: str | Text) -> NamedNode | Literal:
    if isinstance(thing, str):
        return NamedNode(NS + thing)
    if thing.type == "english":
        return Literal(thing.text, language="en")
    return Literal(thing.text, datatype=NamedNode(XSD + thing.type))
