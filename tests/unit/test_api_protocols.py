"""Requests and answers of the three protocols, by hand."""

import pytest

from agentrl.config.api_models import ModelConfig
from agentrl.evaluation.api import anthropic, openai_chat, openai_responses
from agentrl.evaluation.api.conversation import Garbage, Request, Said, safe_arguments, safe_name
from agentrl.evaluation.api.usage import Usage
from agentrl.messages import Message, ToolCall
from tests.fakes import SAY

CALL = ToolCall("c1", "say", '{"text": "é"}')
BROKEN = ToolCall("c2", "say it!", "[1")
HISTORY = [
    Said(Message("system", "Be brief.")),
    Said(Message("user", "Hello.")),
    Said(Message("assistant", "Well.", (CALL, BROKEN)), "m", None),
    Said(Message("tool", "You said é", tool_call_id="c1", name="say")),
    Said(Message("tool", "", tool_call_id="c2", name="say it!")),
    Said(Message("user", "And?")),
    Said(Message("assistant", " ", ()), "m", None),
    Said(Message("user", "Go on.")),
]
SCHEMA = dict(SAY.parameters)


def model(protocol, **changes):
    return ModelConfig(protocol=protocol, base_url="http://x/v1", model="gpt", **changes)


def test_openai_chat():
    body = openai_chat.body("m", model("openai-chat"), Request(HISTORY, (SAY,), 0.5, 7))
    assert body == {
        "model": "gpt",
        "max_completion_tokens": 4096,
        "temperature": 0.5,
        "seed": 7,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "say", "description": "Say something.", "parameters": SCHEMA,
                },
            }
        ],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello."},
            {
                "role": "assistant",
                "content": "Well.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "say", "arguments": '{"text": "é"}'},
                    },
                    {
                        "id": "c2",
                        "type": "function",
                        "function": {"name": "say_it_", "arguments": '{"unparsed": "[1"}'},
                    },
                ],
            },
            {"role": "tool", "content": "You said é", "tool_call_id": "c1"},
            {"role": "tool", "content": "", "tool_call_id": "c2"},
            {"role": "user", "content": "And?"},
            {"role": "assistant", "content": " "},
            {"role": "user", "content": "Go on."},
        ],
    }  # fmt: skip
    older = model("openai-chat", parameters={"max_tokens": 9, "top_p": 0.9})
    body = openai_chat.body("m", older, Request(HISTORY[:2]))
    assert set(body) == {"model", "messages", "max_tokens", "top_p"}


def test_openai_responses():
    thought = [{"type": "reasoning", "encrypted_content": "x"}]
    told = [*HISTORY[:2], Said(HISTORY[2].message, "m", thought), *HISTORY[3:6]]
    body = openai_responses.body("m", model("openai-responses"), Request(told, (SAY,)))
    assert body["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello."},
        *thought,
        {"role": "assistant", "content": "Well."},
        {"type": "function_call", "call_id": "c1", "name": "say", "arguments": '{"text": "é"}'},
        {
            "type": "function_call", "call_id": "c2", "name": "say_it_",
            "arguments": '{"unparsed": "[1"}',
        },
        {"type": "function_call_output", "call_id": "c1", "output": "You said é"},
        {"type": "function_call_output", "call_id": "c2", "output": ""},
        {"role": "user", "content": "And?"},
    ]  # fmt: skip
    assert body["tools"] == [
        {
            "type": "function", "name": "say", "description": "Say something.", "strict": False,
            "parameters": SCHEMA,
        }
    ]  # fmt: skip
    assert body["store"] is False and "temperature" not in body
    other = openai_responses.body("n", model("openai-responses"), Request(told))
    assert thought[0] not in other["input"]  # the thought of another model


def test_anthropic():
    body = anthropic.body("m", model("anthropic", prompt_cache=True), Request(HISTORY, (SAY,), 0.0))
    assert body["system"] == "Be brief." and body["temperature"] == 0.0
    assert body["tools"] == [
        {"name": "say", "description": "Say something.", "input_schema": SCHEMA}
    ]
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Well."},
                {"type": "tool_use", "id": "c1", "name": "say", "input": {"text": "é"}},
                {"type": "tool_use", "id": "c2", "name": "say_it_", "input": {"unparsed": "[1"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "You said é"},
                {"type": "tool_result", "tool_use_id": "c2", "content": ""},
                {"type": "text", "text": "And?"},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "(empty)"}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}
            ],
        },
    ]  # fmt: skip


