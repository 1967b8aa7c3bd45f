"""The DB task: an SQL agent answers questions about a table or changes it.

Invariants: the reward is computed from the committed answer or from the tables' hash, on our side of
the tools (invariant 10); the episode's database is given back on every path (invariant 11); wrong SQL
is an observation and a count (`sql_errors`), an unreachable server an infrastructure failure
(invariant 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError
from agentrl.messages import ToolSpec
from agentrl.randomness import derive
from agentrl.tasks.base import Sample, SampleRange, Task, ToolEpisode, ToolResult
from agentrl.tasks.dbbench.backend import TRUNCATED, Backend, Database
from agentrl.tasks.dbbench.expert import DBBenchExpert
from agentrl.tasks.dbbench.generator import generate
from agentrl.tasks.dbbench.options import Options, read_options
from agentrl.tasks.dbbench.prompts import Style, opening
from agentrl.tasks.dbbench.records import Record, official_path, read_records
from agentrl.tasks.dbbench.scoring import same_answer
from agentrl.tasks.dbbench.sheets import check_level
from agentrl.tasks.dbbench.sqlite import SqliteBackend

COMPACT_LIMIT = 300
"""Characters of a result in the compact style; whole tables do not fit a small policy's context."""

EXECUTE = ToolSpec(
    "execute_sql",
    "Run one MySQL statement and return its result.",
    {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "one MySQL statement"}},
        "required": ["query"],
        "additionalProperties": False,
    },
)
COMMIT = ToolSpec(
    "commit_final_answer",
    "Finish with the final answer; after a change of the table any answer will do.",
    {
        "type": "object",
        "properties": {
            "answers": {
                "type": "array",
                "items": {"type": "string"},
                "description": "the values that answer the question",
            }
        },
        "required": ["answers"],
        "additionalProperties": False,
    },
)


class DBBenchEpisode(ToolEpisode):
    """One attempt at one record, with a database of its own."""

    def __init__(
        self, record: Record, database: Database, backend: Backend, style: Style, max_turns: int
    ) -> None:
        super().__init__((EXECUTE, COMMIT), opening(record, style), max_turns)
        self.record = record
        self.database = database
        self.backend = backend
        self.style = style
        self.statements = 0
        self.sql_errors = 0

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        if name == EXECUTE.name:
            reply = await self.database.execute(arguments["query"])
            self.statements += 1
            self.sql_errors += reply.error
            return ToolResult(self._shown(reply.text))
        solved = await self._solved(arguments["answers"])
        return ToolResult("Answer committed.", reward=float(solved), done=True)

    def _shown(self, text: str) -> str:
        if self.style == "compact" and len(text) > COMPACT_LIMIT:
            return text[:COMPACT_LIMIT] + TRUNCATED
        return text

    async def _solved(self, answers: list[str]) -> bool:
        if not self.record.mutates:
            return same_answer(answers, list(self.record.label))
        expected = self.record.answer_md5 or await self._gold_hash()
        return await self.database.table_hash() == expected

    async def _gold_hash(self) -> str:
        """For a record without a hash: that of the gold statement on a second fresh database."""
        database = await self.backend.open(self.record.tables)
        try:
            await database.execute(self.record.sql)
            return await database.table_hash()
        finally:
            await database.close()

    def metrics(self, done: bool) -> dict[str, float]:
        return {
            **super().metrics(done),
            "statements": float(self.statements),
            "sql_errors": float(self.sql_errors),
        }

    async def close(self) -> None:
        await self.database.close()


class DBBenchTask(Task):
    name: ClassVar[str] = "dbbench"
    tools: ClassVar[tuple[ToolSpec, ...]] = (EXECUTE, COMMIT)

    def __init__(self, config: TaskConfig, data_root: Path | None = None) -> None:
        self.config = config
        self.data_root = data_root
        self.options = read_options(config.options)
        if config.source == "official":
            self.level = "official"
            official_path(data_root, "std")
        else:
            self.level = config.level
            check_level(config.level)
        self.backend = _make_backend(self.options)
        self._records: dict[str, tuple[Record, ...]] = {}

    def samples(self, split: str) -> Sequence[Sample]:
        if self.config.source == "official":
            return SampleRange(self.name, split, len(self._official(split)))
        sizes = {
            "train": self.config.train_samples,
            "dev": self.config.dev_samples,
            "std": self.config.std_samples,
        }
        if split not in sizes:
            raise ConfigError(f"dbbench has no split {split!r}; splits: {', '.join(sizes)}")
        return SampleRange(self.name, split, sizes[split])

    def record(self, sample: Sample) -> Record:
        """What a sample asks, solution included: for episodes, experts and tests."""
        if self.config.source == "official":
            return self._official(sample.split)[sample.index]
        return generate(self.config.level, sample.split, sample.index, self.options.seed)

    def _official(self, split: str) -> tuple[Record, ...]:
        if split not in self._records:
            self._records[split] = read_records(official_path(self.data_root, split))
        return self._records[split]

    async def start(self, sample: Sample, seed: int) -> DBBenchEpisode:
        """A fresh episode; nothing in it is random besides the sample."""
        record = self.record(sample)
        database = await self.backend.open(record.tables)
        return DBBenchEpisode(
            record, database, self.backend, self.config.prompt, self.config.max_turns
        )

    def expert(self, sample: Sample, seed: int, noise: float = 0.0) -> DBBenchExpert:
        return DBBenchExpert(
            self.record(sample),
            trust_sql=self.config.source != "official",
            quote_text=self.config.prompt == "compact",
            seed=derive(seed, "dbbench-expert", sample.split, sample.index),
            noise=noise,
        )

    async def close(self) -> None:
        await self.backend.close()


def _make_backend(options: Options) -> Backend:
    if options.backend == "sqlite":
        return SqliteBackend(options.strict, options.max_steps)
    try:
        from agentrl.tasks.dbbench.mysql import MysqlBackend
    except ImportError:
        raise ConfigError(
            "config key 'tasks.dbbench.options.backend': 'mysql' needs the extra: "
            "pip install 'agentrl-reproducible[mysql]'"
        ) from None
    assert options.server is not None
    return MysqlBackend(options.server, options.strict)
