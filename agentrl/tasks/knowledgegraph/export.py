"""Graphs of samples as N-Quads, for an endpoint to load: see `options.EndpointOptions.graph`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyoxigraph import RdfFormat, serialize

from agentrl.tasks.base import Sample
from agentrl.tasks.knowledgegraph.endpoint import graph_name
from agentrl.tasks.knowledgegraph.options import EndpointOptions
from agentrl.tasks.knowledgegraph.oxigraph import quads
from agentrl.tasks.knowledgegraph.task import KnowledgeGraphTask

GRAPH = "urn:agentrl:knowledgegraph:{level}:{split}:{index}"
"""A name for each sample's graph, for `options.endpoint.graph`."""


def write_graphs(
    task: KnowledgeGraphTask, samples: Iterable[Sample], path: Path, graph: str = GRAPH
) -> int:
    """Write the graphs of `samples` to one N-Quads file; returns the number of quads."""
    options = EndpointOptions(url="http://localhost", graph=graph)
    level = "official" if task.official else task.config.level
    count = 0
    with path.open("wb") as file:
        for sample in samples:
            found = list(quads(task.triples(sample), graph_name(options, level, sample)))
            count += len(found)
            serialize(found, file, format=RdfFormat.N_QUADS)
    return count
