"""The task: tools, the final answer, statuses, counted mistakes, prompts, options."""

from __future__ import annotations

from typing import Any

import pytest

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError, InfrastructureError
from agentrl.messages import Message, Status, ToolCall
from agentrl.tasks.base import Sample, Step, call_message
from agentrl.tasks.knowledgegraph import prompts
from agentrl.tasks.knowledgegraph.backend import Text, Triple
from agentrl.tasks.knowledgegraph.ontology import Ontology
from agentrl.tasks.knowledgegraph.oxigraph import OxigraphGraph, make_store
from agentrl.tasks.knowledgegraph.records import Action, Record
from agentrl.tasks.knowledgegraph.scoring import f1
from agentrl.tasks.knowledgegraph.task import KGEpisode, KnowledgeGraphTask
from agentrl.tasks.knowledgegraph.variables import Session
from agentrl.tasks.registry import create_task

ONTOLOGY = Ontology({"friend": ("person", "person")}, {"age": ("person", "number")})
TRIPLES: tuple[Triple, ...] = (
    ("m.ann", "friend", "m.bob"),
    ("m.ann", "friend", "m.cat"),
    ("m.bob", "age", Text("9", "integer")),
    ("m.cat", "age", Text("30", "integer")),
)
RECORD = Record(
    "which friend of Ann is oldest?",
    {"Ann": "m.ann"},
    (Action("get_neighbors", ("m.ann", "friend")), Action("argmax", ("#0", "age"))),
    ("m.cat",),
    {},
)


class WatchedGraph(OxigraphGraph):
    closed = 0

    async def close(self) -> None:
        self.closed += 1
        await super().close()


def begin(style: Any = "agentbench", max_turns: int = 9) -> KGEpisode:
    session = Session(WatchedGraph(make_store(TRIPLES)), ONTOLOGY, RECORD.entities)
    opening = prompts.opening(RECORD, style, max_turns, strict=False, one_shot=False)
    return KGEpisode(RECORD, session, opening, style, max_turns)


async def play(*messages: Message, **settings: Any) -> Step:
    episode = begin(**settings)
    for message in messages:
        step = await episode.step(message)
    await episode.close()
    return step


FRIENDS = call_message("get_neighbors", {"variable": "Ann", "relation": "friend"})
OLDEST = call_message("argmax", {"variable": "#0", "attribute": "age"})


def say(text: str) -> Message:
    return Message("assistant", text)


def test_the_registry_builds_it_with_seven_strict_tools() -> None:
    built = create_task("knowledgegraph", TaskConfig())
    assert (built.name, built.level) == ("knowledgegraph", "easy")
    parameters = {tool.name: tool.parameters["required"] for tool in built.tools}
    assert parameters == {
        "get_relations": ["variable"],
        "get_neighbors": ["variable", "relation"],
        "intersection": ["variable1", "variable2"],
        "get_attributes": ["variable"],
        "argmax": ["variable", "attribute"],
        "argmin": ["variable", "attribute"],
        "count": ["variable"],
    }
    for tool in built.tools:
        assert tool.parameters["additionalProperties"] is False
        assert {value["type"] for value in tool.parameters["properties"].values()} == {"string"}


@pytest.mark.parametrize(
    ("text", "reward", "f1_score"),
    [
        ("Final Answer: #1", 1.0, 1.0),
        ("I have it. Find Answer: #1", 1.0, 1.0),
        ("Final Answer:#1.", 1.0, 1.0),
        # one of the two is right: precision 1/2, recall 1
        ("Final Answer: #0", 0.0, 2 / 3),
        ("Final Answer: #1 Final Answer: #0", 1.0, 1.0),
        (r"Final\_Answer: x Final Answer: #1", 1.0, 1.0),
    ],
)
async def test_the_final_answer_is_text(text: str, reward: float, f1_score: float) -> None:
    step = await play(FRIENDS, OLDEST, say(text))
    assert (step.reward, step.done, step.status) == (reward, True, Status.COMPLETED)
    assert step.messages == ()
    assert step.metrics["success"] == reward
    assert step.metrics["f1"] == pytest.approx(f1_score)


@pytest.mark.parametrize("text", ["Final Answer: #2", "Final Answer: #99999999999999999999"])
async def test_an_answer_that_names_no_variable_fails_validation(text: str) -> None:
    step = await play(FRIENDS, OLDEST, say(text))
    assert (step.reward, step.done, step.status) == (0.0, True, Status.VALIDATION_FAILED)
    assert step.metrics["f1"] == 0.0


