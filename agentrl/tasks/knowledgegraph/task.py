"""The KG task: an agent answers a question by walking a knowledge graph.

Invariants: the reward is computed from the program of the named variable, on our side of the tools
(invariant 10); the graph is given back on every path (invariant 11); a call that cannot be carried out is an
observation and a count (`invalid_calls`), an endpoint that cannot be asked an infrastructure failure
(invariant 4). Samples on rebuilt graphs say so in `level`, wherever it is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError
from agentrl.messages import Status, ToolSpec
from agentrl.randomness import derive, stream
from agentrl.tasks.base import Sample, SampleRange, Task, ToolEpisode, ToolResult
from agentrl.tasks.knowledgegraph import generator, prompts
from agentrl.tasks.knowledgegraph.backend import Backend, Graph, Triple
from agentrl.tasks.knowledgegraph.expert import KGExpert
from agentrl.tasks.knowledgegraph.ontology import Ontology, read_ontology
from agentrl.tasks.knowledgegraph.options import read_options
from agentrl.tasks.knowledgegraph.prompts import Style
from agentrl.tasks.knowledgegraph.records import (
    OFFICIAL_FILES,
    Record,
    official_folder,
    read_records,
)
from agentrl.tasks.knowledgegraph.scoring import f1, same_set
from agentrl.tasks.knowledgegraph.surroundings import Richness, surround
from agentrl.tasks.knowledgegraph.variables import Refused, Session


def _tool(name: str, description: str, **parameters: str) -> ToolSpec:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return ToolSpec(name, description, schema)


_START = "an entity of the question by its name, or a variable such as #0"
_SET = "a variable such as #0"
TOOLS = (
    _tool(
        "get_relations",
        "List the relations that lead away from an entity or from the members of a variable.",
        variable=_START,
    ),
    _tool(
        "get_neighbors",
        "Follow one relation from an entity or from the members of a variable. Makes a new variable: "
        "everything that the relation leads to.",
        variable=_START,
        relation="one of those that get_relations lists",
    ),
    _tool(
        "intersection",
        "Make a new variable of what two variables of one type have in common.",
        variable1=_SET,
        variable2=_SET,
    ),
    _tool(
        "get_attributes",
        "List the attributes, numbers and dates, by which the members of a variable can be compared.",
        variable=_SET,
    ),
    _tool(
        "argmax",
        "Make a new variable of the members with the largest or latest value of an attribute.",
        variable=_SET,
        attribute="one of those that get_attributes lists",
    ),
    _tool(
        "argmin",
        "Make a new variable of the members with the smallest or earliest value of an attribute.",
        variable=_SET,
        attribute="one of those that get_attributes lists",
    ),
    _tool(
        "count", "Make a new variable that is the number of members of a variable.", variable=_SET
    ),
)


class KGEpisode(ToolEpisode):
    """One attempt at one record."""

    def __init__(
        self,
        record: Record,
        session: Session,
        opening: Sequence[Any],
        style: Style,
        max_turns: int,
    ) -> None:
        super().__init__(TOOLS, opening, max_turns)
        self.record = record
        self.session = session
        self.style = style
        self.f1 = 0.0

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Every tool is the method of its name; base has checked name and arguments."""
        try:
            found = await getattr(self.session, name)(*(arguments[key] for key in _order(name)))
        except Refused as refusal:
            return ToolResult(prompts.refused(self.style, str(refusal)), valid=False)
        if isinstance(found, list):
            return ToolResult(prompts.listed(self.style, found))
        return ToolResult(prompts.made(self.style, found, self.session.variables[found].type))

    async def say(self, text: str) -> ToolResult | None:
        """The final answer, which is text and no call."""
        number = prompts.read_final_answer(text)
        if number is None:
            return None
        try:
            answer = await self.session.answer(number)
        except Refused:
            return ToolResult("", done=True, status=Status.VALIDATION_FAILED, valid=False)
        self.f1 = f1(answer, self.record.answers)
        return ToolResult("", reward=float(same_set(answer, self.record.answers)), done=True)

    def no_call_text(self) -> str:
        return prompts.refused(
            self.style, "this was neither a tool call nor an answer like: Final Answer: #2"
        )

    def metrics(self, done: bool) -> dict[str, float]:
        return super().metrics(done) | ({"f1": self.f1} if done else {})

    async def close(self) -> None:
        await self.session.graph.close()


