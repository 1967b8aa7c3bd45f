"""The official AgentBench records on both back ends: recorded hashes, recorded SQL, experts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl.config.models import TaskConfig
from agentrl.errors import InfrastructureError
from agentrl.tasks.dbbench.backend import Backend
from agentrl.tasks.dbbench.mariadb_server import available, private_server
from agentrl.tasks.dbbench.options import ServerOptions
from agentrl.tasks.dbbench.records import OFFICIAL_FILES, Record, read_records
from agentrl.tasks.dbbench.sqlite import SqliteBackend
from agentrl.tasks.dbbench.task import DBBenchTask

ROOT = Path(
    os.environ.get("AGENTRL_DATA_ROOT", Path(__file__).parents[2].parent / "shared/data/agentbench")
)
pytestmark = pytest.mark.skipif(
    not (ROOT / "dbbench").is_dir(),
    reason=f"no official records in {ROOT}; set AGENTRL_DATA_ROOT",
)
UNREACHABLE = {("std", 225)}
"""The gold statement does not give the recorded hash on any engine: a defect of the record."""
UNNAMED_COLUMN = {("dev", 5)}
"""Has a column without a name, which a MySQL server refuses to create."""


@pytest.fixture(scope="module")
def records() -> dict[tuple[str, int], Record]:
    return {
        (split, i): record
        for split, name in OFFICIAL_FILES.items()
        for i, record in enumerate(read_records(ROOT / "dbbench" / name))
    }


@pytest.fixture(scope="module")
def server() -> Iterator[ServerOptions]:
    if not available():
        pytest.skip("no MariaDB server here (Debian: mariadb-server)")
    with private_server() as options:
        yield options


async def mismatches(
    backend: Backend, records: dict[tuple[str, int], Record]
) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """Mutations whose gold statement misses the recorded hash, and those where it is an error."""
    missed, failed = set(), set()
    for key, record in records.items():
        if not record.mutates:
            continue
        database = await backend.open(record.tables)
        if (await database.execute(record.label[0])).error:
            failed.add(key)
        if await database.table_hash() != record.answer_md5:
            missed.add(key)
        await database.close()
    return missed, failed


def test_there_are_360_records(records: dict[tuple[str, int], Record]) -> None:
    assert len(records) == 360
    kinds = [record.kind for record in records.values()]
    assert (kinds.count("INSERT"), kinds.count("UPDATE")) == (120, 120)


async def test_gold_statements_reach_239_of_240_hashes_embedded(
    records: dict[tuple[str, int], Record],
) -> None:
    assert await mismatches(SqliteBackend(), records) == (UNREACHABLE, set())


async def test_gold_statements_reach_239_of_240_hashes_on_a_server(
    records: dict[tuple[str, int], Record], server: ServerOptions
) -> None:
    from agentrl.tasks.dbbench.mysql import MysqlBackend

    backend = MysqlBackend(server)
    assert await mismatches(backend, records) == (UNREACHABLE, set())
    await backend.close()


async def test_strict_mode_refuses_the_same_two_on_both(
    records: dict[tuple[str, int], Record], server: ServerOptions
) -> None:
    """They compare text that is no number with a number, which strict servers refuse (1292)."""
    from agentrl.tasks.dbbench.mysql import MysqlBackend

    refused = {("std", 278), ("std", 295)}
    embedded = await mismatches(SqliteBackend(strict=True), records)
    backend = MysqlBackend(server, strict=True)
    real = await mismatches(backend, records)
    await backend.close()
    assert embedded == real == (UNREACHABLE | refused, refused)


async def test_recorded_queries_read_the_same_on_both(
    records: dict[tuple[str, int], Record], server: ServerOptions
) -> None:
    from agentrl.tasks.dbbench.mysql import MysqlBackend

    backend = MysqlBackend(server)
    differ, accepted = {}, 0
    for key, record in records.items():
        if record.mutates or key in UNNAMED_COLUMN:
            continue
        real = await backend.open(record.tables)
        embedded = await SqliteBackend().open(record.tables)
        theirs, ours = await real.execute(record.sql), await embedded.execute(record.sql)
        accepted += not theirs.error
        errors = theirs.error and ours.error
        same = theirs.text[:4] == ours.text[:4] if errors else theirs == ours
        if not same:
            differ[key] = (theirs.text[:12], ours.text[:12])
        await real.close()
        await embedded.close()
    await backend.close()
    assert accepted >= 55
    assert differ == {
        # MATCH and SYSTEM are reserved words of MySQL 8: the embedded database refuses them too,
        # MariaDB refuses the first as syntax and knows nothing of the second
        ("std", 47): ("1064 (42000)", "1146 (42S02)"),
        ("std", 65): ("[('450',)]", "1064 (42000)"),
    }


@pytest.mark.parametrize("prompt", ["compact", "agentbench"])
async def test_the_expert_solves_every_record_but_the_broken_one(prompt: str) -> None:
    assert (
        await unsolved(TaskConfig(source="official", train_split="dev", prompt=prompt))
        == UNREACHABLE
    )


async def test_the_expert_solves_them_on_a_server_too(server: ServerOptions) -> None:
    options = {"backend": "mysql", "server": {"unix_socket": str(server.unix_socket)}}
    config = TaskConfig(source="official", train_split="dev", prompt="agentbench", options=options)
    assert await unsolved(config) == UNREACHABLE | UNNAMED_COLUMN


async def unsolved(config: TaskConfig) -> set[tuple[str, int]]:
    task = DBBenchTask(config, ROOT)
    out = set()
    for split in OFFICIAL_FILES:
        for sample in task.samples(split):
            try:
                episode = await task.start(sample, 0)
            except InfrastructureError as error:
                assert "cannot be stored: Incorrect column name ''" in str(error)
                out.add((split, sample.index))
                continue
            expert, news, step = task.expert(sample, 0), episode.messages, None
            while step is None or not step.done:
                step = await episode.step(expert.act(news))
                news = step.messages
            await episode.close()
            if step.reward < 1.0:
                out.add((split, sample.index))
    await task.close()
    return out
