"""The formats of Qwen2.5, Qwen3, Llama 3, GLM-4 and SmolLM2: exact text, pieces, broken calls, references."""

import json

import pytest
import renderers
from hypothesis import given, settings
from hypothesis import strategies as st
from renderers.configs import Llama3RendererConfig, Qwen3RendererConfig

from agentrl.errors import ConfigError, StateError
from agentrl.messages import Message, ToolCall
from agentrl.rollout.parsing import json_text
from agentrl.rollout.rendering import (
    OWN,
    create_renderer,
    extension,
    parse_message,
    probe,
    render,
)
from agentrl.tasks.base import call_message
from tests.chat import BROKEN, FAMILIES, TOOLS, Recorder, family_tokenizer

TOKENIZERS = {name: family_tokenizer(name) for name in FAMILIES}
RENDERERS = {name: create_renderer(name, t, TOOLS) for name, t in TOKENIZERS.items()}
every_format = pytest.mark.parametrize("name", RENDERERS)
LOOK = call_message("take_action", {"action": "look"}, "call_0_0")


def text(name, messages, tools=(), *, generate=False):
    rendered = render(RENDERERS[name], messages, tools, add_generation_prompt=generate)
    return RENDERERS[name].encoder.decode(rendered.token_ids)


def template(name, messages, tools=(), *, generate=False):
    return TOKENIZERS[name].apply_chat_template(
        [m.to_openai() for m in messages],
        tools=[t.to_openai() for t in tools] or None,
        tokenize=False,
        add_generation_prompt=generate,
    )


def sampled(name, *messages):
    """Ids of what a policy would write for the last message."""
    renderer = RENDERERS[name]
    told = [*messages[:-1]] or [Message("user", "x")]
    before = len(render(renderer, told, add_generation_prompt=True).token_ids)
    rendered = render(renderer, [*told, messages[-1]])
    mask = list(zip(rendered.token_ids, rendered.sampled_mask, strict=True))[before:]
    return [token for token, is_sampled in mask if is_sampled]


def said(name, written, **given):
    """What the parser makes of a text, stop token left out."""
    renderer = RENDERERS[name]
    ids = TOKENIZERS[name].encode(written, add_special_tokens=False)
    return parse_message(renderer, ids, TOOLS, **given)


CONVERSATION = [
    Message("user", "A room."),
    LOOK,
    Message("tool", 'You see "x".', tool_call_id="call_0_0", name="take_action"),
    Message("assistant", "Done."),
    Message("user", "Thanks."),
]
EXPECTED = {
    "qwen2.5": (
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nA room.<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "take_action", "arguments": {"action": "look"}}\n'
        "</tool_call><|im_end|>\n"
        '<|im_start|>user\n<tool_response>\nYou see "x".\n</tool_response><|im_end|>\n'
        "<|im_start|>assistant\nDone.<|im_end|>\n"
        "<|im_start|>user\nThanks.<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    "qwen3": (
        "<|im_start|>user\nA room.<|im_end|>\n"
        '<|im_start|>assistant\n<think>\n\n</think>\n\n<tool_call>\n{"name": "take_action", '
        '"arguments": {"action": "look"}}\n</tool_call><|im_end|>\n'
        '<|im_start|>user\n<tool_response>\nYou see "x".\n</tool_response><|im_end|>\n'
        "<|im_start|>assistant\n<think>\n\n</think>\n\nDone.<|im_end|>\n"
        "<|im_start|>user\nThanks.<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    "llama-3": (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nA room.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
        '{"name": "take_action", "parameters": {"action": "look"}}<|eot_id|>'
        '<|start_header_id|>ipython<|end_header_id|>\n\n"You see \\"x\\"."<|eot_id|>'
        "<|start_header_id|>assistant<|end_header_id|>\n\nDone.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nThanks.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "glm-4": (
        '[gMASK]<sop><|user|>\nA room.<|assistant|>take_action\n{"action": "look"}'
        '<|observation|>\nYou see "x".<|assistant|>\nDone.<|user|>\nThanks.<|assistant|>'
    ),
}
EXPECTED["smollm2"] = EXPECTED["qwen2.5"].replace(
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
)
EXPECTED["qwen3-no-thinking"] = EXPECTED["qwen3"] + "<think>\n\n</think>\n\n"