def test_answers_of_openai_chat():
    answer = openai_chat.parse(
        {
            "model": "gpt-1",
            "choices": [
                {
                    "finish_reason": "length",
                    "message": {
                        "content": [{"type": "text", "text": "a"}, {"text": "b"}],
                        "tool_calls": [
                            {"id": "x", "function": {"name": "say", "arguments": {"text": "a"}}},
                            {"function": {"name": "say", "arguments": None}},
                        ],
                    },
                }
            ],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": None},
        }
    )
    assert (answer.finish_reason, answer.served, answer.usage) == ("length", "gpt-1", Usage(5, 0, 0, 2))  # fmt: skip
    assert answer.message == Message(
        "assistant", "ab", (ToolCall("x", "say", '{"text": "a"}'), ToolCall("", "say", ""))
    )
    refused = {"choices": [{"message": {"content": None, "refusal": "No."}, "finish_reason": "content_filter"}]}  # fmt: skip
    answer = openai_chat.parse(refused)
    assert (answer.message.content, answer.finish_reason, answer.usage) == ("No.", "refused", None)


def test_answers_of_openai_responses():
    answer = openai_responses.parse(
        {
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": [
                {"type": "reasoning", "summary": []},
                {"type": "web_search_call"},
                {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]},
                {"type": "function_call", "call_id": "x", "name": "say", "arguments": '{"te'},
            ],
            "usage": {"input_tokens": 9, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 8}},
        }
    )  # fmt: skip
    assert (answer.finish_reason, answer.usage, answer.native) == ("length", Usage(1, 8, 0, 3), None)  # fmt: skip
    assert answer.message == Message("assistant", "No.", (ToolCall("x", "say", '{"te'),))
    for garbage in ({"output": None}, {"output": [], "status": "failed"}, {}):
        with pytest.raises(Garbage):
            openai_responses.parse(garbage)


def test_answers_of_anthropic():
    thinking = {"type": "thinking", "thinking": "why", "signature": "s"}
    call = {"type": "tool_use", "id": "x", "name": "say", "input": {"text": "\ud800"}}
    answer = anthropic.parse(
        {"content": [thinking, call], "stop_reason": "refusal", "usage": {"input_tokens": 1, "output_tokens": 2}}
    )  # fmt: skip
    assert (answer.finish_reason, answer.native) == ("refused", [thinking, call])
    assert answer.message.tool_calls == (ToolCall("x", "say", '{"text": "?"}'),)
    cut = anthropic.parse({"content": [thinking], "stop_reason": "max_tokens"})
    assert (cut.message.content, cut.native, cut.usage) == ("", None, None)
    for garbage in ({}, {"content": [7]}, {"content": [{"type": "text"}]}, {"content": [{"type": "tool_use"}]}):  # fmt: skip
        with pytest.raises(Garbage):
            anthropic.parse(garbage)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("{}", {}),
        ('{"a": 1}', {"a": 1}),
        ("", {"unparsed": ""}),
        ("null", {"unparsed": "null"}),
        ('{"a": NaN}', {"unparsed": '{"a": NaN}'}),
        ('{"a": ' + "[" * 80 + "]" * 80 + "}", {"unparsed": '{"a": ' + "[" * 80 + "]" * 80 + "}"}),
        ("[" * 9999, {"unparsed": "[" * 9999}),
    ],
)
def test_arguments_that_every_endpoint_takes(text, arguments):
    assert safe_arguments(text) == arguments


@pytest.mark.parametrize(
    ("name", "safe"), [("say", "say"), ("", "unknown"), ("a b.c", "a_b_c"), ("x" * 99, "x" * 64)]
)
def test_names_that_every_endpoint_takes(name, safe):
    assert safe_name(name) == safe
