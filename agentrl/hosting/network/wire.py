"""What travels: the JSON of the protocol, read strictly and written so that its clients take it.

Invariants: whatever a worker answers reaches a client with `messages` a list, `metrics` instead of
`metric`, `env_out` unfolded and a status that agentrl-eval knows (`status_detail` has the worker's
own); what cannot be said that way is a failure of the worker and not an answer. Unknown keys of
messages pass through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError
from pydantic_core import from_json, to_json
from typing_extensions import TypedDict

from agentrl.errors import DataError
from agentrl.hosting.failures import WorkerFailed
from agentrl.hosting.registry import Reply
from agentrl.messages import Message, Status, ToolCall, ToolSpec

Model = TypeVar("Model", bound=BaseModel)
Json = dict[str, Any]

Index = Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)] | StrictStr
"""1 and "1" are two samples; -1 stands for a custom task."""
CUSTOM = -1
SessionId = Annotated[StrictInt, Field(gt=0, lt=2**63)]

CLIENT_STATUSES = frozenset(Status) - {Status.CONTEXT_LIMIT}
"""What agentrl-eval 0.1.2 knows; any other status would make it reject the whole answer."""


class _Tolerant(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Function(TypedDict, extra_items=Any):  # type: ignore[call-arg]
    name: str
    arguments: NotRequired[str | None]


class _Call(TypedDict, extra_items=Any):  # type: ignore[call-arg]
    id: NotRequired[str | None]
    function: _Function


class AssistantMessage(TypedDict, extra_items=Any):  # type: ignore[call-arg]
    """One message of the agent; other keys pass through."""

    role: Literal["assistant"]
    content: NotRequired[str | list[Json] | None]
    tool_calls: NotRequired[list[_Call] | None]


Assistant = Annotated[list[AssistantMessage], Field(min_length=1)]


class Heartbeat(_Tolerant):
    """What an HTTP worker sends every 8 s. `instance` is ours: it differs after a restart."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    address: Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$", max_length=2000)]
    concurrency: Annotated[StrictInt, Field(ge=0, le=1_000_000)]
    indices: Annotated[list[Index], Field(min_length=1)]
    instance: str | None = None


class ClientStart(_Tolerant):
    """`seed` is ours: what is random in the episode besides its sample."""

    name: str
    index: Index
    custom_task: Json | None = None
    seed: Annotated[StrictInt, Field(ge=0, lt=2**63)] | None = None


class ClientInteract(_Tolerant):
    messages: Assistant


class SessionOnly(_Tolerant):
    session_id: SessionId


class Renew(_Tolerant):
    sessions: Annotated[list[SessionId], Field(max_length=100_000)]


class MarkStale(_Tolerant):
    name: str
    worker_id: str
    stale: bool


class WorkerStart(_Tolerant):
    index: Index
    session_id: SessionId
    custom_task: Json | None = None
    seed: Annotated[StrictInt, Field(ge=0, lt=2**63)] | None = None


class WorkerInteract(_Tolerant):
    session_id: SessionId
    messages: Assistant


class Overall(_Tolerant):
    name: str = ""
    results: list[Json] = []


class ClientReply(_Tolerant):
    """What `start_sample` and `interact` answer."""

    messages: list[Json]
    tools: list[Json] | None
    status: str
    finish: bool
    reward: float
    metrics: Json
    status_detail: str


class _EnvironmentReply(_Tolerant):
    messages: list[Json] | None = None
    tools: list[Json] | None = None
    status: str | None = None
    finish: bool | None = None
    reward: Annotated[float, Field(allow_inf_nan=False)] | None = None
    metric: Json | None = None
    metrics: Json | None = None
    result: Any = None


def read(model: type[Model], body: bytes) -> Model:
    """Raises `ValidationError`; an empty body reads as an empty object."""
    return model.model_validate_json(body or b"{}")


def write(value: Any) -> bytes:
    """JSON; what JSON cannot say (NaN) becomes null."""
    return to_json(value, inf_nan_mode="null")


def problems(error: ValidationError) -> list[Json]:
    """The `detail` of a 422, as FastAPI words it; inputs are cut short."""
    return [
        {
            "type": item["type"],
            "loc": ["body", *item["loc"]],
            "msg": item["msg"],
            "input": repr(item.get("input"))[:200],
        }
        for item in error.errors(include_url=False, include_context=False)[:20]
    ]


def client_reply(body: bytes) -> Reply:
    """A worker's answer to `start_sample` (flat) or `interact` (in `env_out`), for a client."""
    try:
        data = from_json(body, allow_inf_nan=False)
        if isinstance(data, Mapping) and isinstance(data.get("env_out"), Mapping):
            data = data["env_out"]
        answer = _EnvironmentReply.model_validate(data)
    except (ValueError, RecursionError) as error:
        raise WorkerFailed(f"the worker's answer is no answer: {str(error)[:300]}") from None
    status = answer.status or (Status.UNKNOWN if answer.finish else Status.RUNNING)
    finished = bool(answer.finish) or status != Status.RUNNING
    shown = status
    if finished and status == Status.RUNNING:
        shown = Status.UNKNOWN
    elif status == Status.CONTEXT_LIMIT:
        shown = Status.LIMIT_REACHED
    elif status not in CLIENT_STATUSES:
        shown = Status.UNKNOWN
    if not finished and not answer.messages:
        raise WorkerFailed("the worker's answer is no answer: running, but without messages")
    payload: Json = {
        "messages": answer.messages or [],
        "tools": answer.tools,
        "status": str(shown),
        "finish": finished,
        "reward": answer.reward or 0.0,
        "metrics": answer.metric if answer.metric is not None else answer.metrics or {},
        "status_detail": str(status),
    }
    if answer.result is not None:
        payload["result"] = answer.result
    failed = status in (Status.TASK_ERROR, Status.CANCELLED) and answer.result is not None
    detail = str(answer.result)[:300] if failed else ""
    return Reply(payload, finished, str(status if finished else Status.RUNNING), detail)


def environment_reply(
    messages: list[Json],
    tools: list[Json],
    status: Status,
    reward: float = 0.0,
    metrics: Mapping[str, float] | None = None,
    result: str | None = None,
) -> Json:
    """What a worker answers; on the last step a `score` is the reward where the task gave none.

    `result`, which the real worker leaves out, says what failed.
    """
    metric: Json = dict(metrics or {})
    if status not in (Status.RUNNING, Status.TASK_ERROR, Status.CANCELLED):
        metric.setdefault("score", reward)
    return {
        "messages": messages,
        "tools": tools,
        "status": str(status),
        "finish": status != Status.RUNNING,
        "reward": reward,
        "metric": metric,
        **({} if result is None else {"result": result}),
    }


def one_message(messages: list[AssistantMessage]) -> Message:
    """The agent's turn as one message: several are joined, their calls in order."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            texts.append(content)
        elif content:
            texts += [str(part["text"]) for part in content if isinstance(part.get("text"), str)]
        for call in message.get("tool_calls") or ():
            function = call["function"]
            calls.append(
                ToolCall(call.get("id") or "", function["name"], function.get("arguments") or "")
            )
    return Message("assistant", "\n".join(text for text in texts if text), tuple(calls))


def tool_spec(data: Mapping[str, Any]) -> ToolSpec:
    """From OpenAI's shape, or from Anthropic's."""
    function = data.get("function", data)
    parameters = function.get("parameters", function.get("input_schema")) or {"type": "object"}
    try:
        return ToolSpec(function["name"], function.get("description") or "", parameters)
    except KeyError as error:
        raise DataError(f"a tool without {error}: {str(data)[:200]}") from None