@pytest.mark.parametrize(
    "text",
    ["", "the cat", "Final Answer: 1", "Final Answer: m.cat", "Observation: Final Answer: #1"],
)
async def test_anything_else_without_a_call_is_a_hint_and_a_turn(text: str) -> None:
    step = await play(FRIENDS, OLDEST, say(text))
    assert (step.done, step.metrics["invalid_calls"], step.metrics["turns"]) == (False, 1, 3)
    (hint,) = step.messages
    assert hint.role == "user" and "Final Answer: #2" in hint.content


async def test_a_call_beside_a_final_answer_is_the_call() -> None:
    message = Message("assistant", "Final Answer: #0", FRIENDS.tool_calls)
    step = await play(FRIENDS, message)
    assert not step.done
    assert step.messages[0].content == "Observation: #1 is a set of person"


async def test_what_the_tools_say() -> None:
    messages = [
        call_message("get_relations", {"variable": "Ann"}),
        FRIENDS,
        call_message("get_attributes", {"variable": "#0"}),
        OLDEST,
        call_message("count", {"variable": "#0"}),
        call_message("intersection", {"variable1": "#0", "variable2": "#1"}),
        call_message("argmin", {"variable": "#0", "attribute": "size"}),
    ]
    told: dict[str, list[str]] = {}
    for style in ("agentbench", "compact"):
        episode = begin(style)
        told[style] = [(await episode.step(m)).messages[0].content for m in messages]
    assert told["agentbench"] == [
        "Observation: [friend]",
        "Observation: #0 is a set of person",
        "Observation: [age]",
        "Observation: #1 is a set of person",
        "Observation: #2 is a number",
        "Observation: #3 is a set of person",
        "Observation: Error: size is no attribute of #0.",
    ]
    assert told["compact"] == [
        "[friend]", "#0 person", "[age]", "#1 person", "#2 number", "#3 person",
        "Error: size is no attribute of #0.",
    ]  # fmt: skip


async def test_several_calls_of_a_turn_run_in_order() -> None:
    step = await play(Message("assistant", "", (*FRIENDS.tool_calls, *OLDEST.tool_calls)))
    assert [message.content[-18:] for message in step.messages] == [
        "#0 is a set of person"[-18:], "#1 is a set of person"[-18:],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("c", "get_relations", "{}"),
        ToolCall("c", "get_relations", '{"variable": 3}'),
        ToolCall("c", "get_relations", '{"variable": "Ann", "x": 1}'),
        ToolCall("c", "get_neighbors", '{"variable": "Ann"}'),
        ToolCall("c", "union", '{"variable1": "#0", "variable2": "#0"}'),
        ToolCall("c", "answer", '{"number": 0}'),
        ToolCall("c", "_add", '{"kind": "x"}'),
        ToolCall("c", "count", "#0"),
    ],
)
async def test_broken_calls_never_crash(call: ToolCall) -> None:
    episode = begin()
    step = await episode.step(Message("assistant", "", (call,)))
    assert (step.done, step.metrics["invalid_calls"]) == (False, 1)
    for message in (FRIENDS, OLDEST):
        await episode.step(message)
    assert (await episode.step(say("Final Answer: #1"))).reward == 1.0


async def test_unicode_that_is_none() -> None:
    call = call_message("get_relations", {"variable": "\ud800"})
    step = await play(call, say("\udfff"))
    assert step.metrics["invalid_calls"] == 2


async def test_the_turn_limit_gives_nothing() -> None:
    step = await play(FRIENDS, OLDEST, max_turns=2)
    assert (step.reward, step.done, step.status) == (0.0, True, Status.LIMIT_REACHED)
    step = await play(FRIENDS, OLDEST, say("Final Answer: #1"), max_turns=3)
    assert (step.reward, step.status) == (1.0, Status.COMPLETED)


async def test_the_graph_is_given_back() -> None:
    episode = begin()
    await episode.close()
    await episode.close()
    assert isinstance(episode.session.graph, WatchedGraph)
    assert episode.session.graph._store is None