@every_format
def test_text_by_hand(name):
    assert text(name, CONVERSATION, generate=True) == EXPECTED[name]


@every_format
def test_what_a_policy_writes_is_marked(name):
    """In the whole rendering, as behaviour cloning uses it, and by the rule of `sampled`."""
    ends = {"llama-3": "<|eot_id|>", "glm-4": "<|observation|>"}
    call = {
        "llama-3": '{"name": "take_action", "parameters": {"action": "look"}}',
        "glm-4": 'take_action\n{"action": "look"}',
    }
    hermes = '<tool_call>\n{"name": "take_action", "arguments": {"action": "look"}}\n</tool_call>'
    thought = "<think>\n\n</think>\n\n" if name == "qwen3" else ""
    written = RENDERERS[name].encoder.decode(sampled(name, *CONVERSATION[:2]))
    assert written == thought + call.get(name, hermes) + ends.get(name, "<|im_end|>")
    assert said(name, written) == LOOK


def conversation():
    """Random turns: calls, plain answers with any edges, replies to match."""
    pieces = [*'aZ0 \n\t"\\{}[]:,;<>é中😀', "</think>", "<think>", "<|user|>", "<|im_end|>"]
    words = st.lists(st.sampled_from(pieces), max_size=8).map("".join)

    def turn(actions, contents, cut):
        calls = tuple(
            ToolCall(f"c{n}", "take_action", json_text({"action": a}))
            for n, a in enumerate(actions)
        )
        roles = ("tool", len(calls)) if calls else ("user", 1)
        replies = [Message(roles[0], contents[1]) for _ in range(roles[1])]
        return Message("assistant", "" if calls else contents[0], calls), replies, cut

    turns = st.builds(turn, st.lists(words, max_size=2), st.tuples(words, words), st.integers(0, 5))
    return st.lists(turns, min_size=1, max_size=4)


@every_format
@settings(max_examples=60, deadline=None)
@given(turns=conversation())
def test_piece_by_piece_is_the_whole_and_the_template(name, turns):
    """Pitfalls 1 to 6: a rollout's ids are those of one full rendering, and of the template."""
    renderer = RENDERERS[name]
    told = [Message("system", "Be brief."), Message("user", "ab")]
    ids = list(render(renderer, told, TOOLS, add_generation_prompt=True).token_ids)
    for message, replies, cut in turns:
        whole = render(renderer, [*told, message, replies[0]], TOOLS)
        mask = list(zip(whole.token_ids, whole.sampled_mask, strict=True))[len(ids) :]
        completion = [token for token, is_sampled in mask if is_sampled]
        assert whole.token_ids[: len(ids)] == ids
        assert whole.token_ids[len(ids) :][: len(completion)] == completion
        if cut == 0:
            completion = completion[:-1]
        ids += completion + extension(renderer, ids, completion, replies, TOOLS)
        told += [message, *replies]
        whole = render(renderer, told, TOOLS, add_generation_prompt=True)
        assert whole.token_ids == ids
        assert len(whole.sampled_mask) == len(whole.is_content) == len(whole.message_indices)
        assert renderer.encoder.decode(ids) == template(name, told, TOOLS, generate=True)


@every_format
@pytest.mark.parametrize("system", [True, False])
@pytest.mark.parametrize("tools", [TOOLS, ()])
def test_openings_are_the_templates(name, system, tools):
    told = [Message("system", "Be brief.")] * system + [Message("user", "a\nb ")]
    assert text(name, told, tools, generate=True) == template(name, told, tools, generate=True)
    told += [LOOK]
    assert text(name, told, tools) == template(name, told, tools)
    only = [Message("system", "Be brief.")]
    assert text(name, only, tools) == template(name, only, tools)


@every_format
def test_an_environment_cannot_write_control_tokens(name):
    renderer, tokenizer = RENDERERS[name], TOKENIZERS[name]
    forged = "".join(FAMILIES[name][0]) + "".join(FAMILIES[name][1])
    control = set(tokenizer.get_added_vocab().values())

    def controls(word):
        told = [Message("system", word), Message("user", word), LOOK, Message("tool", word)]
        ids = render(renderer, told, TOOLS, add_generation_prompt=True).token_ids
        more = extension(renderer, ids, sampled(name, LOOK), [Message("tool", word)], TOOLS)
        return [token for token in [*ids, *more] if token in control]

    assert controls(forged) == controls("x")


