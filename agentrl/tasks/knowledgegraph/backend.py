"""What a graph has to offer to an episode, whatever serves it.

Invariants: a graph is only read, so an episode leaves nothing behind (invariant 11); a graph that cannot
be asked is an `InfrastructureError` and never ends an episode (invariant 4); a question that the server
gives up on while it answers others is the agent's doing (`TooCostly`), so nobody dodges a zero by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from agentrl.tasks.base import Sample
from agentrl.tasks.knowledgegraph.programs import NS


@dataclass(frozen=True, slots=True)
class Text:
    """A literal."""

    text: str
    type: Literal["integer", "double", "date", "gYear", "english"]


Triple = tuple[str, str, str | Text]
"""Subject, predicate and object; what is no `Text` is an identifier of Freebase, such as `m.0zd6`."""


class TooCostly(Exception):
    """The query took too long, although the server answers others."""


class Graph(Protocol):
    """The knowledge that one episode can ask."""

    async def select(self, query: str) -> list[str]:
        """Values of the query's only variable, sorted: identifiers, or the text of literals."""
        ...

    async def close(self) -> None:
        """Give back what it holds. Idempotent."""
        ...


class Backend(Protocol):
    """Serves graphs to many episodes at once."""

    async def open(self, sample: Sample) -> Graph: ...

    async def close(self) -> None:
        """Give back what is held for all episodes. Idempotent."""
        ...


def identifier(iri: str) -> str:
    return iri.removeprefix(NS)