def test_prompts() -> None:
    (message,) = prompts.opening(RECORD, "compact", 8, strict=False, one_shot=True)
    assert (message.role, message.content) == (
        "user", "which friend of Ann is oldest? entities Ann",
    )  # fmt: skip
    system, user = prompts.opening(RECORD, "agentbench", 15, strict=False, one_shot=False)
    assert user.content == "which friend of Ann is oldest?\nEntities: [Ann]"
    assert "at most 15 turns" in system.content and "name of a type" in system.content
    strict, _ = prompts.opening(RECORD, "agentbench", 15, strict=True, one_shot=True)
    assert "name of a type" not in strict.content and "Norland" in strict.content


def test_the_worked_example_is_read_as_it_is_written() -> None:
    """Its replies and its end have the form of real ones."""
    lines = prompts.EXAMPLE.splitlines()
    made = [n for line in lines if (n := prompts.read_made(line)) is not None]
    assert made == [0, 1, 2, 3, 4]
    assert prompts.read_final_answer(lines[-1]) == 4


async def test_one_shot_is_for_official_std_unless_it_is_set() -> None:
    for wanted in (True, False, None):
        task = KnowledgeGraphTask(TaskConfig(prompt="agentbench", options={"one_shot": wanted}))
        episode = await task.start(Sample("knowledgegraph", "std", 0), 0)
        assert ("Norland" in episode.messages[0].content) == (wanted is True)


@pytest.mark.parametrize(
    ("answer", "gold", "value"),
    [
        (["a"], ["a"], 1.0),
        (["a", "a"], ["a"], 1.0),
        ([], ["a"], 0.0),
        (["b"], ["a"], 0.0),
        (["a", "b", "c"], ["a"], 0.5),
        (["a"], ["a", "b", "c", "d"], 0.4),
    ],
)
def test_f1(answer: list[str], gold: list[str], value: float) -> None:
    assert f1(answer, gold) == pytest.approx(value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"back_end": "x"}, "unknown config key 'tasks.knowledgegraph.options.back_end'; known keys: backend"),
        ({"backend": "virtuoso"}, "config key 'tasks.knowledgegraph.options.backend': "),
        ({"backend": "endpoint"}, "endpoint: not set, but backend is 'endpoint'; give its url"),
        ({"endpoint": {"url": "http://x/sparql"}}, "endpoint: set, but backend is 'pyoxigraph'"),
        ({"backend": "endpoint", "endpoint": {"url": "x"}}, "tasks.knowledgegraph.options.endpoint.url"),
        (
            {"backend": "endpoint", "endpoint": {"url": "http://x", "user": "y"}},
            "unknown config key 'tasks.knowledgegraph.options.endpoint.user'; known keys: url, graph",
        ),
        (
            {"backend": "endpoint", "endpoint": {"url": "http://x"}},
            "endpoint.graph': None is one graph for all, but generated samples have one each",
        ),
        ({"distractors": -1}, "config key 'tasks.knowledgegraph.options.distractors': "),
    ],
)  # fmt: skip
def test_wrong_options_are_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        KnowledgeGraphTask(TaskConfig(options=options))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_levels_and_splits_are_refused() -> None:
    with pytest.raises(ConfigError, match="level"):
        KnowledgeGraphTask(TaskConfig(level="extreme"))
    with pytest.raises(ConfigError, match="no split 'test'"):
        KnowledgeGraphTask(TaskConfig()).samples("test")


async def test_an_unreachable_endpoint_is_an_infrastructure_error() -> None:
    endpoint = {"url": "http://127.0.0.1:1/sparql", "graph": "urn:{level}:{split}:{index}"}
    options = {"backend": "endpoint", "endpoint": endpoint}
    task = KnowledgeGraphTask(TaskConfig(options=options))
    with pytest.raises(InfrastructureError, match=r"SPARQL endpoint http://127.0.0.1:1/sparql"):
        await task.start(Sample("knowledgegraph", "train", 0), 0)
    await task.close()
    await task.close()


async def test_samples_are_as_many_as_configured_and_stores_are_shared() -> None:
    task = KnowledgeGraphTask(TaskConfig(train_samples=5, dev_samples=3, std_samples=2))
    assert [len(task.samples(split)) for split in ("train", "dev", "std")] == [5, 3, 2]
    sample = task.samples("train")[4]
    first, second = [(await task.start(sample, seed)).session.graph for seed in (0, 1)]
    assert isinstance(first, OxigraphGraph) and isinstance(second, OxigraphGraph)
    assert first._store is second._store is not None
    await first.close()
    assert await second.select("SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }") != ["0"]