WRAPS = {
    "qwen2.5": ["<tool_call>\n{}\n</tool_call>", "Well.\n<tool_call>{}</tool_call> and", "{}"],
    "qwen3": [
        "<think>\nwell\n</think>\n\n<tool_call>\n{}\n</tool_call>",
        "<tool_call>{}</tool_call>",
        "</think><tool_call>{}",
    ],
    "llama-3": ["{}", "<|python_tag|>{}", " \n{} "],
    "glm-4": ["\n{}", "take_action\n{}", "\nWell.<|assistant|>take_action\n{}", "{}"],
}
WRAPS["smollm2"] = WRAPS["qwen2.5"]
WRAPS["qwen3-no-thinking"] = WRAPS["qwen3"]
OWN_FAULTS = {
    "qwen2.5": [
        "<tool_call>",
        "</tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>" * 3,
        "</tool_call>\n{}\n<tool_call>",
        '<tool_call>{"name": "take_action", "arguments": {"action": "a"}}',
        '<tool_call>[{"name": "take_action", "arguments": {"action": "a"}}]</tool_call>',
        '<tool_call>take_action(action="a")</tool_call>',
        '<tool_call>{"name": "take_action", "parameters": {"action": "a"}}</tool_call>',
        '<tool_response>{"name": "take_action", "arguments": {"action": "a"}}</tool_response>',
    ],
    "qwen3": [
        '<think>\n<tool_call>\n{"name": "take_action", "arguments": {"action": "a"}}\n</tool_call>',
        '<think>\n<tool_call>\n{"name": "take_action", "arguments": {"action": "a"}}\n</tool_call>\n</think>\n\n',
        "<think>",
        "</think>",
        "<think><think></think></think>",
        "</think></think><tool_call>",
        '<think>x</think><tool_call>{"name": "take_action", "arguments": {"action": "a"}}',
        '<tool_call>{"name": "take_action"</think>, "arguments": {"action": "a"}}</tool_call>',
    ],
    "llama-3": [
        '{"name": "take_action", "parameters": "look"}',
        '{"name": "take_action", "parameters": ["look"]}',
        '{"name": "take_action", "parameters": {"action": "look"}',
        '{"name": "take_action", "parameters": {"action": "look"}}}',
        '{"name": "take_action", "parameters": {"action": "look"}} I look.',
        'I look. {"name": "take_action", "parameters": {"action": "look"}}',
        '{"function": "take_action", "parameters": {"action": "look"}}',
        '{"type": "function", "name": "take_action", "parameters": {"action": 7}}',
        '{"name": "take_action", "parameters": {"action": "look"}} {"name": "link", "parameters": {}}',
        '{"name": "take_action", "parameters": {"action": "look"}};',
        '; {"name": "take_action", "parameters": {"action": "look"}}',
        '[{"name": "take_action", "parameters": {"action": "look"}}]',
        '<|python_tag|>take_action.call(action="look")',
        '<function=take_action>{"action": "look"}</function>',
        '```json\n{"name": "take_action", "parameters": {"action": "look"}}\n```',
        '{"name": "take_action", "parameters": {}, "arguments": {"action": "look"}}',
    ],
    "glm-4": [
        "take_action",
        "take_action\n",
        "take_action\nlook",
        'take_action {"action": "look"}',
        'take_action{"action": "look"}',
        '\ntake_action\n{"action": "look"}',
        'take_action\n{"action": "look"',
        'take_action\n{"action": "look"} I look.',
        'take_action\n["look"]',
        'take_action\n"look"',
        "take_action\nnull",
        'take_action\n{"action": 7}',
        'take_action\n{"act": "look"}',
        'fly\n{"action": "look"}',
        'take action\n{"action": "look"}',
        '<tool_call>take_action\n{"action": "look"}</tool_call>',
        '{"action": "look"}\ntake_action',
        'take_action\n```json\n{"action": "look"}\n```',
        "<|assistant|>",
        "<|assistant|><|assistant|>take_action",
        'take_action\n{"action": <|assistant|>"look"}',
    ],
}
OWN_FAULTS["smollm2"] = OWN_FAULTS["qwen2.5"]
OWN_FAULTS["qwen3-no-thinking"] = OWN_FAULTS["qwen3"]
FINE = '{"name":"take_action","arguments":{"action":"look"}}'


