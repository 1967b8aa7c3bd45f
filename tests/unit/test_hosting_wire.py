"""What travels: each difference between workers and clients (spec/protocol.md, 1.1, 3, 5.5) has a test."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentrl.hosting.failures import HostingError, WorkerFailed
from agentrl.hosting.network import wire
from agentrl.messages import Message, Status, ToolCall, ToolSpec

EVAL_STATUSES = {
    *("unknown", "running", "completed", "agent validation failed", "agent invalid action"),
    *("task limit reached", "task error", "cancelled"),
}
"""`agentrl.eval.session.types.SampleStatus` of 0.1.2, without those that it makes itself."""


def reply(**fields):
    return wire.client_reply(json.dumps(fields).encode())


RUNNING = {"messages": [{"role": "user", "content": "x"}], "status": "running", "finish": False}


def test_env_out_is_unfolded_and_metric_renamed():
    inner = {**RUNNING, "reward": 0.5, "metric": {"score": 2}}
    nested, flat = reply(session_id=3, env_out=inner), reply(**inner)
    assert nested == flat
    assert nested.payload["metrics"] == {"score": 2}
    assert "metric" not in nested.payload and "env_out" not in nested.payload


def test_null_messages_become_a_list_and_null_numbers_nought():
    answer = reply(messages=None, status="completed", finish=True, reward=None, metric=None)
    assert answer.finished
    assert answer.payload["messages"] == [] and answer.payload["metrics"] == {}
    assert answer.payload["reward"] == 0.0


@pytest.mark.parametrize(
    ("status", "finish", "shown", "finished"),
    [
        ("agent context limit", True, "task limit reached", True),
        ("won by magic", True, "unknown", True),
        ("won by magic", None, "unknown", True),  # any status but running ends a session
        ("running", True, "unknown", True),
        (None, True, "unknown", True),
        (None, None, "running", False),
        ("completed", False, "completed", True),
        ("task error", True, "task error", True),
    ],
)
def test_statuses_that_eval_does_not_know_are_translated(status, finish, shown, finished):
    answer = reply(messages=RUNNING["messages"], status=status, finish=finish)
    assert (answer.payload["status"], answer.finished) == (shown, finished)
    assert answer.payload["finish"] is finished
    assert answer.payload["status"] in EVAL_STATUSES
    if status is not None:
        assert answer.payload["status_detail"] == status


def test_unknown_keys_of_messages_pass_through():
    message = {"role": "assistant", "content": None, "reasoning_content": "hm", "refusal": None}
    assert reply(messages=[message], status="running").payload["messages"] == [message]
    said = wire.read(wire.ClientInteract, json.dumps({"messages": [message]}).encode())
    assert json.loads(wire.write(said.messages)) == [message]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"Internal Server Error",
        b'{"messages": [], "status": "running"}',
        b'{"messages": null, "finish": false}',
        b'{"messages": [1], "status": "running"}',
        b'{"messages": [{}], "status": 3}',
        b'{"reward": NaN, "status": "completed"}',
        b'{"metric": [], "status": "completed"}',
        b'{"env_out": {"messages": []}}',
        b'{"a":' * 5000,
        b"\xff\xfe",
    ],
)
def test_what_is_no_answer_is_a_failure_of_the_worker(body):
    with pytest.raises(WorkerFailed, match="no answer"):
        wire.client_reply(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["messages", "tools", "status", "finish", "reward", "metric", "metrics", "result", "env_out"]
)


@given(
    st.binary(max_size=200) | st.dictionaries(FIELDS, JSON).map(lambda d: json.dumps(d).encode())
)
def test_any_answer_is_one_that_clients_take_or_a_failure(body):
    try:
        answer = wire.client_reply(body)
    except HostingError:
        return
    sent = json.loads(wire.write(answer.payload))
    assert isinstance(sent["messages"], list) and isinstance(sent["metrics"], dict)
    assert sent["status"] in EVAL_STATUSES
    assert sent["finish"] == (sent["status"] != "running")
    assert sent["finish"] or sent["messages"]
    assert isinstance(sent["reward"], int | float)


MODELS = (
    wire.Heartbeat,
    wire.ClientStart,
    wire.ClientInteract,
    wire.SessionOnly,
    wire.Renew,
    wire.MarkStale,
    wire.WorkerStart,
    wire.WorkerInteract,
    wire.Overall,
)


@given(
    st.sampled_from(MODELS), st.binary(max_size=100) | JSON.map(lambda d: json.dumps(d).encode())
)
def test_no_body_does_anything_but_fit_or_not(model, body):
    try:
        wire.read(model, body)
    except ValidationError as error:
        assert wire.problems(error) and json.loads(wire.write(wire.problems(error)))


@pytest.mark.parametrize("index", [0, -1, 2**62, "1", "a b"])
def test_an_index_keeps_its_type(index):
    body = json.dumps({"name": "t", "index": index}).encode()
    read = wire.read(wire.ClientStart, body).index
    assert read == index and type(read) is type(index)


@pytest.mark.parametrize("index", [True, 1.0, None, [], 2**64])
def test_what_is_no_index_is_refused(index):
    with pytest.raises(ValidationError):
        wire.read(wire.ClientStart, json.dumps({"name": "t", "index": index}).encode())


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:5021/api", "https://worker.local/a/api", "http://[::1]:5021/api"],
)
def test_addresses_of_workers(address):
    beat = {"name": "t", "address": address, "concurrency": 1, "indices": [1, "a"]}
    assert wire.read(wire.Heartbeat, json.dumps(beat).encode()).address == address


@pytest.mark.parametrize(
    "address",
    [
        *(
            "file:///etc/passwd",
            "http://user:secret@host/api",
            "http://h/api?x=1",
            "http://h/api#x",
        ),
        *("", "127.0.0.1:5021", "gopher://h", "http://h/a\r\nx: y", "http:///api"),
    ],
)
def test_addresses_that_no_worker_has(address):
    beat = {"name": "t", "address": address, "concurrency": 1, "indices": [1]}
    with pytest.raises(ValidationError):
        wire.read(wire.Heartbeat, json.dumps(beat).encode())


def test_several_messages_of_the_agent_are_one_turn():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    bare = {"function": {"name": "g", "arguments": None}}
    messages = [
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}, {"type": "image_url"}]},
        {"role": "assistant", "content": None, "tool_calls": [call, bare]},
    ]
    said = wire.read(wire.ClientInteract, json.dumps({"messages": messages}).encode()).messages
    assert wire.one_message(said) == Message(
        "assistant", "a\nb", (ToolCall("1", "f", "{}"), ToolCall("", "g", ""))
    )


def test_the_score_is_the_reward_where_the_task_gives_none():
    answer = wire.environment_reply([], [], Status.COMPLETED, 0.5, {"turns": 2.0})
    assert answer["metric"] == {"turns": 2.0, "score": 0.5}
    answer = wire.environment_reply([], [], Status.COMPLETED, 0.5, {"score": 0.25})
    assert answer["metric"] == {"score": 0.25}
    assert wire.environment_reply([], [], Status.TASK_ERROR)["metric"] == {}


def test_tools_of_both_makers():
    schema = {"type": "object", "properties": {}}
    openai = ToolSpec("f", "d", schema).to_openai()
    anthropic = {"name": "f", "description": "d", "input_schema": schema}
    assert wire.tool_spec(openai) == wire.tool_spec(anthropic) == ToolSpec("f", "d", schema)
