"""The contract of every task: `Task` makes an `Episode`, an `Episode` takes assistant messages.

Invariants kept here for all tasks, so that a task only says what a valid call does:

- Arguments are checked against the tool's JSON schema before the task sees them; a broken call is
  an observation for the model and reaches no task code (pitfall 9).
- Every tool call of a turn is answered by one tool message, in order.
- The status says how the episode *ended*: an invalid call earlier does not stick (pitfall 41).
- A turn is consumed by every assistant message; the turn limit ends the episode with reward 0.
- After the end `step` is refused; `close` may be called any number of times.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from jsonschema import Draft202012Validator

from agentrl.messages import Message, Status, ToolCall, ToolSpec

NO_CALL = "No tool call found. Answer with one tool call."


@dataclass(frozen=True, slots=True, order=True)
class Sample:
    """One problem of a task: where it comes from, never what it says. Splits are disjoint."""

    task: str
    split: str
    index: int


@dataclass(frozen=True, slots=True)
class Step:
    """What the environment answers to one assistant message.

    `reward` is the reward so far (the last record, not a sum): 1 for success, 0 otherwise, a
    fraction where the task grades. `metrics` counts `turns` and `invalid_calls`, and on the last
    step has `success` (0 or 1).
    """

    messages: tuple[Message, ...]
    reward: float = 0.0
    done: bool = False
    status: Status = Status.RUNNING
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What one valid tool call did. `valid` is False where the task could not carry it out."""

    text: str
    reward: float = 0.0
    done: bool = False
    status: Status = Status.COMPLETED
    valid: bool = True


class Episode(ABC):
    """One live attempt at a sample. `messages` opens it (system and user)."""

    messages: tuple[Message, ...]

    @abstractmethod
    async def step(self, message: Message) -> Step:
        """Take one assistant message, answer with what the environment says."""

    async def close(self) -> None:  # noqa: B027  (most episodes hold nothing)
        """Give everything back. Idempotent; called on every path (invariant 11)."""


class Expert(ABC):
    """Solves one sample through the same tools as a model: it may look at the sample's solution.

    `noise` in [0, 1] makes it unreliable in the ways the task defines (`spec`: what a policy can
    learn from is an agent that can do the task but does not always).
    """

    @abstractmethod
    def act(self, messages: Sequence[Message]) -> Message:
        """The next assistant message, given only the messages that are new since the last call."""


class Task(ABC):
    """A family of samples. Holds no torch, and nothing per episode."""

    name: ClassVar[str]
    tools: ClassVar[tuple[ToolSpec, ...]]
    level: str
    """Difficulty and origin of the samples, as every table prints it ("easy", "official")."""

    @abstractmethod
    def samples(self, split: str) -> Sequence[Sample]:
        """The samples of `train`, `dev` or `std`; lazy where they are generated."""

    @abstractmethod
    async def start(self, sample: Sample, seed: int) -> Episode:
        """A fresh episode; `seed` decides whatever is random in it besides the sample."""

    @abstractmethod
    def expert(self, sample: Sample, seed: int, noise: float = 0.0) -> Expert: ...

    async def close(self) -> None:  # noqa: B027
        """Give back what the task holds for all episodes (a server, a pool). Idempotent."""


class SampleRange(Sequence[Sample]):
    """`count` samples of one split without making them: index i is `Sample(task, split, i)`."""

    def __init__(self, task: str, split: str, count: int) -> None:
        self.task, self.split, self.size = task, split, count

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        if not -self.size <= index < self.size:
            raise IndexError(f"{self.task}/{self.split} has {self.size} samples, not {index}")
        return Sample(self.task, self.split, index % self.size)


@lru_cache(maxsize=256)
def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema))


def check_arguments(tools: Sequence[ToolSpec], call: ToolCall) -> tuple[dict[str, Any], str | None]:
    """Parsed arguments of `call`, or `({}, why)` in words that the model can act on."""
    spec = next((tool for tool in tools if tool.name == call.name), None)
    if spec is None:
        names = ", ".join(tool.name for tool in tools)
        return {}, f"Unknown tool {call.name!r}. Tools: {names}."
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}, f"The arguments of {call.name} are not valid JSON."
    if not isinstance(arguments, dict):
        return {}, f"The arguments of {call.name} must be a JSON object."
    error = next(_validator(json.dumps(dict(spec.parameters))).iter_errors(arguments), None)
    if error is not None:
        where = "/".join(str(part) for part in error.absolute_path) or "arguments"
        return {}, f"Invalid {call.name}: {where}: {error.message[:200]}"
    return arguments, None


class ToolEpisode(Episode):
    """An episode whose turns are tool calls: the turn rules above, once for all tasks."""

    def __init__(self, tools: Sequence[ToolSpec], messages: Sequence[Message], max_turns: int):
        self.tools = tuple(tools)
        self.messages = tuple(messages)
        self.max_turns = max_turns
        self.turns = 0
        self.invalid_calls = 0
        self.reward = 0.0
        self.ended = False

    @abstractmethod
    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Carry out one call whose arguments fit the tool's schema."""

    async def say(self, text: str) -> ToolResult | None:
        """The end that a message without a call makes, where the task has one; None: a hint."""
        return None

    def limit_reward(self) -> float:
        """Reward at the turn limit; 0 unless the task grades unfinished work."""
        return 0.0

    async def step(self, message: Message) -> Step:
        if self.ended:
            raise RuntimeError("step() after the episode ended")
        self.turns += 1
        replies: list[Message] = []
        done, status = False, Status.RUNNING
        if not message.tool_calls:
            said = await self.say(message.content)
            if said is None:
                self.invalid_calls += 1
                replies.append(Message("user", self.no_call_text()))
            else:
                self.reward, done, status = said.reward, True, said.status
        for call in message.tool_calls:
            if done:
                replies.append(_reply(call, "Not carried out: the episode has ended."))
                continue
            arguments, problem = check_arguments(self.tools, call)
            if problem is not None:
                self.invalid_calls += 1
                replies.append(_reply(call, self.observe(problem)))
                continue
            result = await self.call(call.name, arguments)
            self.invalid_calls += not result.valid
            self.reward = result.reward
            done, status = result.done, result.status if result.done else Status.RUNNING
            replies.append(_reply(call, result.text if done else self.observe(result.text)))
        if not done and self.turns >= self.max_turns:
            done, status, self.reward = True, Status.LIMIT_REACHED, self.limit_reward()
        self.ended = done
        return Step(tuple(replies), self.reward, done, status, self.metrics(done))

    def no_call_text(self) -> str:
        return self.observe(NO_CALL)

    def observe(self, text: str) -> str:
        """The text the model reads; a task may add a reminder of the goal."""
        return text

    def metrics(self, done: bool) -> dict[str, float]:
        out = {"turns": float(self.turns), "invalid_calls": float(self.invalid_calls)}
        if done:
            out["success"] = float(self.reward >= 1.0)
        return out


def _reply(call: ToolCall, text: str) -> Message:
    return Message("tool", text, tool_call_id=call.id, name=call.name)


def call_message(name: str, arguments: Mapping[str, Any], call_id: str = "call_0") -> Message:
    """An assistant message with one tool call, as an expert or a test writes it."""
    text = json.dumps(dict(arguments), ensure_ascii=False)
    return Message("assistant", "", (ToolCall(call_id, name, text),))