@every_format
async def test_no_broken_call_raises_or_reaches_a_tool(name):
    """Pitfall 9."""
    episode, count = Recorder(), 0
    wrapped = [wrap.replace("{}", fault) for fault in BROKEN for wrap in WRAPS[name]]
    for written in [*OWN_FAULTS[name], *wrapped]:
        if name == "llama-3" and written.strip().removeprefix("<|python_tag|>") in _GOOD_LLAMA:
            continue
        if name == "glm-4" and written.endswith(_GOOD_GLM):
            continue
        message = said(name, written, turn=3)
        assert all(c.id == f"call_3_{n}" for n, c in enumerate(message.tool_calls))
        json.dumps(message.to_openai(), ensure_ascii=False).encode()  # can be sent and stored
        step = await episode.step(message)
        assert step.messages and episode.reached == [], written
        json.dumps([m.to_openai() for m in step.messages], ensure_ascii=False).encode()
        count += 1
    assert count > 100 and episode.invalid_calls >= count


_GOOD_LLAMA = ['{"name":"take_action","parameters":{"action":"look"}}']
_GOOD_GLM = ('take_action\n{"action":"look"}',)


@every_format
async def test_an_unclosed_call_does_not_reach_a_tool(name):
    episode, whole = Recorder(), sampled(name, *CONVERSATION[:2])
    for length in range(len(whole) - 1):
        await episode.step(parse_message(RENDERERS[name], whole[:length], TOOLS))
    if name not in ("llama-3", "glm-4"):  # there the last brace ends a call
        assert episode.reached == []
    else:
        assert len(episode.reached) <= 1
    await episode.step(parse_message(RENDERERS[name], whole, TOOLS))
    assert episode.reached[-1] == ("take_action", {"action": "look"})


@every_format
def test_several_calls_and_awkward_arguments_come_back(name):
    awkward = 'a"b\\c\n;{"x": [1]}; </tool_call> <|eot_id|> é中😀'
    if name in ("qwen2.5", "smollm2", "qwen3", "qwen3-no-thinking"):
        awkward = awkward.replace("</tool_call>", "")  # Hermes' calls end there, as text too
    calls = (
        ToolCall("call_0_0", "link", json_text({"a": awkward, "b": ""})),
        ToolCall("call_0_1", "take_action", json_text({"action": awkward})),
    )
    message = Message("assistant", "", calls)
    written = sampled(name, Message("user", "x"), message)
    assert parse_message(RENDERERS[name], written, TOOLS) == message


@pytest.mark.parametrize(
    ("name", "written", "content", "names"),
    [
        ("glm-4", '\nI look.<|assistant|>take_action\n{"action": "look"}', "I look.", ["take_action"]),
        ("glm-4", "Hello.", "Hello.", []),
        ("glm-4", "\nOne\ntwo", "One\ntwo", []),
        ("glm-4", 'commit\n{"answers": []}<|assistant|>link\n{}', "", ["commit", "link"]),
        ("llama-3", "Hello {}", "Hello {}", []),
        ("llama-3", '{"name": "link", "parameters": {}}; {"name": "commit", "parameters": {}}', "", ["link", "commit"]),
        ("llama-3", '{"name": "link", "arguments": {}}', "", ["link"]),
        ("qwen3", "<think>\nA desk.\n</think>\n\nDone.", "Done.", []),
        ("qwen3", 'A desk.\n</think>\n\n<tool_call>{"name": "link", "arguments": {}}</tool_call>', "", ["link"]),
        ("qwen3", "<think>\nStill thinking", "", []),
        ("qwen3", "Done.", "Done.", []),
        ("qwen3-no-thinking", "Done.", "Done.", []),
    ],
)  # fmt: skip
def test_what_is_said(name, written, content, names):
    message = said(name, written)
    assert (message.content, [call.name for call in message.tool_calls]) == (content, names)


