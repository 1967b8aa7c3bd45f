"""A real SPARQL server: the same answers as the embedded graphs, and failures that are failures."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyoxigraph import RdfFormat, serialize

from agentrl.config.models import TaskConfig
from agentrl.errors import InfrastructureError
from agentrl.messages import Message
from agentrl.tasks.base import Sample, call_message
from agentrl.tasks.knowledgegraph.endpoint import EndpointBackend, EndpointGraph
from agentrl.tasks.knowledgegraph.export import GRAPH, write_graphs
from agentrl.tasks.knowledgegraph.generator import LEVELS
from agentrl.tasks.knowledgegraph.options import EndpointOptions
from agentrl.tasks.knowledgegraph.oxigraph import OxigraphGraph, make_store, quads
from agentrl.tasks.knowledgegraph.programs import Count, members, outgoing
from agentrl.tasks.knowledgegraph.task import KnowledgeGraphTask
from agentrl.tasks.knowledgegraph.virtuoso_server import available, private_server
from agentrl.tasks.play import play_expert
from tests import knowledgegraph_reference as reference

ROOT = Path(
    os.environ.get("AGENTRL_DATA_ROOT", Path(__file__).parents[2].parent / "shared/data/agentbench")
)
pytestmark = pytest.mark.skipif(
    not available(), reason="no Virtuoso here (Debian: virtuoso-opensource-7-bin)"
)
GRAPHS = 12
PROGRAMS = 60
"""Of each graph: 720 in all, each asked for its members, their number and their predicates."""
RANDOM_GRAPH = "urn:agentrl:test:{}"
SAMPLES = 12
"""Of each level, and of the official `std` records where they are."""


def samples_of(task: KnowledgeGraphTask) -> list[Sample]:
    return [task.samples("std")[index] for index in range(SAMPLES)]


def configs() -> dict[str, TaskConfig]:
    out = {level: TaskConfig(level=level, max_turns=15) for level in LEVELS}
    if (ROOT / "knowledgegraph").is_dir():
        out["official"] = TaskConfig(source="official", prompt="agentbench", max_turns=15)
    return out


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("quads")
    files = []
    for name, config in configs().items():
        task = KnowledgeGraphTask(config, ROOT)
        files.append(folder / f"{name}.nq")
        assert write_graphs(task, samples_of(task), files[-1]) > 0
    files.append(folder / "random.nq")
    with files[-1].open("wb") as file:
        for number in range(GRAPHS):
            triples = reference.random_graph(random.Random(number))
            found = quads(triples, RANDOM_GRAPH.format(number))
            serialize(found, file, format=RdfFormat.N_QUADS)
    with private_server(files) as address:
        yield address


@pytest.fixture
async def server(url: str) -> AsyncIterator[EndpointBackend]:
    backend = EndpointBackend(EndpointOptions(url=url), "")
    yield backend
    await backend.close()


async def test_720_random_programs_agree(server: EndpointBackend) -> None:
    """Both with each other and with the meaning of the programs in Python."""
    kinds: dict[str, int] = {}
    differ = []
    for number in range(GRAPHS):
        triples = reference.random_graph(random.Random(number))
        embedded = OxigraphGraph(make_store(triples))
        real = EndpointGraph(server, RANDOM_GRAPH.format(number))
        rng = random.Random(1000 + number)
        for _ in range(PROGRAMS):
            program = reference.random_program(rng, rng.randint(1, 4))
            kinds[type(program).__name__] = kinds.get(type(program).__name__, 0) + 1
            without = rng.choice([(), (rng.choice(reference.ENTITIES),)])
            expected = reference.members(program, triples)
            for query, meant in (
                (members(program), expected),
                (members(program, without), expected - set(without)),
                (members(Count(program)), {str(len(expected))}),
                (outgoing(program), reference.outgoing(program, triples)),
            ):
                ours, theirs = await embedded.select(query), await real.select(query)
                if not ours == theirs == sorted(meant):
                    differ.append((program, ours, theirs, sorted(meant)))
    assert differ == []
    assert min(kinds.values()) >= 100 and set(kinds) == {"Join", "And", "Extreme"}


@pytest.mark.parametrize("name", [*LEVELS, "official"])
async def test_episodes_read_the_same_on_both(url: str, name: str) -> None:
    """Experts without noise and with it, so that wrong ways are walked too."""
    config = configs().get(name)
    if config is None:
        pytest.skip(f"no official records in {ROOT}; set AGENTRL_DATA_ROOT")
    options = {"backend": "endpoint", "endpoint": {"url": url, "graph": GRAPH}}
    embedded = KnowledgeGraphTask(config, ROOT)
    real = KnowledgeGraphTask(config.model_copy(update={"options": options}), ROOT)
    assert real.level == embedded.level
    for sample in samples_of(embedded):
        for noise in (0.0, 0.6):
            ours = await play_expert(embedded, sample, 7, noise)
            theirs = await play_expert(real, sample, 7, noise)
            assert ours == theirs
            assert noise or ours.last.reward == 1.0
    await embedded.close()
    await real.close()


async def test_a_sample_whose_graph_is_not_loaded_is_empty(url: str) -> None:
    options = {"backend": "endpoint", "endpoint": {"url": url, "graph": "urn:nowhere:{index}"}}
    task = KnowledgeGraphTask(TaskConfig(options=options))
    sample = task.samples("std")[0]
    episode = await task.start(sample, 0)
    (name, *_) = task.record(sample).entities
    step = await episode.step(call_message("get_relations", {"variable": name}))
    assert step.messages[0].content == "[]"
    await episode.close()
    await task.close()


async def test_a_server_that_goes_away_is_an_infrastructure_error(tmp_path: Path) -> None:
    task = KnowledgeGraphTask(TaskConfig())
    samples = samples_of(task)[:1]
    write_graphs(task, samples, tmp_path / "one.nq")
    with private_server([tmp_path / "one.nq"]) as url:
        options = {"backend": "endpoint", "endpoint": {"url": url, "graph": GRAPH}}
        real = KnowledgeGraphTask(TaskConfig(options=options))
        episode = await real.start(samples[0], 0)
        expert = real.expert(samples[0], 0)
        step = await episode.step(expert.act(episode.messages))
        assert not step.metrics["invalid_calls"]
    last: list[Message] = list(step.messages)
    with pytest.raises(InfrastructureError, match=r"SPARQL endpoint http://127\.0\.0\.1:"):
        for _ in range(9):
            last = list((await episode.step(expert.act(last))).messages)
    assert not episode.ended
    with pytest.raises(InfrastructureError, match="SPARQL endpoint"):
        await real.start(samples[0], 0)
    await episode.close()
    await real.close()


def test_broken_quads_are_named_and_nothing_stays(tmp_path: Path) -> None:
    broken = tmp_path / "broken.nq"
    broken.write_text("<urn:a> <urn:b> nonsense", encoding="utf-8")
    before = virtuoso_processes()
    with pytest.raises(InfrastructureError, match="isql-vt failed"), private_server([broken]):
        raise AssertionError("the server must not be given out")
    assert virtuoso_processes() == before


def test_the_server_ends_with_a_killed_process() -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv here (Debian: util-linux)")
    code = (
        "import os, signal; from agentrl.tasks.knowledgegraph.virtuoso_server import private_server\n"
        "with private_server(): os.kill(os.getpid(), signal.SIGKILL)"
    )
    before, folders = virtuoso_processes(), data_folders()
    done = subprocess.run([sys.executable, "-c", code])
    for folder in data_folders() - folders:
        shutil.rmtree(folder, ignore_errors=True)  # this much nobody could do for it
    assert done.returncode == -signal.SIGKILL
    for process in virtuoso_processes() - before:
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(int(process))
            ended, _, _ = select.select([handle], [], [], 30)
            os.close(handle)
            assert ended
    assert virtuoso_processes() <= before


def data_folders() -> set[Path]:
    places = (Path("/dev/shm"), Path(tempfile.gettempdir()))
    return {folder for place in places for folder in place.glob("agentrl-virtuoso-*")}


def virtuoso_processes() -> set[str]:
    """Ids of running Virtuoso servers."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            state = path.with_name("stat").read_text().rpartition(")")[2].split()[0]
            if path.read_text().startswith("virtuoso-t") and state != "Z":
                found.add(path.parent.name)
        except OSError:
            continue  # it has ended meanwhile
    return found