@lru_cache(maxsize=len(TOOLS))
def _order(name: str) -> tuple[str, ...]:
    return next(tuple(tool.parameters["required"]) for tool in TOOLS if tool.name == name)


class KnowledgeGraphTask(Task):
    name: ClassVar[str] = "knowledgegraph"
    tools: ClassVar[tuple[ToolSpec, ...]] = TOOLS

    def __init__(self, config: TaskConfig, data_root: Path | None = None) -> None:
        self.config = config
        self.options = read_options(config.options)
        self.official = config.source == "official"
        self._records: dict[str, tuple[Record, ...]] = {}
        if self.official:
            self.folder = official_folder(data_root)
            strict, self.everything = read_ontology(self.folder / "ontology")
            self.ontology: Ontology = strict if self.options.strict else self.everything
        else:
            self.ontology = generator.check_level(config.level).schema.ontology
        self.level = self._level()
        self.backend = self._backend()

    def _level(self) -> str:
        endpoint = self.options.endpoint
        if not self.official:
            if endpoint is not None and not endpoint.graph_per_sample:
                raise ConfigError(
                    "config key 'tasks.knowledgegraph.options.endpoint.graph': "
                    f"{endpoint.graph!r} is one graph for all, but generated samples have one each; "
                    "put {level}, {split} and {index} into its name"
                )
            return self.config.level
        rebuilt = endpoint is None or endpoint.graph_per_sample
        graph = "synthetic surroundings" if rebuilt else "graph of the endpoint"
        return f"official, {graph}{', strict' if self.options.strict else ''}"

    def _backend(self) -> Backend:
        if self.options.endpoint is not None:
            from agentrl.tasks.knowledgegraph.endpoint import EndpointBackend

            level = "official" if self.official else self.config.level
            return EndpointBackend(self.options.endpoint, level)
        from agentrl.tasks.knowledgegraph.oxigraph import OxigraphBackend

        return OxigraphBackend(self.triples)

    def samples(self, split: str) -> Sequence[Sample]:
        if split not in OFFICIAL_FILES:
            raise ConfigError(
                f"knowledgegraph has no split {split!r}; splits: {', '.join(OFFICIAL_FILES)}"
            )
        if self.official:
            return SampleRange(self.name, split, len(self._official(split)))
        return SampleRange(self.name, split, int(getattr(self.config, f"{split}_samples")))

    def record(self, sample: Sample) -> Record:
        """What a sample asks, solution included: for episodes, experts and tests."""
        if self.official:
            return self._official(sample.split)[sample.index]
        return generator.generate(self.config.level, sample.split, sample.index, self.options.seed)

    def _official(self, split: str) -> tuple[Record, ...]:
        if split not in self._records:
            self._records[split] = read_records(self.folder / OFFICIAL_FILES[split])
        return self._records[split]

    def triples(self, sample: Sample) -> tuple[Triple, ...]:
        """The sample's graph, the same for every episode."""
        if not self.official:
            return generator.triples(
                self.config.level, sample.split, sample.index, self.options.seed
            )
        record = self.record(sample)
        rng = stream(self.options.seed, "knowledgegraph-official", sample.split, sample.index)
        richness = Richness(relations=self.options.distractors)
        return surround(record, self.everything, rng, richness)

    async def start(self, sample: Sample, seed: int) -> KGEpisode:
        """A fresh episode; nothing in it is random besides the sample."""
        record, options, config = self.record(sample), self.options, self.config
        one_shot = self.official and sample.split == "std"
        if options.one_shot is not None:
            one_shot = options.one_shot
        opening = prompts.opening(record, config.prompt, config.max_turns, options.strict, one_shot)
        graph: Graph = await self.backend.open(sample)
        session = Session(graph, self.ontology, record.entities, options.strict)
        return KGEpisode(record, session, opening, config.prompt, config.max_turns)

    def expert(self, sample: Sample, seed: int, noise: float = 0.0) -> KGExpert:
        return KGExpert(
            self.record(sample),
            seed=derive(seed, "knowledgegraph-expert", sample.split, sample.index),
            noise=noise,
        )

    async def close(self) -> None:
        await self.backend.close()