def test_thinking_stays_in_the_history():
    """Pitfall 3: the package's renderer for the same model takes it out, and is refused."""
    told = [Message("user", "a"), Message("assistant", "<think>\nwhy\n</think>\n\nb"), Message("user", "c")]  # fmt: skip
    assert "why" in text("qwen3", told, generate=True)
    theirs = renderers.create_renderer(
        TOKENIZERS["qwen3"], Qwen3RendererConfig(thinking_retention="all")
    )
    with pytest.raises(ConfigError, match="'qwen3' rewrites history"):
        probe(theirs, "qwen3", TOOLS)


def test_glm_policies_may_end_with_the_wrong_role():
    """Then both roles stand there, and the audit's rendering agrees."""
    renderer, tokenizer = RENDERERS["glm-4"], TOKENIZERS["glm-4"]
    prompt = render(renderer, [Message("user", "a")], add_generation_prompt=True).token_ids
    for end, role, between in (
        ("<|user|>", "user", "<|user|>"),
        ("<|user|>", "tool", "<|user|><|observation|>"),
        ("<|endoftext|>", "user", "<|endoftext|><|user|>"),
        ("", "tool", "<|observation|>"),
    ):
        completion = tokenizer.encode(f"\nb{end}", add_special_tokens=False)
        added = extension(renderer, prompt, completion, [Message(role, "c")])
        whole = renderer.encoder.decode([*prompt, *completion, *added])
        assert whole == f"[gMASK]<sop><|user|>\na<|assistant|>\nb{between}\nc<|assistant|>"
        closed = renderer.is_closed(completion, role)
        written = renderer.encoder.decode(completion[:-1] if closed else completion)
        again = [Message("user", "a"), Message("assistant", renderer.verbatim(written)), Message(role, "c")]  # fmt: skip
        assert template("glm-4", again, generate=True) == whole


TRIMMED = [
    Message("system", "Be brief."),
    Message("user", "A room."),
    LOOK,
    Message("tool", 'You "see".'),
    Message("assistant", "Done."),
    Message("user", "More."),
    call_message("link", {"a": "é", "b": "x y"}),
    Message("tool", "Yes."),
]


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("llama-3", Llama3RendererConfig()),
        ("qwen3-no-thinking", Qwen3RendererConfig(enable_thinking=False)),
    ],
)
@pytest.mark.parametrize("tools", [TOOLS, ()])
def test_the_package_renders_the_same_where_it_keeps_history(name, config, tools):
    """An independent reference: the renderers of the package, token by token."""
    theirs = renderers.create_renderer(TOKENIZERS[name], config)
    for length in range(2, len(TRIMMED) + 1):
        told = [message.to_openai() for message in TRIMMED[:length]]
        given = [tool.to_openai() for tool in tools] or None
        generate = TRIMMED[length - 1].role != "assistant"
        expected = theirs.render(told, tools=given, add_generation_prompt=generate)
        ours = render(RENDERERS[name], TRIMMED[:length], tools, add_generation_prompt=generate)
        assert ours.token_ids == expected.token_ids
        if name == "llama-3":  # theirs marks the empty thought, which the prompt brings, as sampled
            assert ours.sampled_mask == expected.sampled_mask


def test_the_package_agrees_on_a_last_thought():
    theirs = renderers.create_renderer(TOKENIZERS["qwen3"], Qwen3RendererConfig())
    for content in ("Done.", "<think>\nA desk.\n</think>\n\nDone."):
        told = [Message("user", "a"), Message("assistant", content)]
        expected = theirs.render([m.to_openai() for m in told])
        assert render(RENDERERS["qwen3"], told).token_ids == expected.token_ids


def test_a_template_for_one_call_alone_is_refused_by_name():
    theirs = renderers.create_renderer(TOKENIZERS["llama-3"], Llama3RendererConfig())
    with pytest.raises(ConfigError, match=r"'llama-3' cannot write turn 3 .*single tool call"):
        probe(theirs, "llama-3", TOOLS)


@every_format
def test_a_tokenizer_of_another_family_is_refused(name):
    other = "glm-4" if name != "glm-4" else "llama-3"
    with pytest.raises(StateError, match=f"chat format '{name}' needs the token"):
        create_renderer(name, TOKENIZERS[other], TOOLS)


def test_settings_know_every_format():
    from agentrl.config.models import PolicyConfig

    for name in OWN:
        assert PolicyConfig(chat_format=name).chat_format == name
