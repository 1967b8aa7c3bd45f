"""Stand-ins for the outer parts of a rollout, with a version counter instead of mocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentrl.errors import InfrastructureError
from agentrl.hosting.client import Opening
from agentrl.messages import Message, ToolSpec
from agentrl.rollout.engine import Completion, Sampling
from agentrl.rollout.weights import file_digest
from agentrl.tasks.base import (
    Episode,
    Expert,
    Sample,
    SampleRange,
    Step,
    Task,
    ToolEpisode,
    ToolResult,
    call_message,
)

SAY = ToolSpec(
    "say",
    "Say something.",
    {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
)


class EchoEpisode(ToolEpisode):
    """Echoes what is said; saying "stop" wins."""

    def __init__(self, opening: str, max_turns: int = 5) -> None:
        super().__init__((SAY,), (Message("user", opening),), max_turns)
        self.heard: list[str] = []
        self.closed = 0

    async def call(self, name: str, arguments: dict[str, str]) -> ToolResult:
        self.heard.append(arguments["text"])
        won = arguments["text"] == "stop"
        return ToolResult(f"You said {arguments['text']}", float(won), done=won)

    async def close(self) -> None:
        self.closed += 1


class EchoTask(Task):
    """Tells a number and echoes; its expert says the number, then stops."""

    name = "echo"
    tools = (SAY,)
    level = "easy"

    def __init__(self, config: object = None, data_root: Path | None = None, max_turns: int = 5):
        self.max_turns = max_turns
        self.started: list[EchoEpisode] = []

    def samples(self, split: str) -> Sequence[Sample]:
        return SampleRange(self.name, split, 1000)

    async def start(self, sample: Sample, seed: int) -> Episode:
        self.started.append(EchoEpisode(f"Say {sample.index}", self.max_turns))
        return self.started[-1]

    def expert(self, sample: Sample, seed: int, noise: float = 0.0) -> Expert:
        return _EchoExpert(["stop"] if noise else [str(sample.index), "stop"])


class _EchoExpert(Expert):
    def __init__(self, words: Iterable[str]) -> None:
        self._words = iter(words)

    def act(self, messages: Sequence[Message]) -> Message:
        return call_message("say", {"text": next(self._words)})


@dataclass
class FakeClient:
    """Sessions of one task in process; counts what is open, fails and dawdles on demand."""

    task: Task = field(default_factory=EchoTask)
    before: Callable[[str, int], None] | None = None
    """Called with ("start" | "interact" | "cancel", session) first; may raise."""
    pauses: int = 0
    """Turns of the event loop that every call takes."""

    def __post_init__(self) -> None:
        self.live: dict[int, Episode] = {}
        self.calls: list[tuple[str, int]] = []
        self._next = 1

    async def start(self, sample: Sample, seed: int) -> Opening:
        session, self._next = self._next, self._next + 1
        await self._enter("start", session)
        episode = await self.task.start(sample, seed)
        self.live[session] = episode
        return Opening(session, episode.messages, self.task.tools)

    async def interact(self, session: int, message: Message) -> Step:
        await self._enter("interact", session)
        step = await self.live[session].step(message)
        if step.done:
            await self.live.pop(session).close()
        return step

    async def cancel(self, session: int) -> None:
        await self._enter("cancel", session)
        if (episode := self.live.pop(session, None)) is not None:
            await episode.close()

    async def _enter(self, verb: str, session: int) -> None:
        self.calls.append((verb, session))
        for _ in range(self.pauses):
            await asyncio.sleep(0)
        if self.before is not None:
            self.before(verb, session)


@dataclass
class FakeEngine:
    """Answers with scripted token ids and counts versions.

    `script(prompt_ids, turn, session)` gives the ids of a completion; each token's log-probability
    is minus its id / 1000, so a test can say what belongs where. `ignores_updates`: "all" takes
    neither version nor weights, "weights" counts the version only.
    """

    script: Callable[[Sequence[int], int, int], Sequence[int]]
    version: int = 0
    ignores_updates: str = ""
    finish: Callable[[int], str] = lambda turn: "stop"
    fail: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        self.digest = "initial"
        self.requests: list[tuple[int, list[int], Sampling, Completion | None]] = []
        self.released: list[int] = []
        self.drops = 0
        self._turns: dict[int, int] = {}

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        session: int,
        partial: Completion | None = None,
    ) -> Completion:
        turn = self._turns[session] = self._turns.get(session, -1) + 1
        self.requests.append((session, list(prompt_ids), sampling, partial))
        await asyncio.sleep(0)
        if self.fail is not None:
            self.fail(turn)
        done = partial or Completion([], [], [], "length")
        new = list(self.script(prompt_ids, turn, session))[len(done.token_ids) :]
        return Completion(
            done.token_ids + new,
            done.logprobs + [-token / 1000 for token in new],
            done.policy_version + [self.version] * len(new),
            self.finish(turn),  # type: ignore[arg-type]
        )

    async def load_weights(self, version: int, path: Path) -> None:
        if self.ignores_updates != "all":
            self.version = version
        if not self.ignores_updates:
            self.digest = file_digest(path)

    def drop_caches(self) -> None:
        self.drops += 1

    def partial(self, session: int) -> Completion | None:
        return None

    def release(self, session: int) -> None:
        self.released.append(session)
        self._turns.pop(session, None)

    async def close(self) -> None:
        return None


def fails_on(verb: str, number: int, error: Exception | None = None) -> Callable[[str, int], None]:
    """A `FakeClient.before` that raises at the `number`-th call of `verb` (from 1)."""
    seen = 0

    def before(called: str, session: int) -> None:
        nonlocal seen
        seen += called == verb
        if called == verb and seen == number:
            raise error or InfrastructureError(f"{verb} broke")

    return before
