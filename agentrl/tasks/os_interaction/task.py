"""The OS task: an agent with a shell answers questions about a machine or changes it.

Invariants: the truth is known before the agent acts, outside its reach, and the state is graded when nothing of
the agent runs any more (invariant 10); the episode's sandbox is given back on every path (invariant 11); what an
agent breaks is its own end (`INVALID_ACTION`, reward 0), never an infrastructure failure (invariant 4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError, DataError, InfrastructureError
from agentrl.messages import Status, ToolSpec
from agentrl.randomness import derive
from agentrl.sandbox.base import BrokenSandbox, Provider, Sandbox
from agentrl.sandbox.files import TooLarge
from agentrl.sandbox.shell import Shell
from agentrl.tasks.base import Sample, SampleRange, Task, ToolEpisode, ToolResult
from agentrl.tasks.os_interaction.expert import OSExpert
from agentrl.tasks.os_interaction.generator import check_level, generate
from agentrl.tasks.os_interaction.grading import checks_pass, find_truth, same_answer, state_holds
from agentrl.tasks.os_interaction.options import Options, read_options
from agentrl.tasks.os_interaction.prompts import Style, observation, opening
from agentrl.tasks.os_interaction.providers import find_provider
from agentrl.tasks.os_interaction.records import Record, official_files, read_official


def _tool(name: str, what: str, parameter: str, meaning: str) -> ToolSpec:
    return ToolSpec(
        name,
        what,
        {
            "type": "object",
            "properties": {parameter: {"type": "string", "description": meaning}},
            "required": [parameter],
            "additionalProperties": False,
        },
    )


BASH = _tool("bash_action", "Run a bash script and return what it prints.", "script", "bash code")
ANSWER = _tool(
    "answer_action", "Finish with the answer to the question.", "answer", "the bare answer"
)
FINISH = _tool(
    "finish_action", "Finish where no answer is asked for.", "thought", "why the task is done"
)


class OSEpisode(ToolEpisode):
    """One attempt at one record, in a sandbox of its own."""

    def __init__(
        self,
        record: Record,
        sandbox: Sandbox,
        provider: Provider,
        truth: str | None,
        style: Style,
        max_turns: int,
        timeout: float,
    ) -> None:
        super().__init__((BASH, ANSWER, FINISH), opening(record, style), max_turns)
        self.record = record
        self.sandbox = sandbox
        self.provider = provider
        self.shell = Shell(sandbox)
        self.style = style
        self.timeout = timeout
        self._truth = truth
        self.commands = 0
        self.trouble = 0
        """Scripts that had to be stopped, or ended their shell."""

    async def begin(self, timeout: float) -> None:
        """Run the record's start script in the agent's shell, and give the shell to its user."""
        if self.record.start:
            await self.shell.run(self.record.start, timeout)
        if self.record.user is not None:
            await self.shell.close()
            self.shell = Shell(self.sandbox, self.record.user)

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        if name == BASH.name:
            try:
                reply = await self.shell.run(arguments["script"], self.timeout)
            except BrokenSandbox as error:
                text = f"The machine is broken: {error}."
                return ToolResult(text, done=True, status=Status.INVALID_ACTION, valid=False)
            self.commands += 1
            self.trouble += bool(reply.note)
            return ToolResult(observation(reply, self.style))
        solved = await self._solved(arguments["answer" if name == ANSWER.name else "thought"])
        return ToolResult("Done.", reward=float(solved), done=True)

    async def _solved(self, answer: str) -> bool:
        record = self.record
        if record.matcher is not None:
            assert self._truth is not None
            return same_answer(answer, self._truth, record.matcher, record.strip)
        await self.shell.close()

        async def fresh() -> Sandbox:
            return await self.provider.open(record.image)

        try:
            if record.checks:
                return await checks_pass(record.checks, answer, self._truth, self.sandbox, fresh)
            return await state_holds(record.wanted, self.sandbox)
        except (BrokenSandbox, TooLarge):
            return False  # the agent left a machine that cannot be looked at

    def metrics(self, done: bool) -> dict[str, float]:
        return {
            **super().metrics(done),
            "commands": float(self.commands),
            "stopped_commands": float(self.trouble),
        }

    async def close(self) -> None:
        await self.shell.close()
        await self.sandbox.close()


class OSTask(Task):
    name: ClassVar[str] = "os_interaction"
    tools: ClassVar[tuple[ToolSpec, ...]] = (BASH, ANSWER, FINISH)

    def __init__(self, config: TaskConfig, data_root: Path | None = None) -> None:
        self.config = config
        self.data_root = data_root
        self.options: Options = read_options(config.options)
        self.official = config.source == "official"
        if self.official:
            self.level = "official"
            official_files(data_root, "std")
        else:
            self.level = config.level
            check_level(config.level)
        self._records: dict[str, dict[int, Record]] = {}
        self._provider: Provider | None = None
        self._finding = asyncio.Lock()

    def samples(self, split: str) -> Sequence[Sample]:
        sizes = {
            "train": self.config.train_samples,
            "dev": self.config.dev_samples,
            "std": self.config.std_samples,
        }
        if split not in sizes:
            raise ConfigError(f"os_interaction has no split {split!r}; splits: {', '.join(sizes)}")
        if self.official:
            return [Sample(self.name, split, index) for index in self._official(split)]
        return SampleRange(self.name, split, sizes[split])

    def record(self, sample: Sample) -> Record:
        """What a sample asks, solution included: for episodes, experts and tests."""
        if not self.official:
            return generate(self.config.level, sample.split, sample.index, self.options.seed)
        records = self._official(sample.split)
        if sample.index not in records:
            raise DataError(
                f"no official record {sample.index} in {sample.split}: its script files are missing"
            )
        return records[sample.index]

    def _official(self, split: str) -> dict[int, Record]:
        if split not in self._records:
            self._records[split] = read_official(self.data_root, split)
        return self._records[split]

    async def provider(self) -> Provider:
        """Where sandboxes come from; `UnavailableError` says in one sentence why there are none."""
        async with self._finding:
            if self._provider is None:
                self._provider = await find_provider(self.options, self.official)
            return self._provider

    async def start(self, sample: Sample, seed: int) -> OSEpisode:
        """A fresh episode; nothing in it is random besides the sample and what its init script draws."""
        record = self.record(sample)
        provider = await self.provider()
        sandbox = await provider.open(record.image)
        try:
            if record.files:
                await sandbox.put(record.files)
            for number, script in enumerate(record.init):
                ran = await sandbox.run(
                    script.code, timeout=self.options.init_timeout, language=script.language
                )
                if ran.status != 0:
                    why = "took too long" if ran.status is None else ran.errors.strip()[-200:]
                    raise InfrastructureError(f"init script {number} of the record failed: {why}")
            truth = await find_truth(record, sandbox)
            episode = OSEpisode(
                record, sandbox, provider, truth, self.config.prompt, self.config.max_turns,
                self.options.command_timeout,
            )  # fmt: skip
            await episode.begin(self.options.init_timeout)
            return episode
        except BrokenSandbox as error:
            await sandbox.close()
            raise InfrastructureError(f"the sandbox could not be prepared: {error}") from None
        except BaseException:
            await sandbox.close()
            raise

    def expert(self, sample: Sample, seed: int, noise: float = 0.0) -> OSExpert:
        return OSExpert(
            self.record(sample),
            seed=derive(seed, "os-expert", sample.split, sample.index),
            noise=noise,
        )

    async def close(self) -> None:
        provider, self._provider = self._provider, None
        if provider is not None:
            await provider.close()
